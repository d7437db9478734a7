"""Messages on their way out to others' addresses: kept until they arrived or were given up.

Who sends one claims it first, for a while: two processes do not send the same at once, and what a process
that died had claimed is sent by another one later. A receiver may see a message twice, never not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tipbench.store.database import bounded, record, storable

if TYPE_CHECKING:
    from tipbench.store.database import Database

DeliveryState = Literal["waiting", "sent", "failed"]

_LONGEST_ERROR = 500


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """`attempts` counts the one that is under way. `next_ms` is when a waiting one is due."""

    delivery_id: int
    key: str
    event: str
    url: str
    body: str
    created_ms: int
    state: DeliveryState
    attempts: int
    next_ms: int
    status: int | None
    last_error: str
    ended_ms: int | None


class Deliveries:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, *, key: str, event: str, url: str, body: str, now_ms: int) -> bool:
        """Keep a message, due at once; False where one with this key was kept before."""
        with self._database.writing() as db:
            added = db.execute(
                "INSERT OR IGNORE INTO delivery "
                "(key, event, url, body, created_ms, state, attempts, next_ms, last_error) "
                "VALUES (?, ?, ?, ?, ?, 'waiting', 0, ?, '')",
                (storable(key), event, storable(url), storable(body), now_ms, now_ms),
            )
            return added.rowcount == 1

    def claim(self, *, now_ms: int, for_ms: int) -> Delivery | None:
        """The message that has been due for longest, nobody else's for `for_ms`; None where none is due."""
        with self._database.writing() as db:
            row = db.execute(
                "SELECT * FROM delivery WHERE state = 'waiting' AND next_ms <= ? "
                "ORDER BY next_ms, delivery_id LIMIT 1",
                (now_ms,),
            ).fetchone()
            if row is None:
                return None
            row |= {"attempts": row["attempts"] + 1, "next_ms": now_ms + for_ms}
            db.execute(
                "UPDATE delivery SET attempts = :attempts, next_ms = :next_ms "
                "WHERE delivery_id = :delivery_id",
                row,
            )
        return record(Delivery, row)

    def get(self, key: str) -> Delivery | None:
        """The message that was kept under this key."""
        with self._database.reading() as db:
            row = db.execute("SELECT * FROM delivery WHERE key = ?", (storable(key),)).fetchone()
        return None if row is None else record(Delivery, row)

    def sent(self, claimed: Delivery, *, status: int, now_ms: int) -> bool:
        """The receiver took it. False where the claim had run out and another has it, or is done with it."""
        return self._tell(claimed, state="sent", status=status, error="", next_ms=now_ms, ended_ms=now_ms)

    def failed(
        self, claimed: Delivery, *, error: str, status: int | None = None, retry_ms: int | None, now_ms: int
    ) -> bool:
        """It did not arrive: it is due again at `retry_ms`, or given up where that is None."""
        if retry_ms is None:
            return self._tell(
                claimed, state="failed", status=status, error=error, next_ms=now_ms, ended_ms=now_ms
            )
        return self._tell(
            claimed, state="waiting", status=status, error=error, next_ms=retry_ms, ended_ms=None
        )

    def again(self, delivery_id: int, *, now_ms: int) -> bool:
        """Send one once more that was given up; False where there is none such."""
        with self._database.writing() as db:
            changed = db.execute(
                "UPDATE delivery SET state = 'waiting', next_ms = ?, ended_ms = NULL "
                "WHERE delivery_id = ? AND state = 'failed'",
                (now_ms, bounded(delivery_id)),
            )
            return changed.rowcount == 1

    def page(self, *, before_id: int | None = None, limit: int = 50) -> tuple[Delivery, ...]:
        """The newest messages, or those before one of them."""
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT * FROM delivery WHERE ? IS NULL OR delivery_id < ? ORDER BY delivery_id DESC LIMIT ?",
                (None if before_id is None else 0, bounded(before_id or 0), max(0, bounded(limit))),
            ).fetchall()
        return tuple(record(Delivery, row) for row in rows)

    def _tell(
        self,
        claimed: Delivery,
        *,
        state: DeliveryState,
        status: int | None,
        error: str,
        next_ms: int,
        ended_ms: int | None,
    ) -> bool:
        with self._database.writing() as db:
            changed = db.execute(
                "UPDATE delivery SET state = ?, status = ?, last_error = ?, next_ms = ?, ended_ms = ? "
                "WHERE delivery_id = ? AND state = 'waiting' AND attempts = ?",
                (state, status, storable(error[:_LONGEST_ERROR]), next_ms, ended_ms, claimed.delivery_id,
                 claimed.attempts),
            )  # fmt: skip
            return changed.rowcount == 1
