"""Batches in MLflow: one run each, and beside it what was applied to it, all of a file or none.

A batch counts once its run has ended. An application has parts of its own, named by its id and their
content, and one last tag that names the content and makes it count. So a writer that dies has changed
nothing, several may apply to one batch at once, and the same one again changes nothing.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from tipbench.errors import BadInput, LedgerUnreachable, NotFound
from tipbench.ledger import chunks, codec
from tipbench.ledger.shape import KIND
from tipbench.ledger.words import Words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tipbench.ledger.cache import Cache
    from tipbench.ledger.mlflow_store import ExperimentRow, Store
    from tipbench.ledger.shape import Row
    from tipbench.records import Application, Batch, Rejection, Release

WORDS = "tipbench.batches."
BATCH = "tipbench.batch"
CONTENT = "tipbench.batch.content"
APPLY = "tipbench.apply."
APPLIED = "tipbench.applied."
REJECTED = "tipbench.rejected"
RELEASED = "tipbench.released."

_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,63}", re.ASCII)


def checked_id(text: str, *, what: str) -> str:
    """An id that may stand in a tag's name and in a search."""
    if not _ID.fullmatch(text):
        raise BadInput(
            f"{text!r} cannot be the id of {what}: "
            "it is 1 to 64 letters, digits, dots, dashes and underscores, the first a letter or digit"
        )
    return text


def no_batch(batch_id: str, *, where: str) -> NotFound:
    return NotFound(
        f"there is no batch {batch_id!r} in {where}; "
        "name the ledger that it was exported from, or export a new one"
    )


def another_batch(batch_id: str, *, where: str) -> BadInput:
    return BadInput(f"{where} already holds another batch {batch_id!r}; give the new one an id of its own")


def batch_tags(batch: Batch) -> dict[str, str]:
    content = chunks.to_tags(CONTENT, codec.batch_to_json(batch))
    return {KIND: "batch", BATCH: batch.batch_id} | content


def application_tags(application: Application) -> tuple[dict[str, str], dict[str, str]]:
    """The parts of an application, and the tag that makes them count."""
    text = codec.application_to_json(application)
    digest = chunks.sha256(text)
    parts = chunks.to_tags(_name(application.application_id, digest), text)
    return parts, {f"{APPLIED}{application.application_id}": digest}


def _name(application_id: str, digest: str) -> str:
    return f"{APPLY}{application_id}.{digest[:16]}"


def in_order(applications: Iterable[Application]) -> tuple[Application, ...]:
    return tuple(sorted(applications, key=lambda each: (each.at_ms, each.application_id)))


