from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from itertools import count, groupby
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batch_samples import (
    CONTEXTS,
    FITTING,
    KEY,
    LEVELS,
    SCALES,
    anchor,
    bank,
    blank,
    block,
    dice,
    pool,
    small_batch,
)
from tipbench.errors import BadInput
from tipbench.judge.blocks import Block
from tipbench.judge.candidates import candidate_key, normalised
from tipbench.judge.compose import (
    Pool,
    Shares,
    anchors_shown,
    blind_id,
    compose,
    compose_all,
)

if TYPE_CHECKING:
    from tipbench.records import Batch

BLOCKS = [block(name, 12) for name in CONTEXTS]


def composed(
    blocks: list[Block] = BLOCKS, *, seed: int = 0, size: int = 60, source: Pool | None = None
) -> Batch:
    batch = compose(blocks, blank=blank(), pool=source or pool(), key=KEY, rng=dice(seed), size=size)
    assert batch is not None
    return batch


def roles(batch: Batch) -> dict[str, int]:
    return dict(Counter(item.role for item in batch.items))


def test_a_usual_batch() -> None:
    """Four blocks of twelve, eight anchors, two foils, each scenario's context; the rest stays as it was."""
    batch = composed()
    assert roles(batch) == {"real": 48, "anchor": 8, "foil": 2}
    assert batch.contexts == CONTEXTS
    assert replace(batch, items=(), contexts={}) == blank()


@pytest.mark.parametrize(
    ("size", "real", "anchors", "foils"),
    [(60, 50, 8, 2), (30, 24, 4, 2), (12, 8, 2, 2), (11, 9, 2, 0), (3, 1, 2, 0), (100, 50, 8, 2)],
)
def test_smaller_batches_have_fewer_checks(size: int, real: int, anchors: int, foils: int) -> None:
    """The checks shrink with the size, and more than fifty real items there never are."""
    assert Shares.of(size) == Shares(real=real, anchors=anchors, foils=foils)
    batch = composed([block(name, real) for name in CONTEXTS], size=size)
    assert roles(batch)["real"] == real
    assert len(batch.items) <= max(size - foils, real + anchors + foils)


def test_a_batch_without_room_is_refused() -> None:
    """Two items cannot hold two anchors and something to judge."""
    with pytest.raises(BadInput, match="a batch of 2"):
        composed(size=2)


def test_nothing_to_judge_makes_no_batch() -> None:
    """Without blocks there is no batch, not one of checks alone."""
    nothing = Block(scenario_id="bakery", texts=())
    for blocks in ([], [nothing]):
        assert compose(blocks, blank=blank(), pool=pool(), key=KEY, rng=dice()) is None
        every = compose_all(blocks, blank=blank(), pool=pool(), key=KEY, rng=dice(), new_id=lambda: "b")
        assert list(every) == []


def test_items_say_what_they_are_to_the_ledger() -> None:
    """A real item has its candidate's key, an anchor its reference, a foil neither but where it is from."""
    batch, anchors = composed(), {one.id: one for one in bank()}
    for item in batch.items:
        is_real = item.role == "real"
        assert item.candidate == (candidate_key(item.scenario_id, item.text) if is_real else "")
        assert bool(item.anchor_id) != is_real
        if item.role == "anchor":
            known = anchors[item.anchor_id]
            assert (item.scenario_id, item.text) == (known.scenario_id, known.text)
            assert (item.reference, item.n_references) == (known.reference, known.n_references)
        if item.role == "foil":
            assert item.reference == {}
            assert item.scenario_id != anchors[item.anchor_id].scenario_id


def test_the_same_dice_give_the_same_batch() -> None:
    """All randomness is handed in."""
    assert composed(seed=5) == composed(seed=5)
    assert composed(seed=5) != composed(seed=6)


def test_a_text_is_there_once() -> None:
    """An anchor or foil with a real item's text is not drawn, and a real one that comes twice is one item."""
    blocks = [Block(scenario_id=name, texts=(f"{FITTING[name]} (15)", "x", "X ")) for name in CONTEXTS]
    for seed in range(20):
        items = composed([*blocks, *blocks], seed=seed).items
        keys = [(item.scenario_id, normalised(item.text)) for item in items]
        assert len(set(keys)) == len(keys)
        foils = [normalised(item.text) for item in items if item.role == "foil"]
        assert all([text for _, text in keys].count(foil) == 1 for foil in foils)
        assert sum(item.role == "real" for item in items) == 8


def test_anchors_need_a_reference_on_every_scale() -> None:
    """One that was scored on other scales cannot tell whether a judge has drifted."""
    other = replace(anchor("bakery", 9), reference={"relevance": 3.0})
    assert roles(composed(source=pool(anchors=[other]))) == {"real": 48}


def test_a_suite_without_anchors_has_foils_from_its_candidates() -> None:
    """They come from the experiment's own texts, where these are beyond doubt about another scenario."""
    source = Pool(contexts=CONTEXTS, scales=SCALES, candidates=[*FITTING.items(), ("bakery", "Drink water.")])
    batch = composed(source=source)
    assert roles(batch) == {"real": 48, "foil": 2}
    assert {item.text for item in batch.items if item.role == "foil"} <= set(FITTING.values())


def test_without_a_scale_of_relevance_there_are_no_foils() -> None:
    """No other scale says that a text does not belong."""
    scales = SCALES[1:]
    assert roles(composed(source=pool(scales=scales))) == {"real": 48, "anchor": 8}


