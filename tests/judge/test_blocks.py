from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from batch_samples import block, dice, run
from tipbench.judge.blocks import Block, blocks_of, distinct, take, wanted_blocks
from tipbench.judge.candidates import candidate_key

ORDER = ("office", "bakery")


def shown(blocks: list[Block]) -> list[tuple[str, ...]]:
    return [(one.scenario_id, *one.texts) for one in blocks]


def test_the_first_slot_of_all_scenarios_comes_first() -> None:
    """Blocks go by slot, then repeat, then the suite's order of scenarios, each with all cells in play."""
    runs = [
        run("bakery", "b1", "b2", model="m"),
        run("office", "o1", "o2", model="m"),
        run("bakery", "B1", "c2", model="n"),
        run("bakery", "r1", "r2", model="m", repeat=1),
        run("bakery", "d1", "d2", model="n"),
    ]
    assert shown(wanted_blocks(runs, scenarios=ORDER)) == [
        ("office", "o1"),
        ("bakery", "b1", "d1"),
        ("bakery", "r1"),
        ("office", "o2"),
        ("bakery", "b2", "c2", "d2"),
        ("bakery", "r2"),
    ]


def test_what_nobody_needs_to_judge_is_left_out() -> None:
    """Failed runs, failed replies, cells raced out, other scenarios and judged texts make no item."""
    runs = [
        run("bakery", "kept", "judged"),
        run("bakery", "failed", model="f", status="failed"),
        run("bakery", "unread", model="u", how="none"),
        run("bakery", "out", model="o", prompt="v2"),
        run("attic", "elsewhere"),
    ]
    blocks = wanted_blocks(
        runs,
        scenarios=ORDER,
        raced_out={("digest of o", "hash of v2", None)},
        done={candidate_key("bakery", "JUDGED")},
    )
    assert shown(blocks) == [("bakery", "kept")]


def test_slots_are_bounded() -> None:
    """Tips beyond the slots, or beyond the tips per cell that are wanted, are not judged."""
    runs = [run("bakery", "a", "b", "c", n_tips=2), run("office", "d", n_tips=2)]
    assert shown(wanted_blocks(runs, scenarios=ORDER)) == [("office", "d"), ("bakery", "a"), ("bakery", "b")]
    assert shown(wanted_blocks(runs, scenarios=ORDER, tips_per_cell=1)) == [("office", "d"), ("bakery", "a")]
    assert len(wanted_blocks(runs, scenarios=ORDER, tips_per_cell=9)) == 3


def test_a_text_is_judged_where_it_first_appears() -> None:
    """The same text from two cells or slots of a scenario is one item; in another scenario it is another."""
    runs = [run("bakery", "same", "Same "), run("bakery", "SAME", "new", model="n"), run("office", "same")]
    assert shown(wanted_blocks(runs, scenarios=ORDER)) == [
        ("office", "same"),
        ("bakery", "same"),
        ("bakery", "new"),
    ]


def test_an_explicit_list_becomes_a_block_for_each_scenario() -> None:
    """Texts to adjudicate are grouped by scenario, each once."""
    assert shown(blocks_of([("b", "x"), ("a", "y"), ("b", "X"), ("b", "z")])) == [("b", "x", "z"), ("a", "y")]


def test_whole_blocks_are_taken() -> None:
    """A block that no longer fits, and all behind it, waits for the next batch."""
    blocks = [block("a", 4), block("b", 4), block("c", 4), block("d", 1)]
    taken, left = take(blocks, most=10, rng=dice())
    assert (taken, left) == (blocks[:2], blocks[2:])


@given(n=st.integers(1, 200), most=st.integers(1, 60), seed=st.integers(0, 99))
def test_a_large_block_is_cut_evenly(n: int, most: int, seed: int) -> None:
    """Its portions go to successive batches, differ by at most one text, and lose none."""
    left, portions, rng = [block("a", n)], list[Block](), dice(seed)
    while left:
        taken, left = take(left, most=most, rng=rng)
        portions += taken
        left = distinct(left)
    sizes = [len(one.texts) for one in portions]
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1
    assert sorted(text for one in portions for text in one.texts) == sorted(block("a", n).texts)


def test_a_cut_does_not_always_favour_the_same_cells() -> None:
    """Which texts of a large block go first is random, so that a drift does not hit the same cells."""
    firsts = {take([block("a", 60)], most=50, rng=dice(seed))[0][0].texts[0] for seed in range(20)}
    assert len(firsts) > 5
