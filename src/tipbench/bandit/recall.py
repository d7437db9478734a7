"""What is remembered between transactions, and what changes within one.

Nothing that is remembered is ever changed in place: a transaction works on what it has looked up, and only
when it is on disk does that take the place of what was there. So a commit that fails costs nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tipbench.bandit.books import EVERYBODY, POOLED, Changes
from tipbench.bandit.decisions import recalled
from tipbench.bandit.policy import Memory
from tipbench.bandit.profiles import Profile
from tipbench.bandit.ridge_codec import decode_ridge
from tipbench.bandit.suites import owner_of_state, state_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tipbench.bandit.books import Entry, Event, MemoryKey, Outcome, Past, ShadowTotal, Total, Transaction
    from tipbench.bandit.decisions import Decision
    from tipbench.bandit.policy import Policy
    from tipbench.bandit.ridge import Ridge

Key = TypeVar("Key")
Value = TypeVar("Value")

_FLOOR = "floor"  # under which the number of the last reset of everybody is kept
_NOBODY = Profile()


class Recent(Generic[Key, Value]):
    """The values that were asked for last, no more than so many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        value = self._kept.get(key)
        if value is not None:
            self._kept.move_to_end(key)
        return value

    def keep(self, values: Iterable[tuple[Key, Value]]) -> None:
        kept = self._kept
        for key, value in values:
            kept[key] = value
            kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def drop(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._kept.pop(key, None)

    def clear(self) -> None:
        self._kept.clear()

    def __len__(self) -> int:
        return len(self._kept)


class Recall:
    """What a process remembers of its books. A memory of 12 dimensions takes about 2 kB."""

    def __init__(self, *, users: int = 20_000, decisions: int = 30_000) -> None:
        self.profiles: Recent[str, Profile] = Recent(users)
        self.ridges: Recent[MemoryKey, Ridge] = Recent(2 * users)
        self.decisions: Recent[str, Decision] = Recent(decisions)
        self.seq = -1
        self.floor = 0
        self.suite = ""

    def forget(self) -> None:
        for kept in (self.profiles, self.ridges, self.decisions):
            kept.clear()
        self.seq = -1

    def refresh(self, tx: Transaction) -> None:
        """See that nothing is remembered that somebody else may have changed."""
        if tx.stale or self.seq < 0:
            self.forget()
            self.seq = tx.last_seq()
            choices = tx.choices()
            self.floor = int(choices.get(_FLOOR, "0"))
            self.suite = owner_of_state(choices)


class Work:
    """One transaction's own view: what it looked up, and what it has changed so far."""

    def __init__(self, recall: Recall, tx: Transaction, *, now_ms: int) -> None:
        recall.refresh(tx)
        self.now_ms = now_ms
        self.floor = recall.floor
        self.seq = recall.seq
        self.suite = recall.suite
        self._recall = recall
        self._tx = tx
        self._found_profiles: dict[str, bytes] = {}
        self._found_ridges: dict[MemoryKey, bytes] = {}
        self._past: dict[str, Past] = {}
        self._repeats: set[tuple[int, str]] = set()
        self._profiles: dict[str, Profile] = {}
        self._changed_profiles: dict[str, Profile] = {}
        self._ridges: dict[MemoryKey, Ridge] = {}
        self._memories: dict[MemoryKey, bytes] = {}
        self._decisions: dict[str, Decision] = {}
        self._entries: list[Entry] = []
        self._events: list[Event] = []
        self._outcomes: list[Outcome] = []
        self._totals: dict[str, Total] = {}
        self._shadows: dict[str, ShadowTotal] = {}
        self._choices: dict[str, str] = {}
        self._forgotten: set[str] = set()

    # -- looked up, many at once, before the work begins

    def look_up_past(self, ids: Iterable[str]) -> None:
        unknown = _missing(dict.fromkeys(ids), self._recall.decisions, self._decisions)
        if unknown:
            self._past |= self._tx.decisions(unknown)

    def look_up_replies(self, ids: Sequence[str]) -> None:
        if ids:
            self._past |= self._tx.decisions(ids)

    def look_up_repeats(self, asked: Sequence[tuple[int, str]]) -> None:
        if asked:
            self._repeats = self._tx.repeats(asked)

    def look_up_users(self, users: Iterable[str], keys: Iterable[MemoryKey]) -> None:
        profiles = _missing(dict.fromkeys(users), self._recall.profiles, self._profiles)
        if profiles:
            self._found_profiles = self._tx.profiles(profiles)
        ridges = _missing(dict.fromkeys(keys), self._recall.ridges, self._ridges)
        if ridges:
            self._found_ridges = self._tx.memories(ridges)

    # -- what holds now

    def past(self, decision_id: str) -> Past | None:
        return self._past.get(decision_id)

    def decision(self, decision_id: str) -> Decision | None:
        """A decision by its id, from before or of this very transaction."""
        known = self._decisions.get(decision_id)
        if known is None and decision_id in self._past:
            known = self._decisions[decision_id] = recalled(self._past[decision_id])
        return known

    def floor_of(self, user: str) -> int:
        """The last reset of the user, or of everybody: nothing up to it teaches that user's memories."""
        return max(self.profile(user).floor, self.floor)

    def told(self, decision: Decision, reward_id: str) -> bool:
        return (decision.seq, reward_id) in self._repeats

    def profile(self, user: str) -> Profile:
        known = self._profiles.get(user)
        if known is None:
            body = None if self._lost(user) else self._found_profiles.get(user)
            what = f"the profile of user {user!r}"
            known = self._profiles[user] = _NOBODY if body is None else Profile.decode(body, what=what)
        return known

    def memory(self, policy: Policy, user: str, fresh: Memory, suite: str) -> Memory:
        key = state_key(policy.name, suite)
        own = None if fresh.own is None else self._ridge((user, key), fresh.own)
        pooled = None if fresh.pooled is None else self._ridge((POOLED, key), fresh.pooled)
        return Memory(own=own, pooled=pooled)

    def _ridge(self, key: MemoryKey, fresh: Ridge) -> Ridge:
        known = self._ridges.get(key)
        if known is None:
            body = None if self._lost(key[0]) else self._found_ridges.get(key)
            known = self._ridges[key] = (
                fresh if body is None else decode_ridge(body, dims=fresh.dims, what=_named(key))
            )
        return known

    def _lost(self, user: str) -> bool:
        return user in self._forgotten or EVERYBODY in self._forgotten

    # -- what changes

    def log(self, entry: Entry) -> None:
        assert entry.seq == self.seq + 1  # noqa: S101 - the log has no gaps
        self.seq = entry.seq
        self._entries.append(entry)

    def keep_decision(self, decision_id: str, decision: Decision) -> None:
        self._decisions[decision_id] = decision

    def keep_past(self, past: Past) -> None:
        self._past[past.entry.decision_id] = past

    def keep_profile(self, user: str, profile: Profile) -> None:
        self._profiles[user] = self._changed_profiles[user] = profile

    def keep_ridge(self, key: MemoryKey, ridge: Ridge, body: bytes) -> None:
        self._ridges[key] = ridge
        self._memories[key] = body

    def keep_encoded(self, key: MemoryKey, body: bytes) -> None:
        """What somebody else has learned, who will read it themselves."""
        self._ridges.pop(key, None)
        self._memories[key] = body

    def encoded(self, key: MemoryKey) -> bytes | None:
        """What is kept under a key, by whichever process."""
        if key in self._memories or self._forgotten & {EVERYBODY, key[0]}:
            return self._memories.get(key)
        return self._tx.memories([key]).get(key)

    def tell(self, event: Event, outcome: Outcome | None) -> None:
        self._events.append(event)
        self._repeats.add((event.decision, event.reward_id))
        if outcome is not None:
            self._outcomes.append(outcome)

    def count(self, more: Total) -> None:
        was = self._totals.get(more.policy)
        self._totals[more.policy] = more if was is None else was.plus(more)

    def count_shadow(self, more: ShadowTotal) -> None:
        was = self._shadows.get(more.signal)
        self._shadows[more.signal] = more if was is None else was.plus(more)

    def chosen(self, name: str) -> str | None:
        """What is kept under a name, by whichever process."""
        return self._choices[name] if name in self._choices else self._tx.choices().get(name)

    def choose(self, name: str, value: str) -> None:
        self._choices[name] = value

    def forget(self, user: str) -> None:
        """Drop what is known of a user, or of everybody; the last entry logged is the mark."""
        self._forgotten.add(user)
        for kept in (self._profiles, self._changed_profiles):
            _without(kept, user, lambda key: key)
        for kept_by in (self._ridges, self._memories):
            _without(kept_by, user, lambda key: key[0])
        if user == EVERYBODY:
            self.floor = self.seq
            self._choices[_FLOOR] = str(self.seq)
        else:
            self.keep_profile(user, Profile(floor=self.seq))

    # -- and at the end

    def write(self) -> None:
        self._tx.write(
            Changes(
                entries=self._entries,
                events=self._events,
                outcomes=self._outcomes,
                profiles={user: profile.encode() for user, profile in self._changed_profiles.items()},
                memories=self._memories,
                totals=[*self._totals.values()],
                shadows=[*self._shadows.values()],
                choices=self._choices,
                forgotten=frozenset(self._forgotten),
            )
        )

    def remember(self) -> None:
        """It is on disk: from now on this is what holds."""
        recall = self._recall
        if EVERYBODY in self._forgotten:
            recall.forget()
        elif self._forgotten:
            recall.ridges.clear()
        recall.seq, recall.floor = self.seq, self.floor
        recall.profiles.keep(self._profiles.items())
        recall.ridges.drop(self._memories)
        recall.ridges.keep(self._ridges.items())
        recall.decisions.keep(self._decisions.items())


def _named(key: MemoryKey) -> str:
    user, policy = key
    return f"what {policy} has learned {'about all users' if user == POOLED else f'about user {user!r}'}"


def _missing(keys: Iterable[Key], recent: Recent[Key, Value], found: dict[Key, Value]) -> list[Key]:
    """Those that are not remembered; the others are put where the work finds them."""
    missing = []
    for key in keys:
        value = recent.get(key)
        if value is None:
            missing.append(key)
        else:
            found[key] = value
    return missing


def _without(kept: dict[Key, Any], user: str, user_of: Callable[[Key], str]) -> None:
    for key in [key for key in kept if user in {EVERYBODY, user_of(key)}]:
        del kept[key]
