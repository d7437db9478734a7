"""The log as rows for off-policy evaluation, in the column names of the Open Bandit Pipeline.

It knows two sets of names: those of its datasets' files (`item_id`, `click`, `propensity_score`,
`user_feature_N`) and those that its estimators take (`action`, `reward`, `pscore`, `context`). Both are
written. A decision of which nothing was heard has no reward: the cell is empty, never 0.
"""

from __future__ import annotations

import csv
import io
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import msgspec

from tipbench.bandit.decisions import decode
from tipbench.bandit.features import FEATURES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tipbench.bandit.books import Books, Past

FORMATS = ("jsonl", "csv")
_AT_A_TIME = 1000
_DIMS = max(version.dims for version in FEATURES.values())
_SHARED = (
    "timestamp",
    "item_id",
    "position",
    "click",
    "propensity_score",
    "action",
    "reward",
    "pscore",
    "decision_id",
    "user_id",
    "policy",
    "policy_version",
    "feature_version",
    "explored",
    "event",
)
CSV_COLUMNS = (*_SHARED, *(f"user_feature_{place}" for place in range(_DIMS)))


def export(books: Books, *, form: str, policy: str = "") -> Iterator[str]:
    """The lines of the file, one decision each, the oldest first; read in pieces, so it may be long.

    Decisions that are made meanwhile are not in it.
    """
    rows = decisions(books, policy=policy)
    return _csv(rows) if form == "csv" else (_json(past) for past in rows)


def decisions(books: Books, *, policy: str = "") -> Iterator[Past]:
    """Every decision in the log, or every one of a policy."""
    with books.reading() as reading:
        last = reading.last_seq()
    after = 0
    while after < last:
        with books.reading() as reading:
            some = reading.served(after=after, limit=_AT_A_TIME)
        if not some:
            return
        after = some[-1].entry.seq
        yield from (past for past in some if past.entry.seq <= last and policy in {"", past.entry.policy})


def _row(past: Past) -> dict[str, Any]:
    entry, logged, outcome = past.entry, decode(past.entry), past.outcome
    reward = None if outcome is None else outcome.reward
    pscore = logged.propensities[logged.chosen]
    moment = datetime.fromtimestamp(entry.ms / 1000, timezone.utc)
    values = (
        moment.isoformat(timespec="milliseconds"),
        logged.ids[logged.chosen],
        0,  # a decision shows one tip
        reward,
        pscore,
        logged.chosen,
        reward,
        pscore,
        entry.decision_id,
        entry.user_id,
        entry.policy,
        logged.policy_version,
        logged.feature_version,
        logged.explored,
        None if outcome is None else outcome.event,
    )
    return dict(zip(_SHARED, values, strict=True))


def _json(past: Past) -> str:
    """A line of JSON: also the context, and of every candidate its id, kind, features, score and
    probability.
    """
    logged = decode(past.entry)
    x = logged.matrix()
    more = {
        "context": x[logged.chosen].tolist(),
        "n_actions": len(logged.ids),
        "action_context": x.tolist(),
        "pi_b": logged.propensities,
        # Not the pipeline's `expected_reward`, which is the truth that it measures estimates by.
        "scores": logged.scores,
        "candidates": logged.ids,
        "kinds": logged.kinds,
        "request": logged.context,
        "request_id": logged.request_id,
        "absent": logged.absent,
    }
    return msgspec.json.encode({**_row(past), **more}).decode() + "\n"


def _csv(rows: Iterable[Past]) -> Iterator[str]:
    yield _line(CSV_COLUMNS)
    for past in rows:
        logged = decode(past.entry)
        features = logged.matrix()[logged.chosen].tolist()
        shared = _row(past)
        shared["explored"] = int(shared["explored"])
        yield _line([*shared.values(), *features, *[None] * (_DIMS - len(features))])


def _line(values: Iterable[Any]) -> str:
    line = io.StringIO()
    # Only what is in the end of a line is quoted, and readers take a bare \r for one, too.
    csv.writer(line, lineterminator="\r\n").writerow(["" if value is None else value for value in values])
    return line.getvalue()[:-2] + "\n"
