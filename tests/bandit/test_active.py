"""Which policy is active, in the books: who gets it, how it changes, and of two who change it, one does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from tipbench.bandit.active import CANARY, KEY, Active, Place, Step, change, decode
from tipbench.bandit.asks import Done, Remark
from tipbench.errors import BadState, Conflict
from tips_world import make_tips

if TYPE_CHECKING:
    from collections.abc import Callable

    from tipbench.bandit.books import Books

    OpenBooks = Callable[[], Books]

SEED = b"of the books"
USERS = [f"user-{number}" for number in range(2000)]


def step(what: str, policy: str = "hybrid") -> Step:
    return Step(ms=5, what=what, policy=policy, against="egreedy", share=0.1, by="ann", gate="g")


def promoted(
    policy: str = "hybrid", *, share: float = 0.1, since_ms: int = 5, on: Active | None = None
) -> Active:
    place = Place(policy=policy, version="1-x", since_ms=since_ms, gate="g")
    return (on or Active()).promoted(place, share=share, after=7, step=step("promoted", policy))


def test_a_share_of_the_users_get_the_new_one() -> None:
    """As many as the share says, always the same ones, and more where the share is larger."""
    some = {user for user in USERS if promoted().policy_for(SEED, user) == "hybrid"}
    assert 140 <= len(some) <= 260
    assert some == {user for user in USERS if promoted().is_new(SEED, user)}
    assert some < {user for user in USERS if promoted(share=0.5).is_new(SEED, user)}
    assert all(promoted().policy_for(SEED, user) == "egreedy" for user in USERS if user not in some)


def test_another_promotion_or_another_seed_begins_with_others() -> None:
    """Nobody is always the first to try what is new."""
    some = {user for user in USERS if promoted().is_new(SEED, user)}
    for other in (
        {user for user in USERS if promoted(since_ms=6).is_new(SEED, user)},
        {user for user in USERS if promoted().is_new(b"another", user)},
    ):
        assert len(some & other) < len(some) / 2


def test_completed_it_serves_everybody_and_can_be_gone_back_from() -> None:
    """Going back twice leads to where it began, and no further."""
    second = promoted("linucb", on=promoted().completed(step("completed")))
    assert (second.replaced, second.on_trial) == ("hybrid", True)
    once = second.rolled_back(step("rolled back"))
    assert (once.policy, once.version, once.on_trial, once.replaced) == ("hybrid", "1-x", False, "egreedy")
    twice = once.rolled_back(step("rolled back"))
    assert (twice.policy, twice.beneath) == ("egreedy", ())
    assert [one.what for one in twice.steps] == [
        "promoted",
        "completed",
        "promoted",
        "rolled back",
        "rolled back",
    ]
    assert twice.revision == 5


def test_it_is_read_as_it_was_written() -> None:
    """Nothing written is the first policy; what older versions wrote is read; what makes no sense is not."""
    assert decode(None) == Active()
    assert decode(promoted().encode()) == promoted()
    assert decode('{"policy": "hybrid", "replaced": "egreedy"}').policy == "hybrid"
    for wrong in ("hybrid", '{"policy": 3}', '{"share": 0}', '{"share": 0.5}', '{"share": 2}'):
        with pytest.raises(BadState, match="which policy is active"):
            decode(wrong)


def test_of_two_who_change_it_one_does(books: Books, open_books: OpenBooks) -> None:
    """The second, in whichever process, is told; the log has one step."""
    first, second = make_tips(books), make_tips(open_books())
    [done] = first.run([change(None, promoted("hybrid"))])
    assert isinstance(done, Done)
    for tips in (second, first):
        [refused] = tips.run([change(None, promoted("linucb"))])
        assert isinstance(refused, Conflict)
    with books.reading() as reading:
        was = reading.choices()[KEY]
        [entry] = reading.entries(after=0, limit=9)
    assert decode(was).policy == "hybrid"
    assert (entry.signal, entry.policy) == (CANARY, "hybrid")
    assert msgspec.msgpack.decode(entry.body, type=Step) == step("promoted")
    [done] = second.run([change(was, decode(was).completed(step("completed")))])
    assert isinstance(done, Done)


def test_two_changes_in_one_batch_are_as_if_one_came_after_the_other(books: Books) -> None:
    """The second finds what the first has written."""
    [one, other] = make_tips(books).run([change(None, promoted("hybrid")), change(None, promoted("linucb"))])
    assert isinstance(one, Done)
    assert isinstance(other, Conflict)


def test_a_remark_is_logged_and_changes_nothing_else(books: Books) -> None:
    """Its signal, user, policy and body stand in the log, and can be asked for by the signal."""
    tips = make_tips(books)
    [done] = tips.run([Remark("failed", "anna", "hybrid", b"why")])
    assert isinstance(done, Done)
    tips.run([Remark("other", "anna", "hybrid")])
    with books.reading() as reading:
        [entry] = reading.logged("failed", after=0, limit=9)
        assert reading.logged("failed", after=entry.seq, limit=9) == []
    assert (entry.user_id, entry.policy, entry.body) == ("anna", "hybrid", b"why")
