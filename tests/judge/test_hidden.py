from __future__ import annotations

from collections import Counter

import pytest

from batch_samples import CONTEXTS, LEVELS, anchor, bank, dice
from tipbench.judge.hidden import Usage, draw_anchors

ROOM = dict.fromkeys(CONTEXTS, 50)
FRESH = Usage(recent=())


@pytest.mark.parametrize("seed", range(20))
def test_anchors_spread_over_scenarios_and_over_the_range(seed: int) -> None:
    """Eight anchors of four scenarios: two of each, with low, middling and high ones among them."""
    drawn = draw_anchors(bank(), n=8, room=ROOM, usage=FRESH, rng=dice(seed))
    totals = [sum(one.reference.values()) for one in drawn]
    assert set(Counter(one.scenario_id for one in drawn).values()) == {2}
    assert min(totals) <= 6
    assert max(totals) >= 12
    assert len({one.id for one in drawn}) == 8
    assert len(set(totals)) >= 3


def test_anchors_rest_for_three_batches() -> None:
    """One that was shown in the last three batches waits; one shown four batches ago does not."""
    anchors = bank()
    old, lately = [one.id for one in anchors[:10]], [one.id for one in anchors[10:]]
    usage = Usage(recent=[old, lately[:4], lately[4:7], lately[7:]])
    drawn = draw_anchors(anchors, n=8, room=ROOM, usage=usage, rng=dice())
    assert {one.id for one in drawn} <= set(old)


def test_only_the_last_three_batches_count() -> None:
    """An anchor is as good as new after three batches without it."""
    usage = Usage(recent=[["a", "b"], ["b"], ["c"], ["d"]])
    assert [usage.age(name) for name in "abcdz"] == [0, 1, 2, 3, 0]


def test_the_longest_rested_fill_up() -> None:
    """Where the rested ones do not suffice, those shown longest ago come next, and only as many as needed."""
    anchors = [anchor("bakery", total) for total in (15.0, 12.0, 9.0, 6.0, 3.0)]
    usage = Usage(recent=[["bakery-15"], ["bakery-12"], ["bakery-9", "bakery-15"]])
    drawn = draw_anchors(anchors, n=4, room=ROOM, usage=usage, rng=dice())
    assert drawn[2].id == "bakery-12"
    assert drawn[3].id in {"bakery-9", "bakery-15"}
    assert {one.id for one in drawn[:2]} == {"bakery-6", "bakery-3"}


def test_there_are_no_more_than_there_are() -> None:
    """A small bank, little room or no bank at all gives fewer anchors."""
    assert len(draw_anchors(bank(LEVELS[:1]), n=8, room=ROOM, usage=FRESH, rng=dice())) == 4
    assert len(draw_anchors(bank(), n=8, room={"bakery": 1, "clinic": 2}, usage=FRESH, rng=dice())) == 3
    assert draw_anchors([], n=8, room=ROOM, usage=FRESH, rng=dice()) == []
