"""From runs and the scores of their candidates to the rows that are ranked.

A run has `n_tips` slots. A judged slot is worth the rubric's composite; a missing one, and every slot of a
reply that is unreadable, empty or cut off, is worth the rubric's failure value, since dropping failures would
reward models that fail. An unjudged slot is None. Tips beyond the slots are not scored, and a run in which
the engine failed has no slots at all.

Scores are by candidate key, so a text that two cells wrote is scored alike in both. Where only some tips per
cell are wanted, only that many slots are looked at: every cell is then measured on the same slots.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from tipbench.errors import BadSetting
from tipbench.judge.candidates import candidate_key
from tipbench.records import SAMPLING_NAMES, VARIANT_SEPARATOR
from tipbench.suite.problems import did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tipbench.records import Run, Sampling
    from tipbench.suite.rubric import Scale

    Scores = Mapping[str, Mapping[str, float]]
    Flags = Mapping[str, bool]
    Row = tuple[str, str, str, float | None]
    Variant = tuple[str, str, Sampling | None]

BY_CODE: Flags = MappingProxyType({})

_SHORT = 8
_HEAVIEST = 1000


class Rubric(Protocol):
    """What scoring asks of a rubric."""

    @property
    def scales(self) -> tuple[Scale, ...]: ...

    @property
    def failure(self) -> float: ...

    def score(self, scores: Mapping[str, float], flags: Mapping[str, bool]) -> float: ...

    def is_overlong(self, text: str) -> bool: ...


def slot_values(
    run: Run, scores: Scores, *, rubric: Rubric, overlong: Flags = BY_CODE, tips_per_cell: int = 0
) -> list[float | None]:
    """What each slot is worth, given scores by candidate key; a candidate without any is unjudged.

    `overlong` has the flags that judges set, by candidate key. The code sets all others.
    """
    if run.status == "failed":
        return []
    texts = slot_texts(run, tips_per_cell=tips_per_cell)
    missing = n_slots(run, tips_per_cell=tips_per_cell) - len(texts)
    return [*(_value(run, text, scores, rubric, overlong) for text in texts), *([rubric.failure] * missing)]


def is_overlong(run: Run, text: str, *, rubric: Rubric, overlong: Flags) -> bool:
    """The flag that counts for a candidate: the judges' if they set one, else the code's."""
    flag = overlong.get(candidate_key(run.scenario_id, text))
    return rubric.is_overlong(text) if flag is None else flag


def n_slots(run: Run, *, tips_per_cell: int = 0) -> int:
    """How many slots of a run count; 0 tips per cell means all."""
    return min(run.n_tips, tips_per_cell) if tips_per_cell else run.n_tips


def slot_texts(run: Run, *, tips_per_cell: int = 0) -> list[str]:
    """The texts a judge can score, in the order of their slots: none in a run that failed in any way."""
    if run.status == "failed" or is_failure(run):
        return []
    return [one.text for one in run.candidates[: n_slots(run, tips_per_cell=tips_per_cell)]]


def _value(run: Run, text: str, scores: Scores, rubric: Rubric, overlong: Flags) -> float | None:
    key = candidate_key(run.scenario_id, text)
    given = scores.get(key)
    if given is None:
        return None
    flag = overlong.get(key)
    flags = {
        "format_ok": bool(run.metrics.get("format_ok", 0)),
        "overlong": rubric.is_overlong(text) if flag is None else flag,
    }
    return rubric.score(given, flags)


def is_failure(run: Run) -> bool:
    """Whether a reply as a whole failed, so that there is nothing to judge in it."""
    return bool(reply_problem(run))


def reply_problem(run: Run) -> str:
    """Why a reply cannot be used; empty for a good one, and for a cell without a reply."""
    if run.status == "failed":
        return ""
    if run.cut is not None:
        return "prompt truncated" if run.cut == "prompt" else "truncated"
    return "unreadable" if run.how == "none" else ""


def known_values(run: Run, values: Sequence[float | None]) -> list[float]:
    """The slots that make up a run's value.

    None while nothing is judged of what could be: the missing slots alone would make an unjudged run look
    like a failed one.
    """
    known = [value for value in values if value is not None]
    judged = len(known) - max(0, len(values) - len(slot_texts(run)))
    return known if judged > 0 or len(known) == len(values) else []


def cell_rows(
    runs: Iterable[Run],
    scores: Scores,
    *,
    rubric: Rubric,
    overlong: Flags = BY_CODE,
    tips_per_cell: int = 0,
    names: Mapping[Variant, tuple[str, str]] | None = None,
) -> list[Row]:
    """Rows for `rank`, one for each slot: an unjudged one is None, any other carries its scenario's value.

    A run is the mean of its judged slots and a scenario the mean of its runs, whichever of them has more
    slots judged; carrying that value in every row keeps both the mean and the count of slots right.
    `names` are by default the labels of these runs.
    """
    runs = list(runs)
    names = names or labels(runs)
    repeats: dict[tuple[str, str, str], list[list[float | None]]] = defaultdict(list)
    for run in runs:
        model, prompt = names[run.variant]
        values = slot_values(run, scores, rubric=rubric, overlong=overlong, tips_per_cell=tips_per_cell)
        repeats[model, prompt, run.scenario_id].append(_held_back(run, values))
    return [(*key, value) for key, values in repeats.items() for value in _levelled(values)]


def _held_back(run: Run, values: list[float | None]) -> list[float | None]:
    """The slots to be counted: of a run without a value, only those that wait for a judge."""
    return values if known_values(run, values) else [value for value in values if value is None]


def _levelled(repeats: Sequence[Sequence[float | None]]) -> list[float | None]:
    known = [[value for value in values if value is not None] for values in repeats]
    means = [math.fsum(values) / len(values) for values in known if values]
    unjudged = sum(value is None for values in repeats for value in values)
    whole = [math.fsum(means) / len(means)] * sum(map(len, known)) if means else []
    return [*whole, *([None] * unjudged)]


def labels(runs: Iterable[Run]) -> dict[Variant, tuple[str, str]]:
    """For each variant the names of its model and prompt.

    Two digests under one name are two models, `name@1a2b3c4d`, and are never pooled; likewise for prompts.
    A prompt that was used with different sampling options has them in its name: `v1 · t=0.2`.
    """
    runs = list(runs)
    models = _unique({run.digest: run.model for run in runs})
    prompts = _unique({run.prompt_hash: run.prompt_id for run in runs})
    variants = dict.fromkeys(run.variant for run in runs)
    different = _different_options(variants)
    found = {}
    for one in variants:
        digest, prompt, sampling = one
        parts = [prompts[prompt], *_option_labels(sampling, different[prompt])]
        found[one] = models[digest], VARIANT_SEPARATOR.join(parts)
    return found


def _different_options(variants: Iterable[Variant]) -> dict[str, list[str]]:
    """By prompt hash, the options to name: those that differ for one prompt, and a temperature anywhere.

    The other options may come from the prompt itself, so that two prompts differ by them as a rule.
    """
    used: dict[str, list[Sampling | None]] = defaultdict(list)
    for _, prompt, sampling in variants:
        used[prompt].append(sampling)
    hot = len({getattr(one, "temperature", None) for some in used.values() for one in some}) > 1
    return {
        prompt: [
            name
            for name in SAMPLING_NAMES
            if (hot and name == "temperature") or len({getattr(one, name, None) for one in some}) > 1
        ]
        for prompt, some in used.items()
    }


def _option_labels(sampling: Sampling | None, names: Sequence[str]) -> list[str]:
    if sampling is None:
        return ["options unknown"] if names else []
    return [sampling.shown(name) for name in names]


def _unique(names: Mapping[str, str]) -> dict[str, str]:
    taken = list(names.values())
    return {
        identity: name if taken.count(name) == 1 else f"{name}@{identity.removeprefix('sha256:')[:_SHORT]}"
        for identity, name in names.items()
    }


@dataclass(frozen=True, kw_only=True)
class Weighted:
    """A rubric in which scales count more or less than they do in its composite."""

    rubric: Rubric
    weights: Mapping[str, float]

    @property
    def scales(self) -> tuple[Scale, ...]:
        return self.rubric.scales

    @property
    def failure(self) -> float:
        return self.rubric.failure + self._extra({scale.name: scale.low for scale in self.scales})

    def score(self, scores: Mapping[str, float], flags: Mapping[str, bool]) -> float:
        return self.rubric.score(scores, flags) + self._extra(scores)

    def is_overlong(self, text: str) -> bool:
        return self.rubric.is_overlong(text)

    def _extra(self, scores: Mapping[str, float]) -> float:
        return math.fsum((weight - 1) * scores[name] for name, weight in self.weights.items())


def weighted(rubric: Rubric, weights: Mapping[str, float]) -> Weighted:
    """The rubric with weights for some scales: 1 leaves a scale as it is, 2 adds its score once more.

    A failure is likewise worth more or less by the scales' lowest scores.
    """
    names = [scale.name for scale in rubric.scales]
    for name, weight in weights.items():
        if name not in names:
            raise BadSetting(
                "weights", f"the rubric has no scale '{name}'{did_you_mean(name, names) or _names(names)}"
            )
        if not 0 <= weight <= _HEAVIEST:
            raise BadSetting("weights", f"'{name}' is {weight:g}; give a number from 0 to {_HEAVIEST}")
    return Weighted(rubric=rubric, weights=dict(weights))


def _names(names: Iterable[str]) -> str:
    return f"; it has {listed(names)}"


def parse_weights(text: str) -> dict[str, float]:
    """The weights that a text such as `relevance=2,tone=0.5` spells, whatever scales there are."""
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, equals, number = (piece.strip() for piece in part.partition("="))
        if not (name and equals and number):
            raise BadSetting("weights", f"'{part.strip()}' is not SCALE=NUMBER, such as relevance=2,tone=0.5")
        if name in weights:
            raise BadSetting("weights", f"'{name}' is there twice")
        weights[name] = _weight(name, number)
    return weights


def _weight(name: str, number: str) -> float:
    try:
        weight = float(number)
    except ValueError:
        weight = math.nan
    if not math.isfinite(weight):
        raise BadSetting("weights", f"'{name}' is '{number}'; give a number such as 2 or 0.5")
    return weight
