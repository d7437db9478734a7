"""Batches for a judge: blocks of candidates with anchors and foils among them, blinded and shuffled."""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tipbench.errors import BadInput
from tipbench.judge.arrange import arranged, room_for_hidden
from tipbench.judge.blocks import distinct, take
from tipbench.judge.candidates import candidate_key, normalised
from tipbench.judge.foils import draw_foils, relevant_anchors, relevant_candidates, scenario_stems
from tipbench.judge.hidden import Usage, draw_anchors
from tipbench.records import Item

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from tipbench.judge.blocks import Block
    from tipbench.judge.foils import Foil, Source
    from tipbench.judge.hidden import Anchor
    from tipbench.records import Batch
    from tipbench.suite.rubric import Scale

USUAL_SIZE = 60
SMALLEST_SIZE = 3
MOST_REAL = 50
MOST_ANCHORS = 8
_SMALLEST_WITH_FOILS = 12
_ID_LENGTH = 12


@dataclass(frozen=True, kw_only=True)
class Shares:
    """How many items of each kind a batch of some size has at most."""

    real: int
    anchors: int
    foils: int

    @classmethod
    def of(cls, size: int) -> Shares:
        if size < SMALLEST_SIZE:
            raise BadInput(f"a batch of {size} has no room for its checks; choose {SMALLEST_SIZE} or more")
        anchors = min(MOST_ANCHORS, max(2, round(size * MOST_ANCHORS / USUAL_SIZE)))
        foils = 2 if size >= _SMALLEST_WITH_FOILS else 0
        return cls(real=min(MOST_REAL, size - anchors - foils), anchors=anchors, foils=foils)


@dataclass(frozen=True, kw_only=True)
class Pool:
    """What a batch draws from beside its blocks.

    `contexts` has every scenario of the suite as a judge reads it, `candidates` all (scenario id, text) of
    the experiment: they serve as foils where anchors do not. No text of `withheld` (normalised) is hidden.
    """

    contexts: Mapping[str, str]
    scales: Sequence[Scale]
    anchors: Sequence[Anchor] = ()
    candidates: Sequence[tuple[str, str]] = ()
    withheld: frozenset[str] = frozenset()

    @cached_property
    def usable_anchors(self) -> tuple[Anchor, ...]:
        """Those with a reference on every scale, one for each text of a scenario."""
        names = {scale.name for scale in self.scales}
        first: dict[tuple[str, str], Anchor] = {}
        for anchor in self.anchors:
            if names <= set(anchor.reference) and normalised(anchor.text) not in self.withheld:
                first.setdefault((anchor.scenario_id, normalised(anchor.text)), anchor)
        return tuple(first.values())

    @cached_property
    def foil_candidates(self) -> list[tuple[str, str]]:
        return [one for one in self.candidates if normalised(one[1]) not in self.withheld]

    @cached_property
    def relevance(self) -> Scale | None:
        return next((scale for scale in self.scales if scale.name == "relevance"), None)

    @cached_property
    def about(self) -> dict[str, frozenset[str]]:
        return scenario_stems(self.contexts)

    @cached_property
    def known(self) -> frozenset[tuple[str, str]]:
        return frozenset((scenario_id, normalised(text)) for scenario_id, text in self.candidates)


def compose(
    blocks: Sequence[Block],
    *,
    blank: Batch,
    pool: Pool,
    key: bytes,
    rng: random.Random,
    size: int = USUAL_SIZE,
    recent: Sequence[Collection[str]] = (),
) -> Batch | None:
    """The next batch: as many whole blocks from the beginning as fit, with checks hidden among them.

    `blank` is the batch without its items, `recent` the anchor ids of the batches before (`anchors_shown`).
    None where there is nothing to judge. The ids can be made again with `key` alone, which stays secret.
    """
    taken, _ = take(distinct(blocks), most=Shares.of(size).real, rng=rng)
    return (
        _batch(taken, blank=blank, pool=pool, key=key, rng=rng, size=size, recent=recent) if taken else None
    )


def compose_all(
    blocks: Sequence[Block],
    *,
    blank: Batch,
    pool: Pool,
    key: bytes,
    rng: random.Random,
    new_id: Callable[[], str],
    size: int = USUAL_SIZE,
    recent: Sequence[Collection[str]] = (),
) -> Iterator[Batch]:
    """Batches until nothing is left, each taking account of the anchors that the ones before have shown."""
    shown, left = list(recent), distinct(blocks)
    while left:
        taken, left = take(left, most=Shares.of(size).real, rng=rng)
        named = replace(blank, batch_id=new_id())
        batch = _batch(taken, blank=named, pool=pool, key=key, rng=rng, size=size, recent=shown)
        shown += anchors_shown([batch])
        yield batch


