"""Policies and gates: who serves, who wants to, and the steps from one to the other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from tipbench.api.access import Admin, GuardedRoute, TheService
from tipbench.api.errors import BadFields, documented
from tipbench.api.fields import Strict, Text
from tipbench.api.jobs import Started, started
from tipbench.errors import BadInput
from tipbench.workflows import policy_board
from tipbench.workflows.gate_views import GateView, newest_gates, one_gate
from tipbench.workflows.policy_board import challengers, check_size_of, the_board
from tipbench.workflows.service_state import Service
from tipbench.workflows.sim_options import GateOptions, SimOptions

router = APIRouter(
    prefix="/api", tags=["policies"], route_class=GuardedRoute, responses=documented(404, 422, 503)
)
_OPTION = re.compile(r"--([a-z]+):? (.+)", re.DOTALL)

World = Literal["tip", "drift", "null"]
Users = Annotated[int, Field(ge=1, le=10_000, description="people in each world")]
Rounds = Annotated[int, Field(ge=1, le=100_000, description="tips shown to each person")]


class GateRequest(Strict):
    """A gate to hold. Without `record` it is a rehearsal, which can promote nothing."""

    challenger: Text
    champion: Text | None = Field(default=None, description="left out: the policy in force")
    world: World = "tip"
    margin: float = Field(default=0.0, ge=0, lt=1, description="by how much its regret must be lower")
    guardrail: float = Field(default=0.02, ge=0, lt=1, description="by how much it may be worse for any one")
    seeds: int = Field(default=20, ge=5, le=1000, description="worlds drawn; intervals are over these")
    users: Users = 40
    rounds: Rounds = 300
    record: bool = True


class SimulationRequest(Strict):
    """Policies to be tried side by side."""

    policies: list[Text] = Field(min_length=1, max_length=6)
    world: World = "tip"
    seeds: int = Field(default=20, ge=1, le=1000)
    users: Users = 40
    rounds: Rounds = 300


class PromoteRequest(Strict):
    """A challenger, and the gate that it has won. A share of the users get it first."""

    policy: Text
    gate: Text
    canary: float = Field(default=0.1, ge=0.01, le=0.9, description="the share of the users")


class ActiveAnswer(BaseModel):
    """The policy in force. While it is on trial, `replaced` serves all but `share` of the users."""

    policy: str
    version: str
    since_ms: int
    gate: str
    replaced: str
    on_trial: bool
    share: float


class GateRow(BaseModel):
    """A gate in short."""

    gate: str
    held_ms: int
    outcome: str
    challenger: str
    challenger_version: str
    champion: str
    world: str
    number: int
    reason: str


class GateList(BaseModel):
    gates: list[GateRow]
    troubles: list[str] = Field(description="a sentence for each that cannot be read")


@router.get("/policies")
def policies(service: TheService, _who: Admin) -> dict[str, Any]:
    """The policy in force, how each fares, shadows, the last gate, and what is shipped."""
    return the_board(service).told()


@router.post("/policies/promote", responses=documented(409))
def promote(service: TheService, who: Admin, body: PromoteRequest) -> ActiveAnswer:
    """Promote a challenger through a gate that it has won. 409 says what speaks against it."""
    return ActiveAnswer(**policy_board.promote(service, who, body.policy, body.gate, canary=body.canary))


@router.post("/policies/rollback", responses=documented(409))
def rollback(service: TheService, who: Admin) -> ActiveAnswer:
    """Go back to what the policy in force has replaced, for everybody and at once."""
    return ActiveAnswer(**policy_board.roll_back(service, who))


@router.get("/gates")
def gates(_service: TheService, _who: Admin, limit: Annotated[int, Query(ge=1, le=200)] = 20) -> GateList:
    """The gates that were held last, the newest first."""
    found = newest_gates(limit=limit)
    return GateList(gates=[_row(one) for one in found.found], troubles=found.troubles)


@router.get("/gates/{gate_id}")
def gate(_service: TheService, _who: Admin, gate_id: str) -> GateView:
    """All there is to know of a gate: plan, verdict, controls, the off-policy estimate, regret curves."""
    return one_gate(gate_id)


@router.post("/gates", status_code=202, responses=documented(409))
def hold(service: TheService, who: Admin, body: GateRequest) -> Started:
    """Hold a gate in a process of its own: the job's id, where to watch it."""
    champion = body.champion or service.desk.now.active.policy
    options = GateOptions(**{**body.model_dump(), "champion": champion})
    _check_known(service, challenger=[options.challenger], champion=[champion])
    with _by_field():
        check_size_of(options)
    return started(service, who, service.jobs.start_gate(service.settings(), options, by=who.name))


@router.post("/simulations", status_code=202, responses=documented(409))
def simulate(service: TheService, who: Admin, body: SimulationRequest) -> Started:
    """Try policies side by side in a made-up world, in a process of its own."""
    options = SimOptions(**{**body.model_dump(), "policies": tuple(body.policies)})
    _check_known(service, policies=body.policies)
    if len(set(body.policies)) < len(body.policies):
        raise BadFields({"policies": "one of them is named twice"})
    with _by_field():
        check_size_of(options)
    return started(service, who, service.jobs.start_simulation(service.settings(), options, by=who.name))


def _check_known(service: Service, **named: list[str]) -> None:
    """Only what the service knows is run: a policy's name could else load any module."""
    known = challengers(service)
    wrong = {
        field: f"there is no policy {name!r} here; there are {', '.join(known)}"
        for field, names in named.items()
        for name in names
        if name not in known
    }
    if wrong:
        raise BadFields(wrong)


@contextmanager
def _by_field() -> Iterator[None]:
    """What is said of an option of the command is said of the field of that name."""
    try:
        yield
    except BadInput as error:
        option = _OPTION.fullmatch(str(error))
        if option is None:
            raise
        raise BadFields({option[1]: option[2]}) from None


def _row(one: GateView) -> GateRow:
    plan = one.plan
    return GateRow(
        gate=one.gate or "",
        held_ms=one.held_ms,
        outcome=one.outcome,
        challenger=plan.challenger,
        challenger_version=plan.challenger_version,
        champion=plan.champion,
        world=plan.world,
        number=plan.number,
        reason=one.verdict.reason,
    )
