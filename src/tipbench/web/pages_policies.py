"""Policies: which one is in force, how they fare, what gates said, and the steps that follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response

from tipbench.sim.world_file import SHIPPED
from tipbench.web.guard import as_sentence, need
from tipbench.web.pages_jobs import at_work
from tipbench.web.policy_sheet import finding_rows, gate_sheet, learned, policy_rows, shadow_rows
from tipbench.web.render import ago, page
from tipbench.workflows.access import Principal
from tipbench.workflows.gate_views import one_gate
from tipbench.workflows.policy_board import challengers, the_board, why_not
from tipbench.workflows.service_state import Service, now_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tipbench.store import Job
    from tipbench.workflows.policy_board import PolicyBoard

router = APIRouter(include_in_schema=False)

NOBODY: Mapping[str, Any] = {
    "policy": "",
    "since_ms": 0,
    "gate": "",
    "replaced": "",
    "on_trial": False,
    "share": 1.0,
}


@router.get("/policies")
def the_policies(request: Request, gate: str = "", _who: Principal = need("admin")) -> Response:
    """Everything about policies; with `gate`, that gate in place of the last one."""
    service: Service = request.app.state.service
    board = the_board(service)
    shown = one_gate(gate) if gate else board.last_gate
    serving = board.serving or {"policies": {}, "shadows": {}}
    active = board.active or NOBODY
    now = now_ms()
    return page(
        request,
        "policies.html.j2",
        board=board,
        active=active,
        since=ago(active["since_ms"], now) if active["since_ms"] else "",
        sentence=_sentence(active),
        rows=policy_rows(serving, active),
        served=any(one["decisions"] for one in serving["policies"].values()),
        at=request.url.netloc,
        canary=board.promotion.canary if board.promotion else None,
        findings=finding_rows(board.promotion.canary) if board.promotion else [],
        steps=[(one, ago(one.ms, now)) for one in board.promotion.history] if board.promotion else [],
        learned=learned(serving),
        shadows=shadow_rows(serving["shadows"]),
        gate=gate_sheet(shown) if shown else None,
        held=ago(shown.held_ms, now) if shown else "",
        is_last=shown == board.last_gate,
        why_not=why_not(shown, board) if shown else "",
        earlier=[(one, ago(one.held_ms, now)) for one in board.gates.found],
        shipped_age=ago(board.shipped.shipped_ms, now) if board.shipped else "",
        troubles=[as_sentence(one) for one in board.troubles],
        pool_troubles=[as_sentence(one) for one in board.pool_troubles.values()],
        running=_simulating(service),
        asked=_asked(service, board),
    )


def _sentence(active: Mapping[str, Any]) -> str:
    if not active["policy"]:
        return "Which policy is in force cannot be read"
    if active["on_trial"]:
        share = f"{100 * active['share']:.3g} %"
        others = f"{active['replaced']} serves the others"
        return f"{active['policy']} is on trial with {share} of the users; {others}"
    return f"{active['policy']} picks the tips that apps ask for"


def _simulating(service: Service) -> list[Job]:
    return [job for job in at_work(service) if job.kind in {"gate", "sim"}]


def _asked(service: Service, board: PolicyBoard) -> dict[str, Any]:
    """What the dialogs offer, and what they begin with."""
    known = challengers(service)
    champion = board.active["policy"] if board.active else known[0]
    shadows = [one.policy for one in service.desk.shadow_policies.values()]
    wanted = [name for name in [*shadows, *known] if name != champion]
    return {"policies": known, "champion": champion, "challenger": wanted[0], "worlds": SHIPPED}
