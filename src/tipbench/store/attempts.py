"""Logins that failed, for as long as they matter to how many more are allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tipbench.store.database import storable

if TYPE_CHECKING:
    from tipbench.store.database import Database

_KEPT_MS = 3600 * 1000
_LONGEST_ADDRESS = 200


class Attempts:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, address: str, *, now_ms: int) -> None:
        """A login from this address failed; what failed more than an hour ago is forgotten."""
        with self._database.writing() as db:
            db.execute("DELETE FROM attempt WHERE at_ms <= ?", (now_ms - _KEPT_MS,))
            db.execute("INSERT INTO attempt (address, at_ms) VALUES (?, ?)", (_kept(address), now_ms))

    def count(self, *, since_ms: int, address: str | None = None) -> int:
        """How many failed after `since_ms`: from one address, or from all."""
        asked = None if address is None else _kept(address)
        with self._database.reading() as db:
            row = db.execute(
                "SELECT count(*) AS n FROM attempt WHERE at_ms > ? AND (? IS NULL OR address = ?)",
                (since_ms, asked, asked),
            ).fetchone()
        return int(row["n"])


def _kept(address: str) -> str:
    return storable(address[:_LONGEST_ADDRESS])
