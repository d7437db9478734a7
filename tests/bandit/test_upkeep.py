"""State copied from one policy to another, the log compacted, exported and summed up."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tipbench.bandit import policies
from tipbench.bandit.asks import Note, Reset
from tipbench.bandit.features import FEATURES
from tipbench.bandit.log_export import CSV_COLUMNS, export
from tipbench.bandit.standing import standing
from tipbench.bandit.upkeep import compact, migrate
from tipbench.errors import BadInput, NotFound
from tips_world import Clock, decided, make_tips, one, reward, ridge, score, seen, told

if TYPE_CHECKING:
    from collections.abc import Callable

    from tipbench.bandit.books import Books
    from tipbench.bandit.serving import Tips

    OpenBooks = Callable[[], Books]

V1, V2 = policies.make("egreedy"), policies.make("egreedy-v2")


def learned(tips: Tips, user: str, *, policy: str = "egreedy", times: int = 3) -> None:
    for number in range(times):
        told(tips, reward(decided(tips, score(user, f"{policy}-{number}", policy)), worth=number / 3))


def test_a_migration_keeps_every_weight(books: Books) -> None:
    """The first seven weights are the same numbers, the new ones 0; the service goes on beside it."""
    tips = make_tips(books)
    users = [f"u{n}" for n in range(12)]
    for user in users:
        learned(tips, user)
    done = migrate(books, V1, V2)
    assert (done.copied, done.kept) == (12, 0)
    for user in users:
        old, new = ridge(books, user, "egreedy", dims=7), ridge(books, user)
        assert old is not None
        assert new is not None
        assert new.weights[:7].tobytes() == old.weights.tobytes()
        assert not new.weights[7:].any()
        assert new.inverse[:7, :7].tobytes() == old.inverse.tobytes()
        assert np.array_equal(new.inverse[7:, 7:], np.eye(5))
        assert int(new.seen) == 3
    learned(tips, "u0", policy="egreedy-v2", times=1)
    assert (seen(books, "u0"), seen(books, "u0", "egreedy", dims=7)) == (4, 3)


def test_a_migration_overwrites_nothing_unasked(books: Books) -> None:
    """A user with state in the new policy keeps it, unless it is to be replaced; twice is as once."""
    tips = make_tips(books)
    learned(tips, "anna")
    learned(tips, "bert")
    learned(tips, "bert", policy="egreedy-v2", times=1)
    assert vars(migrate(books, V1, V2)) == {"copied": 1, "kept": 1}
    assert vars(migrate(books, V1, V2)) == {"copied": 0, "kept": 2}
    assert seen(books, "bert") == 1
    assert vars(migrate(books, V1, V2, replace=True)) == {"copied": 2, "kept": 0}
    assert seen(books, "bert") == 3


@pytest.mark.parametrize(
    ("source", "target"),
    [("egreedy-v2", "egreedy"), ("egreedy", "egreedy"), ("random", "egreedy"), ("hybrid", "egreedy-v2")],
)
def test_a_migration_that_would_lose_something_is_refused(books: Books, source: str, target: str) -> None:
    """Into fewer dimensions, into itself, from a policy without state or with a part of one."""
    with pytest.raises(BadInput):
        migrate(books, policies.make(source), policies.make(target))


def test_compaction_drops_the_old_and_keeps_what_was_learned(books: Books) -> None:
    """Decisions before the moment are gone with their events; memories, profiles and totals are not."""
    clock = Clock()
    tips = make_tips(books, clock=clock)
    old = decided(tips, score("anna", "old"))
    told(tips, reward(old))
    clock.now_ms += 500
    new = decided(tips, score("anna", "new"))
    assert compact(books, before_ms=clock.now_ms) == 1
    with pytest.raises(NotFound):
        told(tips, reward(old))
    assert told(tips, reward(new)).learned
    assert seen(books, "anna") == 2
    with books.reading() as reading:
        assert reading.totals()[0].decisions == 2
    clock.now_ms += 500
    assert compact(books, before_ms=clock.now_ms) == 0
    assert decided(tips, score("anna", "newer")).decision_id
    with books.reading() as reading:
        assert reading.last_seq() == 3


def test_compaction_keeps_the_young_whatever_the_clock_did(books: Books) -> None:
    """An entry that is young enough is kept, though older-looking ones came after it."""
    clock = Clock()
    tips = make_tips(books, clock=clock)
    start = clock.now_ms
    for moment in (0, 1000, 10):
        clock.now_ms = start + moment
        decided(tips, score("anna", f"at {moment}"))
    assert compact(books, before_ms=start + 500) == 1
    with books.reading() as reading:
        assert [past.entry.seq for past in reading.served(after=0, limit=9)] == [2, 3]


def test_an_export_has_propensities_and_missing_rewards(books: Books) -> None:
    """Every decision in both forms, with the pipeline's names; no event is no reward."""
    tips = make_tips(books)
    replies = [
        decided(tips, score("an,na\n", f"q{n}", name)) for n, name in enumerate(("egreedy", "egreedy-v2"))
    ]
    told(tips, reward(replies[0], event="dismissed"))
    one(tips, Note("shadow:s", replies[0].decision_id, "u", "s", b"x"))
    lines = [json.loads(line) for line in export(books, form="jsonl")]
    rows = [*csv.DictReader(io.StringIO("".join(export(books, form="csv"))))]
    assert [*rows[0]] == [*CSV_COLUMNS]
    for line, row, reply in zip(lines, rows, replies, strict=True):
        assert line["item_id"] == row["item_id"] == reply.tip_id
        assert line["pscore"] == float(row["propensity_score"]) == reply.propensities[reply.tip_id]
        assert dict(zip(line["candidates"], line["pi_b"], strict=True)) == reply.propensities
        assert dict(zip(line["candidates"], line["scores"], strict=True)) == reply.scores
        assert "expected_reward" not in line
        assert line["candidates"][line["action"]] == reply.tip_id
        assert line["user_id"] == row["user_id"] == "an,na\n"
        assert line["context"] == line["action_context"][line["action"]]
        assert len(line["context"]) == FEATURES[reply.feature_version].dims
        assert [float(row[f"user_feature_{n}"]) for n in range(len(line["context"]))] == line["context"]
        assert line["position"] == 0
        assert line["timestamp"].endswith("+00:00")
    assert [(line["reward"], line["click"], line["event"]) for line in lines] == [
        (0.0, 0.0, "dismissed"),
        (None, None, None),
    ]
    assert [row["reward"] for row in rows] == ["0.0", ""]
    assert [json.loads(line)["policy"] for line in export(books, form="jsonl", policy="egreedy")] == [
        "egreedy"
    ]


