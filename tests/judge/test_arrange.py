from __future__ import annotations

from itertools import groupby, pairwise

from hypothesis import given
from hypothesis import strategies as st

from batch_samples import dice
from tipbench.judge.arrange import arranged, room_for_hidden
from tipbench.records import Item

Sizes = list[tuple[int, int]]
COUNTS = st.integers(1, 20).flatmap(
    lambda n: st.tuples(st.just(n), st.integers(0, min(8, room_for_hidden(n))))
)


def items_of(sizes: Sizes) -> list[Item]:
    return [
        Item(
            id=f"{name}-{n}",
            role="real" if n < real else "anchor",
            scenario_id=f"s{name}",
            text="t",
        )
        for name, (real, hidden) in enumerate(sizes)
        for n in range(real + hidden)
    ]


def runs_of(items: list[Item]) -> list[list[Item]]:
    return [list(run) for _, run in groupby(items, key=lambda item: item.scenario_id)]


@given(sizes=st.lists(COUNTS, min_size=1, max_size=8), seed=st.integers(0, 999))
def test_nothing_is_lost_and_no_item_stands_alone(sizes: Sizes, seed: int) -> None:
    """Every item is there once; only the single item of a scenario makes a run of one."""
    items = items_of(sizes)
    order = arranged(items, rng=dice(seed))
    assert sorted(item.id for item in order) == sorted(item.id for item in items)
    for run in runs_of(order):
        whole = sum(item.scenario_id == run[0].scenario_id for item in items)
        assert len(run) >= min(2, whole)


@given(sizes=st.lists(COUNTS, min_size=1, max_size=8), seed=st.integers(0, 999))
def test_hidden_items_are_never_among_themselves(sizes: Sizes, seed: int) -> None:
    """Every run of one scenario, as the judge sees it, holds something real."""
    order = arranged(items_of(sizes), rng=dice(seed))
    assert all(any(item.role == "real" for item in run) for run in runs_of(order))


@given(size=st.integers(2, 12), n=st.integers(2, 8), seed=st.integers(0, 999), extra=st.integers(0, 3))
def test_runs_have_two_to_five_items(size: int, n: int, seed: int, extra: int) -> None:
    """Among scenarios of about the same size, runs do not touch, so none looks longer than five."""
    order = arranged(items_of([(size + extra, 2), *[(size, 2)] * (n - 1)]), rng=dice(seed))
    assert {len(run) for run in runs_of(order)} <= {2, 3, 4, 5}


def test_a_large_scenario_is_kept_apart_where_that_can_be() -> None:
    """Thirty items beside ten: six runs of five need the five between them that ten items can make."""
    for seed in range(30):
        runs = runs_of(arranged(items_of([(30, 0), (10, 0)]), rng=dice(seed)))
        assert [len(run) for run in runs] == [5, 2] * 5 + [5]


def test_where_touching_cannot_be_avoided_it_is_rare() -> None:
    """Forty items beside four: all of the four's runs stand between the forty's."""
    for seed in range(30):
        runs = runs_of(arranged(items_of([(40, 0), (4, 0)]), rng=dice(seed)))
        assert [run[0].scenario_id for run in runs].count("s1") == 2
        assert all(one[0].scenario_id != other[0].scenario_id for one, other in pairwise(runs))


def test_orders_differ() -> None:
    """Another seed gives another order, of runs and within them."""
    items = items_of([(12, 2)] * 4)
    orders = {tuple(item.id for item in arranged(items, rng=dice(seed))) for seed in range(20)}
    assert len(orders) == 20
