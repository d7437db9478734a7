"""What is counted for a canary, out of books of either kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tipbench.bandit.active import Active, Place, Step, failure
from tipbench.bandit.asked import ScoreReply
from tipbench.bandit.asks import Score
from tipbench.bandit.canary_watch import CanaryWatch
from tipbench.errors import PolicyFailed
from tips_world import Clock, make_tips, only, request, reward

if TYPE_CHECKING:
    from tipbench.bandit.books import Books
    from tipbench.bandit.canary import Finding
    from tipbench.bandit.serving import Tips

USERS = [f"u{number}" for number in range(30)]


def on_trial(books: Books) -> Active:
    with books.reading() as reading:
        after = reading.last_seq()
    step = Step(ms=0, what="promoted", policy="egreedy-v2", against="egreedy", share=0.5, by="ann")
    return Active().promoted(Place(policy="egreedy-v2"), share=0.5, after=after, step=step)


def serve(tips: Tips, active: Active, *, source: str = "given", wrong: bool = False) -> list[ScoreReply]:
    """A tip for everybody, by the policy of their side; `wrong`: by that of the other."""
    seed = tips.books.seed()
    names = {active.policy: active.replaced, active.replaced: active.policy}
    sides = [active.policy_for(seed, user) for user in USERS]
    asks = [
        Score(names[side] if wrong else side, request(user), source=source)
        for user, side in zip(USERS, sides, strict=True)
    ]
    return only(ScoreReply, tips.run(asks))


def found(watch: CanaryWatch) -> dict[str, Finding]:
    watch.catch_up()
    return {one.metric: one for one in watch.trial(now_ms=0).findings}


def counts(watch: CanaryWatch) -> tuple[int, int]:
    one = found(watch)["reward"]
    return one.new.count, one.old.count


def test_outcomes_count_once_when_they_come(books: Books) -> None:
    """By side and event, however often one looks, also those that come long after the decision."""
    clock = Clock()
    tips = make_tips(books, "egreedy", "egreedy-v2", clock=clock)
    watch = CanaryWatch(books, active := on_trial(books))
    served = serve(tips, active)
    assert counts(watch) == (0, 0)
    tips.run([reward(one, event="dismissed") for one in served[:20]])
    new = sum(one.policy == "egreedy-v2" for one in served[:20])
    assert counts(watch) == counts(watch) == (new, 20 - new)
    clock.now_ms += 100_000
    tips.run([reward(one) for one in served[20:]])
    all_new = sum(one.policy == "egreedy-v2" for one in served)
    assert counts(watch) == (all_new, 30 - all_new) == counts(CanaryWatch(books, active))
    assert found(watch)["dismissed"].new.count == all_new


def test_what_is_no_part_of_it_is_left_out(books: Books) -> None:
    """What was served before, what somebody asked one policy for, and what the other side's policy did."""
    tips = make_tips(books, "egreedy", "egreedy-v2")
    before = serve(tips, on_trial(books))
    watch = CanaryWatch(books, active := on_trial(books))
    others = [*serve(tips, active, source=""), *serve(tips, active, wrong=True)]
    tips.run([reward(one) for one in (*before, *others)])
    assert counts(watch) == (0, 0)


def test_failures_count_for_the_side_of_the_user(books: Books) -> None:
    """A policy that fails has neither decision nor outcome, but a remark in the log."""
    tips = make_tips(books, "egreedy", "egreedy-v2")
    watch = CanaryWatch(books, active := on_trial(books))
    tips.run([failure(active.policy, user, PolicyFailed("no")) for user in USERS])
    tips.run([reward(one) for one in serve(tips, active)])
    failed = found(watch)["failed"]
    assert failed == found(watch)["failed"]
    assert (failed.new.mean, failed.old.mean) == (0.5, 0.0)


def test_more_of_one_moment_than_a_page_is_read_to_the_end(books: Books) -> None:
    """Where the clock stands still, everything has the same moment; nothing is missed, and it ends."""
    tips = make_tips(books, "egreedy", "egreedy-v2")
    watch = CanaryWatch(books, active := on_trial(books))
    for _ in range(40):
        tips.run([reward(one) for one in serve(tips, active)])
    assert sum(counts(watch)) == 1200
    tips.run([reward(one) for one in serve(tips, active)])
    assert sum(counts(watch)) == 1230


def test_a_damaged_decision_is_passed_over(books: Books) -> None:
    """It teaches nothing, and the others count."""
    tips = make_tips(books, "egreedy", "egreedy-v2")
    watch = CanaryWatch(books, active := on_trial(books))
    tips.run([reward(one) for one in serve(tips, active)])
    with books.transaction() as tx:
        tx._run("UPDATE log SET body = ? WHERE seq = ?", (b"broken", active.after + 1))  # type: ignore[attr-defined]
    assert sum(counts(watch)) == 29