def test_statistics_of_a_user_and_of_all(books: Books) -> None:
    """Counts, shares and named weights; what is not known is None."""
    tips = make_tips(books)
    made = [policies.make(name) for name in ("egreedy-v2", "hybrid", "random")]
    with books.reading() as reading:
        empty = standing(reading, made)
    assert [(p.decisions, p.mean_reward, p.exploration_share) for p in empty.policies] == [
        (0, None, None)
    ] * 3
    learned(tips, "anna", policy="egreedy-v2")
    learned(tips, "bert", policy="hybrid", times=2)
    decided(tips, score("anna"))
    one(tips, Note("shadow:s", "d", "anna", "s", b"x", agreed=True))
    with books.reading() as reading:
        overall, anna = standing(reading, made), standing(reading, made, user_id="anna")
    assert [(p.policy, p.decisions, p.rewards) for p in overall.policies] == [
        ("egreedy-v2", 4, 3),
        ("hybrid", 2, 2),
        ("random", 0, 0),
    ]
    assert overall.policies[0].mean_reward == pytest.approx((0 + 1 / 3 + 2 / 3) / 3)
    assert (overall.policies[0].weights_of, overall.policies[1].weights_of) == (1, 1)
    assert (overall.policies[2].weights, overall.policies[2].weights_of) == (None, 0)
    assert overall.policies[1].pooled_weights is not None
    assert [*overall.policies[1].pooled_weights] == [*FEATURES["v2"].names]
    assert [(p.decisions, p.rewards) for p in anna.policies] == [(4, 3), (0, 0), (0, 0)]
    assert anna.policies[0].weights is not None
    kept = ridge(books, "anna")
    assert kept is not None
    assert [*anna.policies[0].weights.values()] == kept.weights.tolist()
    assert [(s.signal, s.agreement) for s in overall.shadows] == [("shadow:s", 1.0)]
    one(tips, Reset("anna"))
    with books.reading() as reading:
        assert standing(reading, made, user_id="anna").policies[0].decisions == 0


def test_how_a_shadow_agreed_on_one_user(books: Books) -> None:
    """With a user, a shadow's decisions are those on what this user was served; a reset forgets them."""
    tips = make_tips(books)
    tips.run([score(user, "q") for user in ("anna", "bert", "carl")])
    told_of = [("anna", True), ("anna", False), ("anna", True), ("bert", False)]
    tips.run([Note("shadow:s", "d", user, "s", b"x", agreed=agreed) for user, agreed in told_of])
    one(tips, Note("shadow:s", "", "", "s", dropped=5))
    decided(tips, score("anna"))
    with books.reading() as reading:
        found = [standing(reading, [], user_id=user).shadows[0] for user in (None, "anna", "bert", "carl")]
    assert [(one.decisions, one.agreed, one.dropped) for one in found] == [
        (4, 2, 5),
        (3, 2, None),
        (1, 0, None),
        (0, 0, None),
    ]
    assert found[3].agreement is None
    with books.reading() as reading, pytest.raises(NotFound, match="no such user 'nobody'"):
        standing(reading, [], user_id="nobody")
    one(tips, Reset("anna"))
    with books.reading() as reading:
        assert standing(reading, [], user_id="anna").shadows[0].decisions == 0