def test_a_scenario_that_the_suite_lost_is_named() -> None:
    """There is nothing to show to a judge, and the sentence says of which scenario."""
    with pytest.raises(BadInput, match="'attic'"):
        composed([block("attic", 2)])


def test_ids_tell_nothing_and_change_with_the_batch() -> None:
    """Twelve hex digits that differ by batch, scenario, text and key, and not by role."""
    batch = composed()
    again = {
        blind_id(KEY, batch_id="batch-1", scenario_id=item.scenario_id, text=item.text)
        for item in batch.items
    }
    assert {item.id for item in batch.items} == again
    assert all(re.fullmatch("[0-9a-f]{12}", one) for one in again)
    one = {"batch_id": "b", "scenario_id": "s", "text": "t"}
    others = [blind_id(KEY, **(one | {name: "z"})) for name in one] + [blind_id(b"other", **one)]
    assert len({blind_id(KEY, **one), *others}) == 5


def test_all_batches_together_hold_everything_once() -> None:
    """`compose_all` goes on until nothing is left, in the order of the blocks."""
    blocks = [block(name, 12, word=f"slot {slot}") for slot in range(3) for name in CONTEXTS]
    numbers = count()
    batches = list(
        compose_all(
            blocks, blank=blank(), pool=pool(), key=KEY, rng=dice(), new_id=lambda: f"b{next(numbers)}"
        )
    )
    assert [batch.batch_id for batch in batches] == ["b0", "b1", "b2"]
    texts = [{item.text for item in batch.items if item.role == "real"} for batch in batches]
    assert [{text.split(" tip")[0][:6] for text in one} for one in texts] == [
        {"slot 0"},
        {"slot 1"},
        {"slot 2"},
    ]
    assert sum(map(len, texts)) == 144


def test_anchors_rest_between_batches() -> None:
    """Batch after batch shows other anchors while there are others, and `recent` counts too."""
    blocks = [block(name, 12, word=f"slot {slot}") for slot in range(2) for name in CONTEXTS]
    source = pool(anchors=bank([*LEVELS, 14.0, 4.0]))
    recent = [{one.id for one in source.anchors if sum(one.reference.values()) == 9}]
    batches = list(
        compose_all(
            blocks, blank=blank(), pool=source, key=KEY, rng=dice(), new_id=lambda: "b", recent=recent
        )
    )
    first, second = anchors_shown(batches)
    assert len(first) == len(second) == 10
    assert not (first & second) | (first & recent[0]) | (second & recent[0])


@given(
    sizes=st.lists(st.tuples(st.sampled_from(sorted(CONTEXTS)), st.integers(1, 70)), min_size=1, max_size=8),
    size=st.integers(3, 60),
    seed=st.integers(0, 999),
)
def test_any_blocks_make_batches_that_fit(sizes: list[tuple[str, int]], size: int, seed: int) -> None:
    """Whatever the blocks: nothing is lost, no batch is too large, no id is there twice in a batch."""
    blocks = [block(name, n, word=f"w{place}") for place, (name, n) in enumerate(sizes)]
    numbers = count()
    batches = list(
        compose_all(
            blocks,
            blank=blank(),
            pool=pool(),
            key=KEY,
            rng=dice(seed),
            new_id=lambda: str(next(numbers)),
            size=size,
        )
    )
    for batch in batches:
        assert len(batch.items) <= size
        assert len({item.id for item in batch.items}) == len(batch.items)
    real = [(item.scenario_id, item.text) for batch in batches for item in batch.items if item.role == "real"]
    assert sorted(real) == sorted((one.scenario_id, text) for one in blocks for text in one.texts)


def _z(found: int, n: int, share: float) -> float:
    return (found - n * share) / math.sqrt(n * share * (1 - share))


def test_no_position_tells_a_hidden_item() -> None:
    """Over many batches every place, in the batch and in a run of any length, is hidden equally often."""
    n_batches, by_place, in_run = 700, Counter[int](), Counter[tuple[int, int, bool]]()
    kinds = Counter[tuple[str, int]]()
    for seed in range(n_batches):
        items = composed(seed=seed).items
        by_place.update(place for place, item in enumerate(items) if item.role != "real")
        kinds.update((item.role, 6 * place // len(items)) for place, item in enumerate(items))
        for _, group in groupby(items, key=lambda item: item.scenario_id):
            run = list(group)
            in_run.update((len(run), place, item.role != "real") for place, item in enumerate(run))
    share = 10 / 58
    assert len(by_place) == 58
    assert max(abs(_z(by_place[place], n_batches, share)) for place in range(58)) < 4
    for role, total in (("anchor", 8), ("foil", 2)):
        places = [
            len(range(58)[math.ceil(part * 58 / 6) : math.ceil((part + 1) * 58 / 6)]) for part in range(6)
        ]
        assert all(abs(_z(kinds[role, part], n_batches * total, places[part] / 58)) < 4 for part in range(6))
    for length in range(2, 6):
        hidden = [in_run[length, place, True] for place in range(length)]
        number = in_run[length, 0, True] + in_run[length, 0, False]
        assert abs(sum(hidden) / (number * length) - share) < 0.02
        assert all(abs(_z(found, sum(hidden), 1 / length)) < 4 for found in hidden)


def test_a_small_batch_is_whole_too() -> None:
    """Eight real items, two anchors and two foils in the runs of two scenarios."""
    assert roles(small_batch()) == {"real": 8, "anchor": 2, "foil": 2}
