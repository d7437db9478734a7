"""Reading a world from its file: every mistake is told with its line, all of them gathered in one look."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tipbench.errors import BadInput, NotFound, SuiteError
from tipbench.sim.world import Drift, Kind, KnownBefore, Persona, Slot, World
from tipbench.suite import load_suite
from tipbench.suite.files import read_text
from tipbench.suite.form import Form, bad_id
from tipbench.suite.problems import Problems, did_you_mean, listed
from tipbench.suite.yamldoc import parse_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tipbench.suite.scenario import Scenario

SHIPPED = ("tip", "drift", "null")
MOST_CANDIDATES = 50
MOST_TIPS = 2000
MOST_KINDS = 60
MOST_DELAY = 50

_FOLDER = Path(__file__).parent / "worlds"
_NOBODY_KNOWN = KnownBefore(share=0.0, events=20, noise=0.0)
_NO_DRIFT = Drift(after=(), swap=())
_LOGIT = 50.0
_DAY_S = 86_400.0


def load_world(name_or_path: str) -> World:
    """A world that ships, by name, or the one in a file. Mistakes in it are a SuiteError with their line."""
    return _load(_find(name_or_path), seen=())


def _find(name_or_path: str) -> Path:
    if name_or_path in SHIPPED:
        return _FOLDER / f"{name_or_path}.yaml"
    path = Path(name_or_path)
    if path.suffix in {".yaml", ".yml"} or path.exists():
        return path
    near = did_you_mean(name_or_path, SHIPPED)
    raise NotFound(
        f"there is no world {name_or_path!r}{near or '; there are ' + listed(SHIPPED)}; "
        "or give the path of a world's .yaml file"
    )


def _load(path: Path, *, seen: tuple[Path, ...]) -> World:
    if path.resolve() in seen:
        raise SuiteError(path, "extends itself; name another world in 'extends'")
    problems = Problems()
    text = read_text(path, links=True)
    root = parse_yaml(text, path=path, problems=problems)
    if not isinstance(root.value, dict):
        raise SuiteError(path, "a world must be 'key: value' lines that begin with 'title:'", line=root.line)
    form = Form(root, path=path, problems=problems, what="the world")
    base = _base(form, path, seen)
    world = _Reader(form, base=base).world(path.stem)
    problems.raise_first()
    if world is None:
        raise SuiteError(path, "cannot be read")
    return world


def _base(form: Form, path: Path, seen: tuple[Path, ...]) -> World | None:
    name = form.text("extends")
    if name is None:
        return None
    beside, line = path.parent / name, form.nodes["extends"].line
    try:
        place = beside if name not in SHIPPED and beside.is_file() else _find(name)
    except NotFound as error:
        raise SuiteError(path, str(error), line=line) from None
    if not place.exists():
        raise SuiteError(path, f"'extends' names the file {name}, which is not there", line=line)
    return _load(place, seen=(*seen, path.resolve()))


class _Reader:
    """One file on its way to a world. What it does not say is taken from the world it extends."""

    def __init__(self, form: Form, *, base: World | None) -> None:
        self.form = form
        self.base = base
        self.scenarios = _scenarios(form)

    def world(self, name: str) -> World | None:
        form = self.form
        kinds = self._kinds()
        known = tuple(kind.id for kind in kinds)
        personas = self._personas(known)
        values: dict[str, Any] = {
            "id": name,
            "title": form.text("title") or self._inherited("title", name),
            "candidates": form.whole("candidates", low=2, high=MOST_CANDIDATES),
            "intercept": number(form, "intercept", low=-_LOGIT, high=_LOGIT),
            "taste": number(form, "taste", low=0, high=_LOGIT),
            "effort": number(form, "effort", low=-_LOGIT, high=_LOGIT),
            "overlap": number(form, "overlap", low=-_LOGIT, high=_LOGIT),
            "dismissed": number(form, "dismissed", low=0, high=1),
            "missing": number(form, "missing", low=0, high=0.99),
            "delay": self._delay(),
            "dwell_spread": number(form, "dwell_spread", low=0, high=5),
            "profile": self._profile(),
            "drift": self._drift(known),
            "same_for_all": number(form, "same_for_all", low=0, high=1),
            "personas": personas,
            "kinds": kinds,
        }
        form.finish()
        whole = {
            key: self._inherited(key, _DEFAULTS.get(key)) if v is None else v for key, v in values.items()
        }
        world = World(**whole)
        self._check(world)
        return world

    def _inherited(self, key: str, default: object) -> Any:  # noqa: ANN401 - each field has its own type
        return getattr(self.base, key) if self.base is not None else default

    def _check(self, world: World) -> None:
        """What can be wrong only between parts of the file, or between it and the world it extends."""
        form = self.form
        if world.kinds and world.candidates > len(world.tips):
            form.problem(
                f"'candidates' is {world.candidates}, but the kinds have {len(world.tips)} tips together",
                key="candidates",
            )
        if len(world.tips) > MOST_TIPS:
            form.problem(
                f"there are {len(world.tips)} tips; at most {MOST_TIPS} can be drawn from", key="kinds"
            )
        known = {kind.id for kind in world.kinds}
        liked = {name for persona in world.personas for name in _liked(persona)}
        if "kinds" in form.nodes and "personas" not in form.nodes and liked - known:
            gone = listed(sorted(liked - known))
            form.problem(f"personas of the extended world like kinds that are not here: {gone}", key="kinds")

    def _kinds(self) -> tuple[Kind, ...]:
        inner = self.form.form("kinds", required=self.base is None)
        if inner is None:
            return self._inherited("kinds", ())  # type: ignore[no-any-return]
        kinds = tuple(kind for name in inner.nodes if (kind := _kind(inner, name)) is not None)
        if not 2 <= len(inner.nodes) <= MOST_KINDS:
            inner.problem(f"there must be 2 to {MOST_KINDS} kinds of tips, not {len(inner.nodes)}")
        return kinds

    def _personas(self, kinds: tuple[str, ...]) -> tuple[Persona, ...]:
        inner = self.form.form("personas", required=self.base is None)
        if inner is None:
            return self._inherited("personas", ())  # type: ignore[no-any-return]
        if not inner.nodes:
            inner.problem("there must be at least one persona")
        found = (_persona(inner, name, kinds=kinds, scenarios=self.scenarios) for name in inner.nodes)
        return tuple(persona for persona in found if persona is not None)

    def _delay(self) -> tuple[float, ...] | None:
        shares = numbers(self.form, "delay", low=0, high=1)
        if shares is None:
            return None
        if not math.isclose(sum(shares), 1.0, abs_tol=1e-6) or len(shares) > MOST_DELAY:
            self.form.problem(
                f"'delay' must be shares that add up to 1, for 0, 1, 2 … rounds (at most {MOST_DELAY})",
                key="delay",
            )
            return None
        return shares

    def _profile(self) -> KnownBefore | None:
        inner = self.form.form("profile")
        if inner is None:
            return None
        share = number(inner, "share", low=0, high=1)
        events = inner.whole("events", low=1, high=10_000)
        noise = number(inner, "noise", low=0, high=_LOGIT)
        inner.finish()
        return KnownBefore(share=share or 0.0, events=events or 20, noise=noise or 0.0)

    def _drift(self, kinds: tuple[str, ...]) -> Drift | None:
        inner = self.form.form("drift")
        if inner is None:
            return None
        after = numbers(inner, "after", low=0, high=1, required=True)
        swap = _pairs(inner, kinds)
        inner.finish()
        return Drift(after=tuple(sorted(after or ())), swap=swap)


_DEFAULTS: Mapping[str, Any] = {
    "candidates": 5,
    "intercept": 0.0,
    "taste": 0.0,
    "effort": 0.0,
    "overlap": 0.0,
    "dismissed": 0.5,
    "missing": 0.0,
    "delay": (1.0,),
    "dwell_spread": 0.5,
    "profile": _NOBODY_KNOWN,
    "drift": _NO_DRIFT,
    "personas": (),
    "kinds": (),
}


def _scenarios(form: Form) -> dict[str, Scenario]:
    name = form.text("suite")
    if name is None:
        return {}
    try:
        return {scenario.id: scenario for scenario in load_suite(name).scenarios}
    except BadInput as error:
        form.problem(f"'suite' cannot be used: {error}", key="suite")
        return {}


def _kind(forms: Form, name: str) -> Kind | None:
    form = _named(forms, name)
    if form is None:
        return None
    tips = form.words("tips") if form.node("tips", required=True) else None
    dwell = form.form("dwell_s")
    completed = number(dwell, "completed", low=0, high=_DAY_S) if dwell else None
    otherwise = number(dwell, "otherwise", low=0, high=_DAY_S) if dwell else None
    for each in filter(None, (form, dwell)):
        each.finish()
    for text in tips or ():
        if not text.strip() or len(text) > 4000:
            form.problem("a tip must be a text of 1 to 4000 characters", key="tips")
    return Kind(
        id=name,
        tips=tips or (),
        dwell_completed_s=120.0 if completed is None else completed,
        dwell_otherwise_s=20.0 if otherwise is None else otherwise,
    )


def _persona(
    forms: Form, name: str, *, kinds: tuple[str, ...], scenarios: Mapping[str, Scenario]
) -> Persona | None:
    form = _named(forms, name)
    if form is None:
        return None
    share = number(form, "share", low=0.001, high=1000)
    effort = number(form, "effort", low=-_LOGIT, high=_LOGIT)
    likes = _likes(form, kinds)
    slots = form.form("slots", required=True)
    found = [_slot(slots, each, kinds=kinds, scenarios=scenarios) for each in slots.nodes] if slots else []
    if slots is not None and not slots.nodes:
        form.problem("'slots' must name at least one time of day", key="slots")
    form.finish()
    return Persona(
        id=name,
        share=1.0 if share is None else share,
        effort=effort or 0.0,
        likes=likes,
        slots=tuple(slot for slot in found if slot is not None),
    )


def _slot(
    forms: Form, name: str, *, kinds: tuple[str, ...], scenarios: Mapping[str, Scenario]
) -> Slot | None:
    form = _named(forms, name)
    if form is None:
        return None
    hour = number(form, "hour", low=0, high=24, required=True)
    weight = number(form, "weight", low=0.001, high=1000)
    effort = number(form, "effort", low=-_LOGIT, high=_LOGIT)
    weekday = form.whole("weekday", low=0, high=6)
    tasks = form.words("tasks")
    scenario = form.text("scenario")
    if scenario is not None:
        tasks = tasks or _tasks_of(form, scenario, scenarios)
    likes = _likes(form, kinds)
    form.finish()
    return Slot(
        id=name,
        hour=hour or 0.0,
        weekday=weekday,
        weight=1.0 if weight is None else weight,
        effort=effort or 0.0,
        tasks=tasks or (),
        scenario=scenario or "",
        likes=likes,
    )


def _tasks_of(form: Form, name: str, scenarios: Mapping[str, Scenario]) -> tuple[str, ...]:
    found = scenarios.get(name)
    if found is None:
        near = did_you_mean(name, scenarios)
        hint = near if scenarios else "; name a suite in 'suite:', or write 'tasks:' here"
        form.problem(f"there is no scenario '{name}' in the suite{hint}", key="scenario")
        return ()
    tasks = found.variables.get("tasks", ())
    return tuple(str(task) for task in tasks) if isinstance(tasks, (list, tuple)) else ()


def _named(forms: Form, name: str) -> Form | None:
    """The mapping under a name that is an id; a problem where either is wrong."""
    wrong = bad_id(name)
    if wrong:
        forms.problem(wrong, key=name)
    return forms.form(name)


def _likes(form: Form, kinds: tuple[str, ...]) -> dict[str, float]:
    inner = form.form("likes")
    if inner is None:
        return {}
    likes = {}
    for name in inner.nodes:
        if name not in kinds:
            near = did_you_mean(name, kinds) or f"; there are {listed(kinds)}"
            inner.problem(f"'{name}' is not a kind of tip here{near}", key=name)
            continue
        liking = number(inner, name, low=-_LOGIT, high=_LOGIT)
        likes[name] = liking or 0.0
    return likes


def _liked(persona: Persona) -> set[str]:
    return {*persona.likes, *(name for slot in persona.slots for name in slot.likes)}


def _pairs(form: Form, kinds: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    node = form.node("swap", required=True)
    if node is None:
        return ()
    plain = node.plain()
    if not isinstance(plain, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in plain):
        form.problem("'swap' must be a list of pairs of kinds, such as '- [focus, rest]'", key="swap")
        return ()
    named = [str(name) for pair in plain for name in pair]
    for name in named:
        if name not in kinds:
            near = did_you_mean(name, kinds) or f"; there are {listed(kinds)}"
            form.problem(f"'{name}' in 'swap' is not a kind of tip here{near}", key="swap")
    if len(set(named)) < len(named):
        form.problem("a kind can change places only once; 'swap' names one twice", key="swap")
    return tuple((str(one), str(other)) for one, other in plain)


def number(form: Form, key: str, *, low: float, high: float, required: bool = False) -> float | None:
    """The number under a key, a problem where it is out of bounds."""
    if form.node(key, required=required) is None:
        return None
    value = form.number(key)
    if value is not None and not low <= value <= high:
        form.problem(f"'{key}' must be from {low:g} to {high:g}, not {value:g}", key=key)
        return None
    return value


def numbers(
    form: Form, key: str, *, low: float, high: float, required: bool = False
) -> tuple[float, ...] | None:
    """The list of numbers under a key."""
    node = form.node(key, required=required)
    if node is None:
        return None
    plain = node.plain()
    good = isinstance(plain, list) and plain and all(_is_number(one) and low <= one <= high for one in plain)
    if not good:
        form.problem(f"'{key}' must be a list of numbers from {low:g} to {high:g}", key=key)
        return None
    return tuple(float(one) for one in plain)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
