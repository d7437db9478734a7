"""What the decisions that were served say about another policy: `tipbench ope`."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from tipbench.bandit import policies
from tipbench.bandit.decisions import decode
from tipbench.errors import BadInput, NotFound
from tipbench.sim.ope import OffPolicy, estimate
from tipbench.sim.replay import Served, replay
from tipbench.workflows.serving_state import opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tipbench.bandit.books import Books, Past
    from tipbench.bandit.policy import Policy

_PAGE = 1000
_AGO = re.compile(r"([1-9][0-9]{0,4})([hdw])")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def ask_log(challenger: str, *, since: str = "") -> OffPolicy:
    """The estimate for a policy, from what was served since then."""
    policy, start = policies.make(challenger), since_ms(since)
    with opened() as books:
        return estimate(replay(policy, list(_served(books, start))))


def estimate_from_log(policy: Policy) -> OffPolicy | None:
    """The estimate from all that was served; None where nothing has been."""
    try:
        with opened() as books:
            return estimate(replay(policy, list(_served(books, 0))))
    except NotFound:
        return None


def since_ms(text: str, *, now: datetime | None = None) -> int:
    """`7d`, `24h`, `2w`, or a date such as 2026-05-31, as milliseconds; empty is the beginning."""
    if not text:
        return 0
    ago = _AGO.fullmatch(text)
    if ago:
        moment = (now or datetime.now(timezone.utc)) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        return int(moment.timestamp() * 1000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(
            f"--since: {text!r} is neither a time ago (24h, 7d, 2w) nor a date (2026-05-31)"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return int(moment.timestamp() * 1000)


def _served(books: Books, since: int) -> Iterator[Served]:
    after = 0
    while True:
        with books.reading() as reading:
            page = reading.served(after=after, limit=_PAGE)
        yield from (_one(past) for past in page if past.entry.ms >= since)
        if len(page) < _PAGE:
            return
        after = page[-1].entry.seq


def _one(past: Past) -> Served:
    logged = decode(past.entry)
    return Served(
        user=past.entry.user_id,
        features=logged.feature_version,
        x=logged.matrix(),
        kinds=logged.kinds,
        hour=logged.context.hour,
        chosen=logged.chosen,
        propensity=logged.propensities[logged.chosen],
        reward=None if past.outcome is None else past.outcome.reward,
        event="" if past.outcome is None else past.outcome.event,
    )
