"""The user's profile as the request sends it: `profile_features`, flat or by kind of tip."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeAlias

from tipbench.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Said: TypeAlias = "Mapping[str, float | dict[str, float | None] | None]"

# The names, each with the largest value that it can take; none may be below 0.
RANGES = {
    "completion_rate": 1.0,
    "dismiss_rate": 1.0,
    "mean_dwell_s": math.inf,
    "preferred_hour": 24.0,
    "tip_volume": math.inf,
}
_MOST_MARKS = 20


@dataclass(frozen=True, slots=True)
class Given:
    """`flat` is what the rates shrink to, `kinds` are used as they are, `unknown` marks the other names."""

    flat: dict[str, float] = field(default_factory=dict)
    kinds: dict[str, dict[str, float]] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()


_NOTHING = Given()


def read(said: Said | None) -> Given:
    """The checked features. BadInput for an impossible value, and for a name that is a misspelt one of ours.

    An app may send more features than the policies use: the decision marks each other name as unknown.
    """
    if not said:
        return _NOTHING
    loose = {name: value for name, value in said.items() if not isinstance(value, dict)}
    nested = {kind: value for kind, value in said.items() if isinstance(value, dict)}
    unknown = [name for name, value in loose.items() if value is not None and name not in RANGES]
    unknown += [f"{kind}.{name}" for kind, values in nested.items() for name in values if name not in RANGES]
    _check_spelling(unknown[:_MOST_MARKS])
    return Given(
        flat=_checked(loose, "profile_features"),
        kinds={kind: _checked(values, f"profile_features.{kind}") for kind, values in nested.items()},
        unknown=tuple(f"unknown:{name[:100]}" for name in unknown[:_MOST_MARKS]),
    )


def _check_spelling(unknown: Sequence[str]) -> None:
    for place in unknown:
        near = get_close_matches(place.rpartition(".")[2][:100], RANGES, n=1, cutoff=0.8)
        if near:
            raise BadInput(f"profile_features.{place}: unknown key; did you mean {near[0]!r}?")


def _checked(values: Mapping[str, float | None], where: str) -> dict[str, float]:
    known = {name: float(value) for name, value in values.items() if name in RANGES and value is not None}
    for name, value in known.items():
        _check(value, name, where)
    return known


def _check(value: float, name: str, where: str) -> None:
    most = RANGES[name]
    if not (0.0 <= value <= most and value < math.inf):
        asked = "0 or more" if math.isinf(most) else f"from 0 to {most:g}"
        raise BadInput(f"{where}.{name} is {value}: send a finite number {asked}, or leave it out")
