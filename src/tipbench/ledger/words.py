"""Words in an experiment's tags that tell whether what was read of it before still stands.

MLflow knows no compare-and-set, so writers do not share a word: each sets one of its own before it begins,
says when it is done, and then removes those that it found. All words together are the revision. Of two
that write at once both words stay, so neither can take what it read earlier for the present state; and the
word of one that died in the middle goes on saying so.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tipbench.ledger.mlflow_store import ExperimentRow, Store

# A word older than this that still says "writing" is that of a writer that died.
LEASE_MS = 10 * 60_000

_WRITING = "writing since "
_WRITTEN = "written"


class Words:
    """The words of one kind of writer: tags that begin with `prefix`."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def revision(self, tags: Mapping[str, str]) -> str:
        """The same as long as nobody has begun or ended writing; empty where nobody ever has."""
        return " ".join(f"{name}={value}" for name, value in sorted(self._ours(tags).items()))

    def under_way(self, tags: Mapping[str, str]) -> bool:
        """Whether somebody writes at the moment, or died while writing."""
        return any(value != _WRITTEN for value in self._ours(tags).values())

    def begin(self, found: ExperimentRow) -> str:
        """Say that something is going to be written; the name of the word, for `end`."""
        word = f"{self._prefix}{uuid.uuid4().hex[:16]}"
        self._store.tag_experiment(found.experiment_id, word, f"{_WRITING}{_now_ms()}")
        return word

    def end(self, found: ExperimentRow, word: str) -> str:
        """Say that it is written. The revision that holds from now on, unless others write as well.

        `found` is the experiment as it was read before the writing.
        """
        self._store.tag_experiment(found.experiment_id, word, _WRITTEN)
        before = self._ours(found.tags)
        others = {name: value for name, value in before.items() if _is_live(value)}
        for name in before.keys() - others.keys():
            self._store.untag_experiment(found.experiment_id, name)
        return self.revision(others | {word: _WRITTEN})

    def _ours(self, tags: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in tags.items() if name.startswith(self._prefix)}


def _is_live(value: str) -> bool:
    since = value.removeprefix(_WRITING)
    return since.isdecimal() and abs(_now_ms() - int(since)) < LEASE_MS


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
