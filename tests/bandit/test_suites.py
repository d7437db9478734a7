"""Each shipped suite has its own policy state, on both kinds of database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tipbench.bandit import policies, upkeep
from tipbench.bandit.asks import Note, Remembered, Reset
from tipbench.bandit.books import POOLED
from tipbench.bandit.standing import standing
from tipbench.bandit.suites import use_suite
from tips_world import decided, make_tips, one, reward, score, seen, told

if TYPE_CHECKING:
    from collections.abc import Callable

    from tipbench.bandit.books import Books
    from tipbench.bandit.serving import Tips

    OpenBooks = Callable[[], Books]


def lessons(books: Books, policy: str = "egreedy-v2", user: str | None = "anna") -> float:
    """How much the policy has learned in the suite in use: the sum of its weights' sizes."""
    with books.reading() as reading:
        (found,) = standing(reading, [policies.make(policy)], user_id=user).policies
    return sum(map(abs, (found.weights or {}).values())) + sum(
        map(abs, (found.pooled_weights or {}).values())
    )


def learn(tips: Tips, number: int, policy: str = "egreedy-v2") -> None:
    made = decided(tips, score(request_id=f"r{number}", policy=policy))
    assert told(tips, reward(made)).learned


@pytest.mark.parametrize("policy", ["egreedy-v2", "hybrid"])
def test_another_suite_starts_from_its_own_state(books: Books, policy: str) -> None:
    """What was learned before belongs to the first suite; the second starts fresh; each keeps its own."""
    tips = make_tips(books)
    learn(tips, 1, policy)
    unshipped = lessons(books, policy)
    assert unshipped > 0
    use_suite(books, "tip")
    assert lessons(books, policy) == unshipped
    use_suite(books, "support")
    assert lessons(books, policy) == 0
    learn(tips, 2, policy)
    own = lessons(books, policy)
    assert own > 0
    use_suite(books, "tip")
    assert lessons(books, policy) == unshipped
    learn(tips, 3, policy)
    use_suite(books, "support")
    assert lessons(books, policy) == own


def test_a_new_suite_is_decided_like_a_new_user(books: Books, open_books: OpenBooks) -> None:
    """The scores under a new suite are those of a policy that knows nothing, in every open process."""
    tips, beside = make_tips(books), make_tips(open_books())
    for number in range(3):
        learn(tips, number)
        learn(beside, 10 + number)
    use_suite(books, "tip")
    known = [decided(each, score(request_id=f"known-{at}")).scores for at, each in enumerate((tips, beside))]
    use_suite(open_books(), "support")
    fresh = [decided(each, score(request_id=f"fresh-{at}")).scores for at, each in enumerate((tips, beside))]
    assert any(known[0].values())
    assert any(known[1].values())
    assert not any(fresh[0].values())
    assert not any(fresh[1].values())


@pytest.mark.parametrize("policy", ["egreedy-v2", "hybrid"])
def test_a_late_reward_teaches_the_suite_of_its_decision(
    books: Books, open_books: OpenBooks, policy: str
) -> None:
    """Also in a process that has never seen the decision, and beside rewards of the other suite."""
    tips = make_tips(books)
    learn(tips, 0, policy)
    use_suite(books, "tip")
    before = lessons(books, policy)
    late = decided(tips, score(request_id="late", policy=policy))
    use_suite(books, "support")
    other = decided(tips, score("ben", "other", policy=policy))
    elsewhere = make_tips(open_books())
    for answer in elsewhere.run([reward(late), reward(other)]):
        assert getattr(answer, "learned", None), answer
    assert lessons(books, policy, "ben") > 0
    support = lessons(books, policy, "anna")
    use_suite(books, "tip")
    assert lessons(books, policy) != before
    if policy == "egreedy-v2":  # it keeps nothing that users share
        assert support == 0
        assert lessons(books, policy, "ben") == 0
        assert seen(books, "anna") == 2


def test_a_reset_forgets_a_user_in_every_suite(books: Books) -> None:
    """A user who is forgotten is forgotten wherever something was learned about them."""
    tips = make_tips(books)
    learn(tips, 1)
    use_suite(books, "tip")
    use_suite(books, "support")
    learn(tips, 2)
    one(tips, Reset("anna"))
    for suite in ("support", "tip"):
        use_suite(books, suite)
        assert lessons(books) == 0


def test_a_migration_copies_the_state_of_the_suite_in_use(books: Books) -> None:
    """The other policy starts from what was learned in this suite; the other suite's state stays."""
    tips = make_tips(books)
    learn(tips, 1, "egreedy")
    use_suite(books, "tip")
    use_suite(books, "support")
    learn(tips, 2, "egreedy")
    done = upkeep.migrate(books, policies.make("egreedy"), policies.make("egreedy-v2"))
    assert (done.copied, done.kept) == (1, 0)
    assert lessons(books) == lessons(books, "egreedy") > 0
    use_suite(books, "tip")
    assert lessons(books) == 0


def test_a_learning_shadow_keeps_no_lesson_of_another_suite(books: Books) -> None:
    """A lesson of the earlier suite is dropped; one of the suite in use is stored for that suite."""
    tips = make_tips(books)
    use_suite(books, "tip")
    old = decided(tips, score(request_id="old")).decision_id
    use_suite(books, "support")
    new = decided(tips, score(request_id="new")).decision_id
    for lesson, body in ((old, b"old"), (new, b"new")):
        kept = (Remembered("anna", None, body), Remembered(POOLED, None, body))
        one(tips, Note("shadow:s", "", "", "s", memories=kept, lesson=lesson))
    with books.reading() as reading:
        assert reading.memories([("anna", "s"), ("anna", "s@support")]) == {("anna", "s@support"): b"new"}
