"""The policies at a glance: who is in force, how each fares, what the last gates said, what is shipped.

What cannot be read is told in a sentence beside the rest: a damaged gate does not hide which policy serves,
nor the other way round.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tipbench.bandit.policies import NAMES
from tipbench.errors import BadState, TipbenchError
from tipbench.sim.draws import check_size
from tipbench.sim.world_file import load_world
from tipbench.workflows import promoting
from tipbench.workflows.gate_views import Gates, newest_gates
from tipbench.workflows.shipping import shipped
from tipbench.workflows.tip_reports import overview
from tipbench.workflows.tokens import Doer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tipbench.records import Shipped
    from tipbench.workflows.access import Principal
    from tipbench.workflows.gate_views import GateView
    from tipbench.workflows.promoting import Promotion
    from tipbench.workflows.service_state import Service
    from tipbench.workflows.sim_options import GateOptions, SimOptions


@dataclass(frozen=True, kw_only=True)
class PolicyBoard:
    """`serving` is None where the serving half cannot be read; `troubles` say why, and what else is wrong.

    `pool_troubles` are what keeps tips from being fresh, by `file`, `ledger` and `engine`.
    """

    serving: Mapping[str, Any] | None
    promotion: Promotion | None
    gates: Gates
    shipped: Shipped | None
    pool_troubles: Mapping[str, str]
    troubles: tuple[str, ...]

    @property
    def active(self) -> Mapping[str, Any] | None:
        """The policy in force, as it is in the books or, where those cannot be read, as it is served by."""
        if self.promotion is not None:
            return self.promotion.active.told()
        return self.serving["active"] if self.serving else None

    @property
    def last_gate(self) -> GateView | None:
        return self.gates.found[0] if self.gates.found else None

    def told(self) -> dict[str, Any]:
        """In plain values, without the curves of all but the last gate."""
        last, told_promotion = self.last_gate, self.promotion.as_dict() if self.promotion else {}
        return {
            "active": self.active,
            "canary": told_promotion.get("canary"),
            "history": told_promotion.get("history", []),
            "policies": list(self.serving["policies"].values()) if self.serving else [],
            "shadows": dict(self.serving["shadows"]) if self.serving else {},
            "last_gate": last.told() if last else None,
            "shipped": asdict(self.shipped) if self.shipped else None,
            "pool_troubles": dict(self.pool_troubles),
            "troubles": list(self.troubles),
        }


def the_board(service: Service, *, gates: int = 10) -> PolicyBoard:
    """All of it, as it is now."""
    troubles: list[str] = []
    serving, promotion = _served(service, troubles)
    found = _tried(lambda: newest_gates(limit=gates), troubles) or Gates()
    pool = serving["pool_troubles"] if serving else {}
    return PolicyBoard(
        serving=serving,
        promotion=promotion,
        gates=found,
        shipped=None if "file" in pool else _tried(shipped, troubles),
        pool_troubles=pool,
        troubles=tuple(dict.fromkeys([*troubles, *found.troubles])),
    )


def _served(service: Service, troubles: list[str]) -> tuple[Mapping[str, Any] | None, Promotion | None]:
    """How the policies fare, and which is in force: what is damaged of one user does not hide the latter.

    Books that are away are not waited for twice.
    """
    serving = None
    try:
        serving = overview(service.desk)
    except TipbenchError as error:
        troubles.append(str(error))
        if not isinstance(error, BadState):
            return None, None
    settings, known = service.config.settings, service.desk.trial
    return serving, _tried(lambda: promoting.status(settings, known=known), troubles)


def why_not(view: GateView, board: PolicyBoard) -> str:
    """Why this gate promotes nobody now; empty where it may. Whoever promotes is asked again."""
    policy, active = view.plan.challenger, board.active or {}
    in_force = str(active.get("policy", ""))
    objections = (
        (not in_force, "Which policy is in force cannot be read."),
        (policy == in_force, f"{policy} is promoted already."),
        (policy not in NAMES, f"{policy} is not among the policies that are served here."),
        (bool(active.get("on_trial")), f"{in_force} is still on trial."),
        # Why not stands in its own sentence, which is shown with it.
        (view.outcome != "passed", "It was not passed, so it promotes nobody."),
    )
    first = next((said for holds, said in objections if holds), "")
    if first:
        return first
    try:
        said = promoting.objection(view.told(curves=False), policy, in_force) or _used(view, board)
    except TipbenchError as error:  # the world that counts cannot be read
        return str(error)
    return f"It promotes nobody: it {said}." if said else ""


def _used(view: GateView, board: PolicyBoard) -> str:
    return promoting.used(view.gate, board.promotion.active) if view.gate and board.promotion else ""


def promote(service: Service, who: Principal, policy: str, gate: str, *, canary: float) -> Mapping[str, Any]:
    """Promote a challenger through its gate; this service serves it from now on. It is audited."""
    settings = service.config.settings
    promoting.promote(settings, policy, gate, by=_doer(who), canary=canary)
    return service.desk.look().told()


def roll_back(service: Service, who: Principal) -> Mapping[str, Any]:
    """Go back to what the policy in force has replaced, at once. It is audited."""
    promoting.roll_back(service.config.settings, by=_doer(who))
    return service.desk.look().told()


def _doer(who: Principal) -> Doer:
    return Doer(who=who.name, role=who.role, ip=who.ip)


def challengers(service: Service) -> list[str]:
    """The policies that a gate may be held with: those that ship, and those that stand in the settings."""
    own = [one.policy for one in service.desk.shadow_policies.values()]
    return list(dict.fromkeys([*NAMES, *own]))


def check_size_of(options: GateOptions | SimOptions) -> None:
    """A BadInput where it would be of nothing, or of more than a machine can hold."""
    check_size(load_world(options.world), seeds=options.seeds, users=options.users, rounds=options.rounds)


def _tried(read: Callable[[], Any], troubles: list[str]) -> Any:  # noqa: ANN401 - what is read
    try:
        return read()
    except TipbenchError as error:
        troubles.append(str(error))
        return None