class Batches:
    """The batches of one store."""

    def __init__(self, store: Store, cache: Cache) -> None:
        self._store = store
        self._cache = cache
        self._words = Words(store, WORDS)

    def add(self, found: ExperimentRow, batch: Batch) -> None:
        """Keep a batch. Its run ends only after what was written to it has been read back and compared."""
        tags = batch_tags(batch)
        rows = self._rows([found], checked_id(batch.batch_id, what="a batch"))
        if any(_is_complete(row) for row in rows):
            self._check_same(found, rows, batch)
            return
        word = self._words.begin(found)
        row = _begun(rows, tags)
        if row is None:
            row = self._begin(found, batch, tags)
        else:
            self._store.write_tags(row.run_id, tags)
        self._check_kept(found, row.run_id, tags)
        self._store.end(row.run_id, failed=False, ended_ms=time.time_ns() // 1_000_000)
        self._words.end(found, word)

    def _check_same(self, found: ExperimentRow, rows: Sequence[Row], batch: Batch) -> None:
        mine = codec.batch_from_json(codec.batch_to_json(batch), experiment=found.name)
        if any(_content(row, found.name) != mine for row in rows if _is_complete(row)):
            raise another_batch(batch.batch_id, where=self._where(found))

    def _begin(self, found: ExperimentRow, batch: Batch, tags: Mapping[str, str]) -> Row:
        return self._store.create_run(
            found.experiment_id,
            name=f"batch {batch.batch_id}",
            started_ms=batch.created_ms,
            tags=tags,
            made=lambda: _begun(self._rows([found], batch.batch_id), tags),
        )

    def revision(self, found: ExperimentRow) -> str:
        """What a snapshot of the batches is kept under; empty while somebody writes or none was written."""
        return "" if self.under_way(found) else self._words.revision(found.tags)

    def under_way(self, found: ExperimentRow) -> bool:
        """Whether somebody writes a batch at the moment."""
        return self._words.under_way(found.tags)

    def all(self, found: ExperimentRow) -> list[Batch]:
        """Oldest first; from the cache while nobody writes and the words stand, which are read before."""
        revision = self.revision(found)
        where = (self._store.address.public, found.experiment_id, revision)
        cached = self._cache.batches(*where)
        if cached is not None:
            return cached
        batches = _read(self._store.tagged([found.experiment_id], KIND, "batch"), found.name)
        self._cache.keep_batches(*where, batches)
        return batches

    def one(self, experiments: Sequence[ExperimentRow], batch_id: str) -> Batch:
        """A batch as it is now, never from the cache: what is applied next builds on it."""
        names = {found.experiment_id: found.name for found in experiments}
        rows = self._rows(experiments, batch_id) if _ID.fullmatch(batch_id) else []
        for row in rows:
            if _is_complete(row):
                same = [other for other in rows if other.experiment_id == row.experiment_id]
                return _read(same, names[row.experiment_id])[0]
        raise no_batch(batch_id, where=f"any experiment of {self._store.address.public}")

    def commit(self, found: ExperimentRow, batch: Batch, application: Application) -> None:
        """Add an application: its parts, then, once they were read back, the tag that makes them count."""
        checked_id(application.application_id, what="an application")
        parts, pointer = application_tags(application)
        rows = self._rows([found], batch.batch_id) if _ID.fullmatch(batch.batch_id) else []
        complete = [row for row in rows if _is_complete(row)]
        if not complete:
            raise no_batch(batch.batch_id, where=self._where(found))
        if any(pointer.keys() & row.tags.keys() for row in complete):
            return
        run_id = complete[0].run_id
        word = self._words.begin(found)
        self._store.write_tags(run_id, parts)
        self._check_kept(found, run_id, parts)
        self._store.write_tags(run_id, pointer)
        self._words.end(found, word)

    def reject(self, found: ExperimentRow, batch: Batch, rejection: Rejection) -> None:
        """Record a rejected submission. The same one again changes nothing."""
        name = f"{REJECTED}.{checked_id(rejection.rejection_id, what='a rejection')}"
        self._add_tag(found, batch, name, codec.rejection_to_json(rejection), more={REJECTED: "true"})

    def release(self, found: ExperimentRow, batch: Batch, release: Release) -> None:
        """Record that an admin lets a closed batch be submitted again."""
        self._add_tag(found, batch, f"{RELEASED}{release.at_ms}", codec.release_to_json(release), more={})

    def _add_tag(
        self, found: ExperimentRow, batch: Batch, name: str, text: str, *, more: Mapping[str, str]
    ) -> None:
        """Add one text to a batch, read it back and compare. A text of that name that is there stays."""
        rows = self._rows([found], batch.batch_id) if _ID.fullmatch(batch.batch_id) else []
        complete = [row for row in rows if _is_complete(row)]
        if not complete:
            raise no_batch(batch.batch_id, where=self._where(found))
        if any(_whole_text(name, row) is not None for row in complete):
            return
        tags = {**chunks.to_tags(name, text), **more}
        word = self._words.begin(found)
        self._store.write_tags(complete[0].run_id, tags)
        self._check_kept(found, complete[0].run_id, tags)
        self._words.end(found, word)

    def rejected(self, experiments: Sequence[ExperimentRow]) -> list[Batch]:
        """The batches of these experiments that have a rejection, oldest first."""
        rows = self._store.tagged([found.experiment_id for found in experiments], REJECTED, "true")
        found = [
            batch
            for experiment in experiments
            for batch in _read(
                [r for r in rows if r.experiment_id == experiment.experiment_id], experiment.name
            )
        ]
        return sorted(found, key=lambda batch: (batch.created_ms, batch.batch_id))

    def _check_kept(self, found: ExperimentRow, run_id: str, tags: Mapping[str, str]) -> None:
        there = {row.run_id: row.tags for row in self._store.rows(found.experiment_id, [run_id])}
        kept = there.get(run_id, {})
        lost = [name for name, value in tags.items() if kept.get(name) != value]
        if lost:
            raise LedgerUnreachable(
                f"{self._store.address.public} did not keep the tag {lost[0]!r} of run {run_id} as it was "
                "written; see whether the server cuts long values, then try again"
            )

    def _rows(self, experiments: Sequence[ExperimentRow], batch_id: str) -> list[Row]:
        ids = [found.experiment_id for found in experiments]
        # a database may find more: to some, "A1" and "a1" are the same
        return [row for row in self._store.tagged(ids, BATCH, batch_id) if row.tags[BATCH] == batch_id]

    def _where(self, found: ExperimentRow) -> str:
        return f"experiment {found.name!r} of {self._store.address.public}"


def _is_complete(row: Row) -> bool:
    return row.status == "FINISHED"


def _begun(rows: Iterable[Row], tags: Mapping[str, str]) -> Row | None:
    """A run that was begun with the same content; one with another content is left alone."""
    checksum = f"{CONTENT}.sha256"
    same = (row for row in rows if not _is_complete(row) and row.tags.get(checksum) == tags[checksum])
    return next(same, None)


def _read(rows: Iterable[Row], experiment: str) -> list[Batch]:
    """The batches behind complete runs. Two runs of one batch are one: two writers came at once."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if _is_complete(row):
            found.setdefault(row.tags.get(BATCH, ""), []).append(row)
    batches = [_batch(same, experiment) for same in found.values()]
    return sorted(batches, key=lambda batch: (batch.created_ms, batch.batch_id))


def _batch(rows: Sequence[Row], experiment: str) -> Batch:
    batch = _content(rows[0], experiment)
    for row in rows[1:]:
        if _content(row, experiment) != batch:
            raise BadInput(
                f"runs {rows[0].run_id} and {row.run_id} of experiment {experiment!r} are different batches "
                f"under one id, {batch.batch_id!r}; delete one of them in MLflow"
            )
    applied = {each.application_id: each for row in rows for each in _applications(row, experiment)}
    rejections = {each.rejection_id: each for row in rows for each in _rejections(row)}
    releases = {each.at_ms: each for row in rows for each in _releases(row)}
    return replace(
        batch,
        applications=in_order(applied.values()),
        rejections=tuple(sorted(rejections.values(), key=lambda each: (each.at_ms, each.rejection_id))),
        releases=tuple(releases[at_ms] for at_ms in sorted(releases)),
    )


def _rejections(row: Row) -> list[Rejection]:
    return [codec.rejection_from_json(text) for text in _texts(row, f"{REJECTED}.")]


def _releases(row: Row) -> list[Release]:
    return [codec.release_from_json(text) for text in _texts(row, RELEASED)]


def _texts(row: Row, prefix: str) -> list[str]:
    """The texts whose tags begin with the prefix. A text of which a writer left only a part is no text."""
    names = [
        name.removesuffix(".sha256")
        for name in row.tags
        if name.startswith(prefix) and name.endswith(".sha256")
    ]
    return [text for name in names if (text := _whole_text(name, row)) is not None]


def _whole_text(name: str, row: Row) -> str | None:
    try:
        return chunks.from_tags(name, row.tags)
    except chunks.Damaged:
        return None


def _content(row: Row, experiment: str) -> Batch:
    try:
        text = chunks.from_tags(CONTENT, row.tags)
        if text is None:
            raise chunks.Damaged(CONTENT)
        return codec.batch_from_json(text, experiment=experiment)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise BadInput(
            f"batch {row.tags.get(BATCH, '')!r} (run {row.run_id} of experiment {experiment!r}) is damaged, "
            f"or was written by a newer tipbench: use that one, restore its tags {CONTENT}… from a backup, "
            "or delete that run in MLflow, and its verdicts with it"
        ) from None


def _applications(row: Row, experiment: str) -> list[Application]:
    ids = [name.removeprefix(APPLIED) for name in row.tags if name.startswith(APPLIED)]
    return [_application(row, experiment, application_id) for application_id in ids]


def _application(row: Row, experiment: str, application_id: str) -> Application:
    digest = row.tags[f"{APPLIED}{application_id}"]
    try:
        text = chunks.from_tags(_name(application_id, digest), row.tags)
        if text is None or chunks.sha256(text) != digest:
            raise chunks.Damaged(application_id)
        return codec.application_from_json(text)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise BadInput(
            f"the verdicts {application_id!r} of batch {row.tags.get(BATCH, '')!r} (run {row.run_id} of "
            f"experiment {experiment!r}) are damaged, or were written by a newer tipbench: use that one, "
            f"restore its tags {APPLY}{application_id}… from a backup, or delete the tag "
            f"{APPLIED}{application_id} and apply the file again"
        ) from None