def anchors_shown(batches: Iterable[Batch]) -> list[frozenset[str]]:
    """The ids of the anchors in each batch, also of those that served as foils."""
    return [frozenset(item.anchor_id for item in batch.items if item.anchor_id) for batch in batches]


def blind_id(key: bytes, *, batch_id: str, scenario_id: str, text: str) -> str:
    """An item's id: it tells nothing to those without the key, and differs from batch to batch."""
    message = "\0".join((batch_id, scenario_id, normalised(text))).encode()
    return hmac.new(key, message, hashlib.sha256).hexdigest()[:_ID_LENGTH]


def _batch(
    blocks: Sequence[Block],
    *,
    blank: Batch,
    pool: Pool,
    key: bytes,
    rng: random.Random,
    size: int,
    recent: Sequence[Collection[str]],
) -> Batch:
    real = [_real_item(block.scenario_id, text) for block in blocks for text in block.texts]
    _check_scenarios(real, pool)
    hidden = _hidden(real, pool=pool, shares=Shares.of(size), usage=Usage(recent=recent), rng=rng)
    items = [
        replace(
            item,
            id=blind_id(key, batch_id=blank.batch_id, scenario_id=item.scenario_id, text=item.text),
        )
        for item in arranged([*real, *hidden], rng=rng)
    ]
    contexts = {item.scenario_id: pool.contexts[item.scenario_id] for item in items}
    return replace(blank, items=tuple(items), contexts=contexts, applications=())


def _hidden(
    real: Sequence[Item], *, pool: Pool, shares: Shares, usage: Usage, rng: random.Random
) -> list[Item]:
    """Anchors and foils as items. No text of a scenario is there twice, and no foil anywhere else."""
    counts = Counter(item.scenario_id for item in real)
    room = Counter({scenario_id: room_for_hidden(n) for scenario_id, n in counts.items()})
    taken = {(item.scenario_id, normalised(item.text)) for item in real}
    bank = [one for one in pool.usable_anchors if (one.scenario_id, normalised(one.text)) not in taken]
    anchors = draw_anchors(bank, n=shares.anchors, room=room, usage=usage, rng=rng)
    room.subtract(anchor.scenario_id for anchor in anchors)
    shown = {text for _, text in taken} | {normalised(anchor.text) for anchor in anchors}
    foils = _foils(pool, n=shares.foils, room=room, shown=shown, usage=usage, rng=rng)
    return [*map(_anchor_item, anchors), *map(_foil_item, foils)]


def _foils(
    pool: Pool,
    *,
    n: int,
    room: Mapping[str, int],
    shown: Collection[str],
    usage: Usage,
    rng: random.Random,
) -> list[Foil]:
    """Foils from anchors, or from candidates where the anchors give none."""
    if pool.relevance is None or not n:
        return []

    def drawn(sources: Sequence[Source]) -> list[Foil]:
        return draw_foils(
            sources,
            n=n,
            room=room,
            about=pool.about,
            shown=shown,
            known=pool.known,
            usage=usage,
            rng=rng,
        )

    return drawn(relevant_anchors(pool.usable_anchors, relevance=pool.relevance)) or drawn(
        relevant_candidates(pool.foil_candidates, about=pool.about, rng=rng)
    )


def _check_scenarios(real: Sequence[Item], pool: Pool) -> None:
    for item in real:
        if item.scenario_id not in pool.contexts:
            raise BadInput(
                f"the scenario '{item.scenario_id}' has candidates to judge, but the suite has it no more;"
                " put it back"
            )


def _real_item(scenario_id: str, text: str) -> Item:
    key = candidate_key(scenario_id, text)
    return Item(id="", role="real", scenario_id=scenario_id, text=text, candidate=key)


def _anchor_item(anchor: Anchor) -> Item:
    return Item(
        id="",
        role="anchor",
        scenario_id=anchor.scenario_id,
        text=anchor.text,
        anchor_id=anchor.id,
        reference=dict(anchor.reference),
        n_references=anchor.n_references,
        by_people=anchor.by_people,
    )


def _foil_item(foil: Foil) -> Item:
    return Item(
        id="",
        role="foil",
        scenario_id=foil.scenario_id,
        text=foil.source.text,
        anchor_id=foil.source.anchor_id,
    )
