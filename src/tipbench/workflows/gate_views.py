"""Gates as they are shown: read from this disk, checked, and with what is missing left out."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tipbench.errors import StateUnusable, TipbenchError
from tipbench.workflows import gate_files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FORM = 1
Curve = list[tuple[int, float, float | None, float | None]]


@dataclass(frozen=True, kw_only=True)
class Range:
    """A mean and its bounds; a bound that is not there is None."""

    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class ControlView:
    """A comparison whose outcome was known beforehand, and whether it came out so."""

    name: str
    held: bool
    sentence: str
    overall: Range


@dataclass(frozen=True, kw_only=True)
class LogView:
    """What the served decisions said of the challenger."""

    stance: str
    reason: str
    n: int
    users: int
    effective: float
    logged: Range | None = None
    snips: Range | None = None
    doubly_robust: Range | None = None
    gain: Range | None = None


@dataclass(frozen=True, kw_only=True)
class VerdictView:
    reason: str
    overall: Range
    personas: dict[str, Range]
    controls: list[ControlView]
    false_pass_rate: float
    off_policy: LogView | None = None


@dataclass(frozen=True, kw_only=True)
class PlanView:
    challenger: str
    challenger_version: str
    champion: str
    champion_version: str
    world: str
    world_hash: str
    number: int
    n: int
    users: int
    rounds: int
    margin: float
    guardrail: float
    level: float


@dataclass(frozen=True, kw_only=True)
class CurvesView:
    challenger: Curve
    champion: Curve


@dataclass(frozen=True, kw_only=True)
class GateView:
    """A gate that was held. `gate` is None for a rehearsal, which can promote nothing."""

    form: Literal[1]
    held_ms: int
    outcome: Literal["passed", "refused", "void"]
    passed: bool
    rehearsal: bool
    plan: PlanView
    verdict: VerdictView
    regret: dict[str, float | None]
    curves: CurvesView
    gate: str | None = None

    def told(self, *, curves: bool = True) -> dict[str, Any]:
        """In plain values."""
        return {name: value for name, value in asdict(self).items() if curves or name != "curves"}


@dataclass(frozen=True, kw_only=True)
class Gates:
    """The newest gates, the newest first, and a sentence for each file that cannot be read."""

    found: list[GateView] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)


def gate_view(record: Mapping[str, Any], *, gate_id: str | None) -> GateView:
    """A gate's record as it is shown; StateUnusable for one that has another form."""
    import msgspec

    try:
        return msgspec.convert({**record, "gate": gate_id}, GateView)
    except msgspec.ValidationError as error:
        name = f"gate {gate_id}" if gate_id else "the gate"
        raise StateUnusable(
            f"{name} was not written by this version of tipbench ({error}); run it again"
        ) from None


def one_gate(gate_id: str, folder: Path | None = None) -> GateView:
    """A gate by its id. NotFound, or StateUnusable where it was changed."""
    return gate_view(gate_files.kept(gate_id, folder or gate_files.the_folder()), gate_id=gate_id)


def newest_gates(folder: Path | None = None, *, limit: int = 20) -> Gates:
    """What was decided here last. A file that is damaged hides no other."""
    place = folder or gate_files.the_folder()
    gates = Gates()
    for gate_id in gate_files.newest(place, limit=limit):
        try:
            gates.found.append(one_gate(gate_id, place))
        except TipbenchError as error:
            gates.troubles.append(str(error))
    gates.found.sort(key=lambda one: one.held_ms, reverse=True)
    return gates
