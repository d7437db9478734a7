"""What came of a canary so far, read out of the log: from where the last look ended, by whichever process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tipbench.bandit.active import FAILED
from tipbench.bandit.canary import METRICS, RULE, SLOW_US, Sample, rule_on
from tipbench.bandit.decisions import decode
from tipbench.errors import BadState

if TYPE_CHECKING:
    from tipbench.bandit.active import Active
    from tipbench.bandit.books import Books, Past
    from tipbench.bandit.canary import Metric, Rule, Trial

_PAGE = 1000
# Two transactions may have the same moment, and clocks are set right: what is this young is read again.
_AGAIN_MS = 5000


class _Side:
    """By metric and user: how often, the sum and the sum of squares."""

    def __init__(self) -> None:
        self.users: dict[Metric, dict[str, list[float]]] = {metric: {} for metric in METRICS}

    def count(self, metric: Metric, user: str, value: float) -> None:
        sums = self.users[metric].setdefault(user, [0.0, 0.0, 0.0])
        sums[0] += 1.0
        sums[1] += value
        sums[2] += value * value

    def samples(self) -> dict[Metric, Sample]:
        return {metric: Sample.of(users) for metric, users in self.users.items()}


class CanaryWatch:
    """One trial. Counted is what apps were served (not what somebody asked one policy for) by the policy that
    the user's side is to get, once it has come to an end; and on either side, what failed.
    """

    def __init__(self, books: Books, active: Active) -> None:
        self.active = active
        self._books = books
        self._seed = books.seed()
        self._new, self._old = _Side(), _Side()
        self._since_ms = 0
        self._seen: dict[int, int] = {}
        self._failed_after = active.after

    def catch_up(self) -> None:
        """Read what is new."""
        self._failures()
        since = max(self._since_ms - _AGAIN_MS, 0)
        self._seen = {decision: ms for decision, ms in self._seen.items() if ms >= since}
        limit = _PAGE
        while True:
            with self._books.reading() as reading:
                page = reading.ended(after=self.active.after, since_ms=since, limit=limit)
            fresh = [past for past in page if past.entry.seq not in self._seen]
            for past in fresh:
                self._count(past)
            if len(page) < limit:
                return
            limit = _PAGE if fresh else 2 * limit
            since = self._since_ms = max(self._since_ms, _moment(page[-1]))

    def trial(self, *, now_ms: int, rule: Rule = RULE) -> Trial:
        elapsed = now_ms - self.active.since_ms
        return rule_on(self._new.samples(), self._old.samples(), elapsed_ms=elapsed, rule=rule)

    def _side(self, user: str, policy: str) -> _Side | None:
        """Where it counts; None for what another policy than the user's own has done."""
        new = self.active.is_new(self._seed, user)
        if policy != (self.active.policy if new else self.active.replaced):
            return None
        return self._new if new else self._old

    def _count(self, past: Past) -> None:
        entry, outcome = past
        assert outcome is not None  # noqa: S101 - it came to an end
        self._seen[entry.seq] = outcome.ms
        self._since_ms = max(self._since_ms, outcome.ms)
        side = self._side(entry.user_id, entry.policy)
        if side is None:
            return
        try:
            logged = decode(entry)
        except BadState:  # damaged: there is nothing to learn from it, and others go on
            return
        if logged.source:
            side.count("reward", entry.user_id, outcome.reward)
            side.count("dismissed", entry.user_id, float(outcome.event == "dismissed"))
            side.count("slow", entry.user_id, float(logged.took_us > SLOW_US))
            side.count("failed", entry.user_id, 0.0)

    def _failures(self) -> None:
        while True:
            with self._books.reading() as reading:
                upto = reading.last_seq()
                page = reading.logged(FAILED, after=self._failed_after, limit=_PAGE)
            for entry in page:
                side = self._side(entry.user_id, entry.policy)
                if side is not None:
                    side.count("failed", entry.user_id, 1.0)
            if len(page) < _PAGE:
                self._failed_after = max(upto, self._failed_after)
                return
            self._failed_after = page[-1].seq


def _moment(past: Past) -> int:
    return 0 if past.outcome is None else past.outcome.ms
