"""Which signed messages came in already, so that none counts twice."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tipbench.store.database import Database

DAY_MS = 24 * 3600 * 1000


class Seen:
    """Only a nonce's hash is kept, however long it is, and only for as long as its message would be taken."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def first_time(self, nonce: str, now_ms: int, *, keep_ms: int = DAY_MS) -> bool:
        """Whether the nonce is new; of several that ask at once, one is told so.

        `keep_ms` must be longer than the time for which a message's own timestamp makes it acceptable.
        """
        with self._database.writing() as db:
            db.execute("DELETE FROM seen WHERE until_ms <= ?", (now_ms,))
            added = db.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (_hashed(nonce), now_ms + keep_ms))
            return added.rowcount == 1

    def has(self, nonce: str, now_ms: int) -> bool:
        """Whether the nonce came before and is still remembered."""
        with self._database.reading() as db:
            row = db.execute(
                "SELECT 1 FROM seen WHERE nonce = ? AND until_ms > ?", (_hashed(nonce), now_ms)
            ).fetchone()
        return row is not None


def _hashed(nonce: str) -> bytes:
    return hashlib.sha256(nonce.encode("utf-8", "surrogatepass")).digest()
