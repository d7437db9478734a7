"""Keys that the service signs with: random, made once, kept for as long as the file is."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tipbench.store.database import Database

_BYTES = 32


class Secrets:
    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, purpose: str) -> bytes:
        """The key for a purpose, such as `session`: the same for everybody who opens the file."""
        found = self._find(purpose)
        if found is not None:
            return found
        with self._database.writing() as db:
            db.execute("INSERT OR IGNORE INTO secret VALUES (?, ?)", (purpose, secrets.token_bytes(_BYTES)))
            return self._find(purpose) or b""

    def _find(self, purpose: str) -> bytes | None:
        with self._database.reading() as db:
            row = db.execute("SELECT key FROM secret WHERE purpose = ?", (purpose,)).fetchone()
        return None if row is None else bytes(row["key"])
