"""Which scenario a moment of somebody's day is most like: by person first, then by hour and weekday. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tipbench.errors import NotFound
from tipbench.suite.problems import did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tipbench.suite import Scenario

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
# In full anywhere, shortened only at the beginning: "sat" and "sun" are words of their own.
_DAY = re.compile(rf"\b({'|'.join(_DAYS)})s?\b|^\W*({'|'.join(day[:3] for day in _DAYS)})\w{{0,2}}\b")
_CLOCK = re.compile(r"\b([01]?\d|2[0-3])[:.h]([0-5]\d)\b")
_HALF_DAY = re.compile(r"\b(1[0-2]|0?[1-9])(?::([0-5]\d))?\s*([ap])\.?m\b")
_WORDS = {"morning": 8.0, "noon": 12.0, "afternoon": 15.0, "evening": 19.0, "night": 22.0}
# What an unknown hour counts: as far as the middle of what an hour can be away.
_UNKNOWN_HOURS, _UNKNOWN_DAYS = 6.0, 1.5


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A scenario as what it stands for: whose it is, and on which day (0 is Monday) at which hour.

    `tips` are those that judges liked, the best first.
    """

    id: str
    who: str = ""
    weekday: int | None = None
    hour: float | None = None
    tips: tuple[str, ...] = ()


def kind_of_scenario(scenario: Scenario, *, tips: Sequence[str] = ()) -> Kind:
    """What a scenario stands for, read from its variables `persona` and `when`, else from its title."""
    weekday, hour = moment_of(str(scenario.variables.get("when", scenario.title)))
    who = _name_of(scenario.variables.get("persona"))
    return Kind(id=scenario.id, who=who, weekday=weekday, hour=hour, tips=tuple(tips))


def moment_of(text: str) -> tuple[int | None, float | None]:
    """The weekday and the hour that a text such as `Monday, 08:30` names; None for what it does not."""
    plain = text.lower()
    day = _DAY.search(plain)
    return (_weekday(day[1] or day[2]) if day else None), _hour_in(plain)


def _hour_in(plain: str) -> float | None:
    half = _HALF_DAY.search(plain)
    if half:
        return int(half[1]) % 12 + 12 * (half[3] == "p") + int(half[2] or 0) / 60
    clock = _CLOCK.search(plain)
    if clock:
        return int(clock[1]) + int(clock[2]) / 60
    return next((hour for word, hour in _WORDS.items() if re.search(rf"\b{word}\b", plain)), None)


def nearest(kinds: Sequence[Kind], context: Mapping[str, Any]) -> list[Kind]:
    """All kinds, the one most like the context first; the one that it names by `scenario` alone.

    The context may have `persona`, `hour` and `weekday`; what it lacks, or what makes no sense, is left out
    of account. NotFound for a `scenario` that is not there.
    """
    named = context.get("scenario")
    if named:
        return [_named(kinds, str(named))]
    who = _name_of(context.get("persona")).casefold()
    hour, weekday = _hour(context.get("hour")), _weekday(context.get("weekday"))

    def away(kind: Kind) -> tuple[bool, float]:
        apart = _hours_apart(kind.hour, hour) + _days_apart(kind.weekday, weekday)
        return not who or who != kind.who.casefold(), apart

    return sorted(kinds, key=away)


def _named(kinds: Sequence[Kind], name: str) -> Kind:
    found = next((kind for kind in kinds if kind.id == name), None)
    if found is None:
        ids = [kind.id for kind in kinds]
        raise NotFound(
            f"there is no scenario '{name}' in what is shipped{did_you_mean(name, ids)} "
            f"(there are {listed(ids)})"
        )
    return found


def _hours_apart(one: float | None, other: float | None) -> float:
    return _UNKNOWN_HOURS if one is None or other is None else _around(one - other, 24)


def _days_apart(one: int | None, other: int | None) -> float:
    """A day counts as an hour: the same time tomorrow is more like now than this afternoon is."""
    return _UNKNOWN_DAYS if one is None or other is None else _around(one - other, 7)


def _around(difference: float, circle: int) -> float:
    there = difference % circle
    return min(there, circle - there)


def _name_of(persona: object) -> str:
    """What a persona goes by: its `name` where it has one, else its own text."""
    if isinstance(persona, dict):
        persona = persona.get("name", "")
    return persona.strip() if isinstance(persona, str) else ""


def _hour(value: object) -> float | None:
    """An hour of the day, 24 being midnight; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 24:
        return None
    return float(value) % 24


def _weekday(value: object) -> int | None:
    """A day by its number from Monday, 0, to Sunday, 6, or by its name."""
    if isinstance(value, str):
        start = value.strip().lower()[:3]
        return next((at for at, day in enumerate(_DAYS) if start and day[:3] == start), None)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value not in range(7):
        return None
    return int(value)
