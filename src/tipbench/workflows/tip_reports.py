"""What the serving half tells about itself: how policies fare, what they learned, what was served."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tipbench.bandit import decisions
from tipbench.bandit.asks import Reset
from tipbench.bandit.books import RESET, SERVE
from tipbench.bandit.shadowing import unpacked
from tipbench.bandit.standing import standing, told
from tipbench.errors import BadState, NotFound
from tipbench.workflows.tip_desk import ROUTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tipbench.bandit.books import Entry
    from tipbench.bandit.shadow import ShadowCounts
    from tipbench.workflows.access import Principal
    from tipbench.workflows.service_state import Service
    from tipbench.workflows.tip_desk import TipDesk

_TOLD_ELSEWHERE = frozenset({"decision_id", "user_id", "name", "served_x"})


def policy_of(route: str) -> str:
    """The policy that is asked for there; NotFound names those that are."""
    if route not in ROUTES:
        raise NotFound(f"no policy is served at {route!r}; there are {', '.join(ROUTES)}")
    return ROUTES[route]


def statistics(desk: TipDesk, policy: str, user_id: str | None) -> dict[str, Any]:
    """Return statistics and weights of one policy, overall or of one user. NotFound for an unknown user."""
    running = desk.now
    served = running.tips.line_up.asked_as(policy).policy
    with running.books.reading() as reading:
        found = told(standing(reading, [served], user_id=user_id))
    return {
        **found["policies"][0],
        "user_id": user_id,
        "parameters": dict(served.parameters),
        "active": running.active.policy == served.name,
        "shadows": _shadows(desk, found["shadows"]),
    }


def overview(desk: TipDesk, user_id: str | None = None) -> dict[str, Any]:
    """Return the statistics of every policy, overall or of one user; NotFound for an unknown user.

    Also the active policy, the shadows, and the reasons why shipped tips are not fresh.
    """
    running = desk.now
    every = [served.policy for served in running.tips.line_up.all()]
    with running.books.reading() as reading:
        found = told(standing(reading, every, user_id=user_id))
    return {
        "user_id": user_id,
        "active": running.active.told(),
        "policies": {one["policy"]: one for one in found["policies"]},
        "shadows": _shadows(desk, found["shadows"]),
        "pool_troubles": running.pool.troubles,
    }


def _shadows(desk: TipDesk, kept: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Every registered shadow: whether it runs, how often it agreed with what was served, what it dropped."""
    by_name = {one["signal"].removeprefix("shadow:"): one for one in kept}
    live = desk.now.shadowing.counts()
    nothing = {"decisions": 0, "agreed": 0, "agreement": None, "dropped": 0}
    return {
        name: {
            "policy": about.policy,
            "enabled": about.enabled,
            "apprentice": about.apprentice,
            **nothing,
            **by_name.get(name, {}),
            **_since_start(desk, name, live.get(name)),
        }
        for name, about in desk.shadow_policies.items()
    }


def _since_start(desk: TipDesk, name: str, counts: ShadowCounts | None) -> dict[str, Any]:
    """What this process has seen of a shadow; nothing of one that does not run."""
    if counts is None:
        return {"dropped_since_start": {}, "trouble": ""}
    shadowing = desk.now.shadowing
    found: dict[str, Any] = {
        "dropped_since_start": _with_unkept(counts.dropped, shadowing.unkept[name]),
        "trouble": counts.trouble,
    }
    if counts.apprentice:
        found["learned_since_start"] = counts.learned
        lost = _with_unkept(counts.lessons_dropped, shadowing.unkept_lessons[name])
        found["lessons_dropped_since_start"] = lost
    return found


def _with_unkept(dropped: Mapping[str, int], unkept: int) -> dict[str, int]:
    """By reason; `unkept` is what there was no time to write down, as too many waited for an answer."""
    return {**dropped, **({"unkept": unkept} if unkept else {})}


def signal_of(entry: Entry) -> dict[str, Any]:
    """An entry of the log as it is told to readers."""
    said: dict[str, Any] = {
        "seq": entry.seq,
        "ms": entry.ms,
        "signal": entry.signal,
        "decision_id": entry.decision_id,
        "user_id": entry.user_id,
        "policy": entry.policy,
    }
    try:
        return {**said, **(_served(entry) if entry.signal == SERVE else _said(entry))}
    except BadState as error:  # it must not keep a reader from all that follows it
        return {**said, "unreadable": str(error)}


def _served(entry: Entry) -> dict[str, Any]:
    logged = decisions.decode(entry)
    reply = decisions.reply_to(entry, logged)
    return {
        "tip_id": reply.tip_id,
        "kind": logged.kinds[logged.chosen],
        "propensity": reply.propensities[reply.tip_id],
        "explored": reply.explored,
        "policy_version": reply.policy_version,
        "feature_version": reply.feature_version,
        "source": logged.source,
        "absent": reply.absent,
    }


def _said(entry: Entry) -> Mapping[str, Any]:
    if entry.signal == RESET or not entry.body:
        return {}
    return {name: value for name, value in unpacked(entry).items() if name not in _TOLD_ELSEWHERE}


async def forget(service: Service, who: Principal | None, *, user_id: str | None, ip: str) -> None:
    """Forget what every policy has learned from a user, or from everybody (None); it is audited."""
    by = json.dumps({"by": who.name if who else ""}).encode()
    await service.desk.counter.ask(Reset(user_id, by))
    service.audit(who, "tips.reset", user_id or "everybody", ip=ip)
