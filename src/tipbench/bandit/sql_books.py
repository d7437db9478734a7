"""The statements, in the SQL that SQLite and PostgreSQL share. Many rows go into one statement.

That is for speed twice over: SQLite lets go of Python's lock around every statement, and a busy event loop
may then keep it for milliseconds; PostgreSQL takes a round trip for each.
"""

# ruff: noqa: S608 - what is put together is written here; values go beside the statement

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from tipbench.bandit.books import (
    EVERYBODY,
    SERVE,
    Entry,
    Outcome,
    Past,
    ShadowTotal,
    Total,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tipbench.bandit.books import Changes, MemoryKey

Row = tuple[Any, ...]
Run = Callable[[str, Sequence[Any]], list[Row]]

TABLES = frozenset(
    {"log", "events", "outcomes", "memories", "profiles", "totals", "shadows", "choices", "meta"}
)
_MOST_ROWS = 64
_ENTRY = "l.seq, l.ms, l.signal, l.decision_id, l.user_id, l.policy, l.body"
_PAST = (
    f"SELECT {_ENTRY}, o.decision, o.reward, o.event, o.ms FROM log l "
    "LEFT JOIN outcomes o ON o.decision = l.seq"
)
_UPSERTS = {
    "profiles": "ON CONFLICT (user_id) DO UPDATE SET body = excluded.body",
    "served": "ON CONFLICT (key) DO UPDATE SET seq = excluded.seq",
    "memories": "ON CONFLICT (user_id, policy) DO UPDATE SET body = excluded.body",
    "choices": "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
    "totals": "ON CONFLICT (policy) DO UPDATE SET decisions = totals.decisions + excluded.decisions, "
    "explored = totals.explored + excluded.explored, rewards = totals.rewards + excluded.rewards, "
    "reward_sum = totals.reward_sum + excluded.reward_sum",
    "shadows": "ON CONFLICT (signal) DO UPDATE SET decisions = shadows.decisions + excluded.decisions, "
    "agreed = shadows.agreed + excluded.agreed, dropped = shadows.dropped + excluded.dropped",
}


def schema(*, text: str, whole: str, real: str, blob: str, clustered: str) -> list[str]:
    """The tables. `clustered` keeps the rows of a table in the order of its key, where that must be said.

    What is told about decisions is keyed by their number: what is new then stands together on a few pages.
    """
    return [
        f"""CREATE TABLE log (seq {whole} PRIMARY KEY, ms {whole} NOT NULL, signal {text} NOT NULL,
            decision_id {text} NOT NULL, user_id {text} NOT NULL, policy {text} NOT NULL,
            body {blob} NOT NULL)""",
        f"""CREATE TABLE events (decision {whole} NOT NULL, reward_id {text} NOT NULL, event {text} NOT NULL,
            reward {real}, dwell_s {real}, ms {whole} NOT NULL, learned {whole} NOT NULL,
            PRIMARY KEY (decision, reward_id)) {clustered}""",
        f"""CREATE TABLE outcomes (decision {whole} PRIMARY KEY, reward {real} NOT NULL,
            event {text} NOT NULL, ms {whole} NOT NULL)""",
        f"""CREATE TABLE memories (user_id {text} NOT NULL, policy {text} NOT NULL, body {blob} NOT NULL,
            PRIMARY KEY (user_id, policy))""",
        f"CREATE TABLE profiles (user_id {text} PRIMARY KEY, body {blob} NOT NULL) {clustered}",
        f"""CREATE TABLE totals (policy {text} PRIMARY KEY, decisions {whole} NOT NULL,
            explored {whole} NOT NULL, rewards {whole} NOT NULL, reward_sum {real} NOT NULL)""",
        f"""CREATE TABLE shadows (signal {text} PRIMARY KEY, decisions {whole} NOT NULL,
            agreed {whole} NOT NULL, dropped {whole} NOT NULL)""",
        f"CREATE TABLE choices (name {text} PRIMARY KEY, value {text} NOT NULL)",
        f"CREATE TABLE meta (name {text} PRIMARY KEY, value {blob} NOT NULL)",
    ]


class SqlReading:
    """Every question of `Reading`, asked through one function that runs a statement."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def last_seq(self) -> int:
        return int(self._run("SELECT coalesce(max(seq), 0) FROM log", ())[0][0])

    def decisions(self, ids: Sequence[str]) -> dict[str, Past]:
        return self._served_where("l.decision_id IN", ids)

    def repeats(self, asked: Sequence[tuple[int, str]]) -> set[tuple[int, str]]:
        found = (self._run(_repeats(len(some)), [*chain(*some)]) for some in padded(asked))
        return {(int(decision), reward_id) for decision, reward_id in chain(*found)}

    def profiles(self, users: Sequence[str]) -> dict[str, bytes]:
        return {
            user: bytes(body)
            for user, body in self._among("SELECT user_id, body FROM profiles WHERE user_id IN", users)
        }

    def memories(self, keys: Sequence[MemoryKey]) -> dict[MemoryKey, bytes]:
        wanted = "SELECT user_id, policy, body FROM memories WHERE policy = ? AND user_id IN"
        found: dict[MemoryKey, bytes] = {}
        for policy in sorted({policy for _, policy in keys}):
            users = [user for user, of in keys if of == policy]
            found |= {(u, p): bytes(body) for u, p, body in self._among(wanted, users, policy)}
        return found

    def memories_of(self, policy: str, *, after: str | None, limit: int) -> list[tuple[str, bytes]]:
        # The shared one has the empty name and comes first: nothing stands before it.
        behind = "user_id >= ?" if after is None else "user_id > ?"
        rows = self._run(
            f"SELECT user_id, body FROM memories WHERE policy = ? AND {behind} ORDER BY user_id LIMIT ?",
            (policy, after or "", limit),
        )
        return [(user, bytes(body)) for user, body in rows]

    def entries(self, *, after: int, limit: int) -> list[Entry]:
        rows = self._run(
            f"SELECT {_ENTRY} FROM log l WHERE l.seq > ? ORDER BY l.seq LIMIT ?",
            (after, limit),
        )
        return [_entry(row) for row in rows]

    def served(self, *, after: int, limit: int) -> list[Past]:
        where = f"WHERE l.signal = '{SERVE}' AND l.seq > ? ORDER BY l.seq LIMIT ?"
        return [_past(row) for row in self._run(f"{_PAST} {where}", (after, limit))]

    def ended(self, *, after: int, since_ms: int, limit: int) -> list[Past]:
        rows = self._run(
            f"SELECT {_ENTRY}, o.decision, o.reward, o.event, o.ms "
            "FROM outcomes o JOIN log l ON l.seq = o.decision "
            "WHERE o.decision > ? AND o.ms >= ? ORDER BY o.ms, o.decision LIMIT ?",
            (after, since_ms, limit),
        )
        return [_past(row) for row in rows]

    def logged(self, signal: str, *, after: int, limit: int) -> list[Entry]:
        rows = self._run(
            f"SELECT {_ENTRY} FROM log l WHERE l.seq > ? AND l.signal = ? ORDER BY l.seq LIMIT ?",
            (after, signal, limit),
        )
        return [_entry(row) for row in rows]

    def said(self, signal: str, *, of: Entry, within: int) -> Entry | None:
        rows = self._run(
            f"SELECT {_ENTRY} FROM log l WHERE l.seq > ? AND l.seq <= ? "
            "AND l.signal = ? AND l.decision_id = ? ORDER BY l.seq LIMIT 1",
            (of.seq, of.seq + within, signal, of.decision_id),
        )
        return _entry(rows[0]) if rows else None

    def totals(self) -> list[Total]:
        rows = self._run(
            "SELECT policy, decisions, explored, rewards, reward_sum FROM totals ORDER BY policy", ()
        )
        return [Total(*row) for row in rows]

    def shadows(self) -> list[ShadowTotal]:
        rows = self._run("SELECT signal, decisions, agreed, dropped FROM shadows ORDER BY signal", ())
        return [ShadowTotal(*row) for row in rows]

    def choices(self) -> dict[str, str]:
        return dict(self._run("SELECT name, value FROM choices ORDER BY name", ()))

    def count_before(self, ms: int) -> tuple[int, int]:
        # All up to the first that is young enough: where the clock was once set back, too many are kept.
        young = self._run("SELECT seq FROM log WHERE ms >= ? ORDER BY seq LIMIT 1", (ms,))
        upto = young[0][0] - 1 if young else self.last_seq()
        return int(self._run("SELECT count(*) FROM log WHERE seq <= ?", (upto,))[0][0]), int(upto)

    def _served_where(self, among: str, keys: Sequence[Any]) -> dict[str, Past]:
        rows = self._among(f"{_PAST} WHERE l.signal = '{SERVE}' AND {among}", keys)
        return {past.entry.decision_id: past for past in map(_past, rows)}

    def _among(self, select: str, keys: Sequence[Any], *before: str) -> Iterator[Row]:
        for some in padded(keys):
            yield from self._run(f"{select} ({marks(len(some))})", (*before, *some))


class SqlTransaction(SqlReading):
    """What `Transaction` writes."""

    def __init__(self, run: Run, *, stale: bool) -> None:
        super().__init__(run)
        self.stale = stale

    def write(self, changes: Changes) -> None:
        for user in sorted(changes.forgotten):
            self._forget(user)
        self._insert("log", changes.entries)
        self._insert("events", changes.events)
        self._insert("outcomes", changes.outcomes)
        self._keep(changes)
        self._insert("memories", [(*key, body) for key, body in changes.memories.items()])
        self._insert("totals", changes.totals)
        self._insert("shadows", changes.shadows)
        self._insert("choices", [*changes.choices.items()])

    def drop(self, *, upto: int, limit: int) -> int:
        until = self._until(upto, limit)
        gone = int(self._run("SELECT count(*) FROM log WHERE seq <= ?", (until,))[0][0])
        for table, key in (("events", "decision"), ("outcomes", "decision"), ("log", "seq")):
            self._run(f"DELETE FROM {table} WHERE {key} <= ?", (until,))
        return gone

    def _until(self, upto: int, limit: int) -> int:
        last = self._run("SELECT max(seq) FROM (SELECT seq FROM log ORDER BY seq LIMIT ?) oldest", (limit,))
        # The newest entry stays: it is what the next number is counted from.
        return min(int(last[0][0] or 0), upto, self.last_seq() - 1)

    def _forget(self, user: str) -> None:
        where, keys = ("", ()) if user == EVERYBODY else ("WHERE user_id = ?", (user,))
        for table in ("memories", "profiles"):
            self._run(f"DELETE FROM {table} {where}", keys)

    def _keep(self, changes: Changes) -> None:
        self._insert("profiles", [*changes.profiles.items()])

    def _insert(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        insert(self._run, table, rows)


def insert(run: Run, table: str, rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows, or have them take the place of those with the same keys."""
    for some in _chunks(rows):
        run(_insert(table, len(some), len(some[0])), [*chain.from_iterable(some)])


def _entry(row: Row) -> Entry:
    seq, ms, signal, decision_id, user_id, policy, body = row
    return Entry(seq, ms, signal, decision_id, user_id, policy, bytes(body))


def _past(row: Row) -> Past:
    return Past(_entry(row[:7]), None if row[7] is None else Outcome(*row[7:]))


def _chunks(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """The rows in pieces whose sizes are powers of two, so that there are few different statements."""
    start = 0
    while start < len(rows):
        size = min(_MOST_ROWS, 1 << ((len(rows) - start).bit_length() - 1))
        yield rows[start : start + size]
        start += size


def padded(keys: Sequence[Any]) -> Iterable[list[Any]]:
    """As `_chunks`, but the last piece is filled up with its last key: to ask twice does no harm."""
    for start in range(0, len(keys), _MOST_ROWS):
        some = [*keys[start : start + _MOST_ROWS]]
        yield some + [some[-1]] * ((1 << (len(some) - 1).bit_length()) - len(some))


@lru_cache(maxsize=1024)
def marks(many: int) -> str:
    return ", ".join("?" * many)


@lru_cache(maxsize=1024)
def _insert(table: str, rows: int, columns: int) -> str:
    values = ", ".join([f"({marks(columns)})"] * rows)
    return f"INSERT INTO {table} VALUES {values} {_UPSERTS.get(table, '')}"


@lru_cache(maxsize=64)
def _repeats(many: int) -> str:
    values = ", ".join(["(?, ?)"] * many)
    # A cross join, so that SQLite looks each of the few up instead of reading all that was ever told.
    return (
        f"WITH asked (decision, reward_id) AS (VALUES {values}) "
        "SELECT e.decision, e.reward_id FROM asked a CROSS JOIN events e "
        "WHERE e.decision = a.decision AND e.reward_id = a.reward_id"
    )
