"""Answers of judges who are not done with their batch: kept item by item, at every stroke.

An answer is a flat object with the keys of a judge file's: one for each scale, `overlong`, `note`. It may
be half given. What it means is for others to check; here it is kept.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tipbench.store.database import storable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from tipbench.store.database import Database


@dataclass(frozen=True, kw_only=True)
class DraftItem:
    item_id: str
    answer: Mapping[str, Any]
    updated_ms: int


class Drafts:
    """One draft for each batch and judge. One that was handed in and rejected stays, with the reason."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, batch_id: str, judge: str, item_id: str, answer: Mapping[str, Any], *, now_ms: int) -> None:
        """Lay these keys over the item's answer, a None takes its key away; on disk when this returns."""
        self.put_all(batch_id, judge, {item_id: answer}, now_ms=now_ms)

    def put_all(
        self, batch_id: str, judge: str, answers: Mapping[str, Mapping[str, Any]], *, now_ms: int
    ) -> None:
        """As `put` for several items: all of them or none."""
        with self._database.writing() as db:
            for item_id, answer in answers.items():
                _lay_over(db, (*_key(batch_id, judge), storable(item_id)), answer, now_ms=now_ms)

    def get(self, batch_id: str, judge: str) -> dict[str, Mapping[str, Any]]:
        """The answers by item id."""
        return {item.item_id: item.answer for item in self.items(batch_id, judge)}

    def items(self, batch_id: str, judge: str) -> tuple[DraftItem, ...]:
        """The answers with when they were last changed, the latest last."""
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT * FROM draft WHERE batch_id = ? AND judge = ? ORDER BY updated_ms, item_id",
                _key(batch_id, judge),
            ).fetchall()
        return tuple(
            DraftItem(item_id=row["item_id"], answer=json.loads(row["answer"]), updated_ms=row["updated_ms"])
            for row in rows
        )

    def delete(self, batch_id: str, judge: str) -> None:
        """Forget the draft, and that it was rejected: the batch is in, or is begun anew."""
        with self._database.writing() as db:
            key = _key(batch_id, judge)
            db.execute("DELETE FROM draft WHERE batch_id = ? AND judge = ?", key)
            db.execute("DELETE FROM rejection WHERE batch_id = ? AND judge = ?", key)

    def reject(self, batch_id: str, judge: str, reason: str, *, now_ms: int) -> None:
        """Note that the draft was handed in and rejected. Its answers stay as they are."""
        with self._database.writing() as db:
            db.execute(
                "INSERT OR REPLACE INTO rejection (batch_id, judge, reason, at_ms) VALUES (?, ?, ?, ?)",
                (*_key(batch_id, judge), storable(reason), now_ms),
            )

    def rejection(self, batch_id: str, judge: str) -> str | None:
        """Why the draft was rejected when it was last handed in; None where it was not."""
        with self._database.reading() as db:
            row = db.execute(
                "SELECT reason FROM rejection WHERE batch_id = ? AND judge = ?", _key(batch_id, judge)
            ).fetchone()
        return None if row is None else str(row["reason"])


def _key(batch_id: str, judge: str) -> tuple[str, str]:
    return storable(batch_id), storable(judge)


def _lay_over(
    db: sqlite3.Connection, key: tuple[str, str, str], answer: Mapping[str, Any], *, now_ms: int
) -> None:
    row = db.execute(
        "SELECT answer FROM draft WHERE batch_id = ? AND judge = ? AND item_id = ?", key
    ).fetchone()
    merged = (json.loads(row["answer"]) if row else {}) | dict(answer)
    left = {name: value for name, value in merged.items() if value is not None}
    if left:
        db.execute(
            "INSERT OR REPLACE INTO draft (batch_id, judge, item_id, answer, updated_ms) "
            "VALUES (?, ?, ?, ?, ?)",
            (*key, json.dumps(left), now_ms),
        )
    else:
        db.execute("DELETE FROM draft WHERE batch_id = ? AND judge = ? AND item_id = ?", key)
