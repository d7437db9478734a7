"""Who is writing a run: claims in its tags, so that two tipbenches do not record the same cell twice.

MLflow cannot create a run "unless there is one". So a writer first leaves a claim, on a run of its own or on
the one it would complete, and then looks: it writes only where no other claim is to be seen. Of two that
come at once, at least one sees the other; the later one withdraws, the earlier one waits for that.
"""

from __future__ import annotations

import socket
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tipbench.errors import LedgerUnreachable
from tipbench.ledger import shape
from tipbench.ledger.chunks import sha256
from tipbench.private import make_folder, opener

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from tipbench.ledger.mlflow_store import Store
    from tipbench.ledger.shape import Row
    from tipbench.records import CellResult

PREFIX = "tipbench.writer."
# A claim older than this is that of a writer that died; a batch takes seconds.
LEASE_MS = 10 * 60_000

_PATIENCE_S = (0.1, 0.3, 0.6)


class CellsBusy(LedgerUnreachable):
    """Another home records these cells at the moment; all others of the batch were recorded."""

    def __init__(self, keys: Collection[str]) -> None:
        super().__init__(busy_sentence(len(keys)))
        self.keys = frozenset(keys)


def busy_sentence(count: int) -> str:
    if count == 1:
        return "1 cell is being recorded by another tipbench at the moment; it follows later"
    return f"{count} cells are being recorded by another tipbench at the moment; they follow later"


def writer_of(home: Path) -> str:
    """The name under which a home claims runs: the same after a crash, another for a copy of the home."""
    return sha256(f"{_word_in(home)} {home} {socket.gethostname()}")[:16]


def _word_in(home: Path) -> str:
    """A word that no other home has. Where it cannot be kept, a crash is only made good after the lease."""
    path = home / "writer-id"
    word = uuid.uuid4().hex
    try:
        make_folder(home)
        with suppress(FileExistsError), open(path, "x", opener=opener) as file:
            file.write(word)
        return path.read_text(errors="replace")
    except OSError:
        return word


@dataclass(frozen=True, kw_only=True, order=True)
class Claim:
    """One try to write one cell; earlier claims come first."""

    since_ms: int
    token: str
    writer: str

    @property
    def name(self) -> str:
        return f"{PREFIX}{self.token}"

    @property
    def tag(self) -> dict[str, str]:
        return {self.name: f"{self.since_ms} {self.writer}"}

    def is_rival_of(self, mine: Claim) -> bool:
        """One's own home drains alone, so its other claims were left by a crash."""
        return self.writer != mine.writer and abs(self.since_ms - mine.since_ms) < LEASE_MS


def new_claim(writer: str) -> Claim:
    return Claim(since_ms=time.time_ns() // 1_000_000, token=uuid.uuid4().hex[:16], writer=writer)


def claims_on(row: Row) -> list[Claim]:
    found = []
    for name, value in row.tags.items():
        since, _, writer = value.partition(" ")
        if name.startswith(PREFIX) and since.isdecimal():
            found.append(Claim(since_ms=int(since), token=name.removeprefix(PREFIX), writer=writer))
    return found


@dataclass(frozen=True, kw_only=True)
class Held:
    """A run that is ours to write. One that is not fresh holds what an earlier try left."""

    row: Row
    claim: Claim
    fresh: bool


class Claims:
    """The runs that one writer may write to, in one store."""

    def __init__(self, store: Store, writer: str) -> None:
        self._store = store
        self._writer = writer

    def run_for(self, experiment_id: str, result: CellResult) -> Held | None:
        """The run that a result goes to, None where its cell is done; CellsBusy where another writes it."""
        key = result.cell.key
        rows = self._store.cells_with_key(experiment_id, key)
        mine = new_claim(self._writer)
        fresh = not rows
        if not _is_done(rows):
            if _rivals(rows, mine):
                raise CellsBusy([key])
            self._claim(experiment_id, result, rows, mine)
            rows = self._undisputed(experiment_id, key, mine)
        if _is_done(rows):
            self._withdraw(rows, mine)
            return None
        row = next((row for row in rows if mine.name in row.tags), None)
        if row is None:
            where = self._store.address.public
            raise LedgerUnreachable(
                f"{where} did not keep the tag {mine.name!r} of the run for cell {key}; "
                "see its log, then try again"
            )
        self._withdraw([other for other in rows if other is not row], mine)
        return Held(row=row, claim=mine, fresh=fresh)

    def _claim(self, experiment_id: str, result: CellResult, rows: Sequence[Row], mine: Claim) -> None:
        """Claim the run that was left half-written, else the failed one, else a new one."""
        if rows:
            row = next((row for row in rows if not row.is_complete), rows[0])
            self._store.write_tags(row.run_id, mine.tag)
            return

        def made() -> Row | None:
            there = self._store.cells_with_key(experiment_id, result.cell.key)
            return next((row for row in there if mine.name in row.tags), None)

        self._store.create_run(
            experiment_id,
            name=shape.run_name(result),
            started_ms=result.started_ms,
            tags=mine.tag | shape.tags_of(result),
            made=made,
        )

    def _undisputed(self, experiment_id: str, key: str, mine: Claim) -> list[Row]:
        """The cell's runs once no other claim is left, or one of them is done."""
        for pause in (*_PATIENCE_S, 0):
            rows = self._store.cells_with_key(experiment_id, key)
            rivals = _rivals(rows, mine)
            if not rivals or _is_done(rows):
                return rows
            if min(rivals) < mine:
                self._withdraw(rows, mine)
                break
            time.sleep(pause)
        raise CellsBusy([key])

    def _withdraw(self, rows: Iterable[Row], mine: Claim) -> None:
        """Leave these runs to others; one that was begun and that nobody else claims is deleted."""
        for row in rows:
            if not row.is_complete and not _rivals([row], mine):
                self._store.delete_run(row.run_id)
            elif mine.name in row.tags:
                self._store.untag(row.run_id, mine.name)


def _is_done(rows: Iterable[Row]) -> bool:
    return any(row.status == "FINISHED" for row in rows)


def _rivals(rows: Iterable[Row], mine: Claim) -> list[Claim]:
    return [claim for row in rows for claim in claims_on(row) if claim.is_rival_of(mine)]
