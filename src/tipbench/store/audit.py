"""Who changed what, when and from where. Entries are only added; the file itself refuses anything else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tipbench.store.database import bounded, record, storable
from tipbench.store.tokens import without_tokens
from tipbench.text import hide_logins

if TYPE_CHECKING:
    from tipbench.store.database import Database

_LONGEST = 4000


@dataclass(frozen=True, kw_only=True)
class Entry:
    """`role` is what the one who did it was, `local` for a command on this machine."""

    entry_id: int
    at_ms: int
    who: str
    role: str
    action: str
    target: str
    detail: str
    ip: str


class Audit:
    """Entries hold no token and no login of an address: both are cut before an entry is stored."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self,
        *,
        who: str,
        role: str,
        action: str,
        target: str = "",
        detail: str = "",
        ip: str = "",
        now_ms: int,
    ) -> int:
        """Keep an entry, on disk when this returns; its number is larger than that of any before."""
        texts = [_kept(text) for text in (who, role, action, target, detail, ip)]
        with self._database.writing() as db:
            added = db.execute(
                "INSERT INTO audit (at_ms, who, role, action, target, detail, ip) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (now_ms, *texts),
            )
            return int(added.lastrowid or 0)

    def page(self, *, before_id: int | None = None, limit: int = 50) -> tuple[Entry, ...]:
        """The newest entries, or those before one of them."""
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT * FROM audit WHERE ? IS NULL OR entry_id < ? ORDER BY entry_id DESC LIMIT ?",
                (None if before_id is None else 0, bounded(before_id or 0), max(0, bounded(limit))),
            ).fetchall()
        return tuple(record(Entry, row) for row in rows)


def _kept(text: str) -> str:
    text = hide_logins(text)
    short = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return without_tokens(storable(short))
