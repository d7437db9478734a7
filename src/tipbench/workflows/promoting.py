"""`promote`: a challenger that has won its gate takes the champion's place, at first for a share of users."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from tipbench.bandit import active as actives
from tipbench.bandit import policies
from tipbench.bandit.active import Active, Place, Step
from tipbench.bandit.canary_watch import CanaryWatch
from tipbench.bandit.opening import open_books
from tipbench.bandit.serving import Tips
from tipbench.errors import BadInput, CheckFailed, Conflict, NotFound, TipbenchError
from tipbench.settings import home
from tipbench.sim.gate import GatePlan
from tipbench.sim.world_file import load_world
from tipbench.store import FILE_NAME, Store
from tipbench.workflows import gate_files
from tipbench.workflows.canary_keeper import BY_ITSELF, now_ms, read_active, step_of
from tipbench.workflows.off_policy import estimate_from_log
from tipbench.workflows.serving_state import location, opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tipbench.bandit.books import Books
    from tipbench.bandit.canary import Trial
    from tipbench.settings import Settings
    from tipbench.workflows.tokens import Doer

WORLD_ENV = "TIPBENCH_GATE_WORLD"
WORLD = "tip"
CANARY_SHARE = 0.1
RECENT_DAYS = 7
# A gate may be held with other numbers than these, and then tells something; it does not promote.
GUARDRAIL = GatePlan.guardrail
FEWEST_ROUNDS = 100
_DAY_MS = 24 * 3600 * 1000
_AHEAD_MS = 3600 * 1000
_LEAST, _MOST = 0.01, 0.9


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """Which policy is in force, what was done (newest first), and how the canary stands if there is one."""

    active: Active
    history: list[Step]
    canary: Trial | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "active": self.active.told(),
            "canary": None if self.canary is None else asdict(self.canary),
            "history": [
                {name: getattr(step, name) for name in Step.__struct_fields__} for step in self.history
            ],
        }


def promote(
    settings: Settings,  # noqa: ARG001 - as every workflow takes them
    policy: str,
    gate_id: str,
    *,
    by: Doer,
    canary: float = CANARY_SHARE,
    ip: str = "",
) -> Active:
    """Promote a policy through a gate that it has won, for a share of the users.

    Whatever speaks against it is a CheckFailed that says so, and a NotFound or BadInput where there is no
    such gate or policy. What was asked for is in the audit log either way.
    """
    audit = _Audit(by, ip, "tips.promote", policy, f"gate {gate_id}, a canary of {canary:g}")
    with audit.of_refusals():
        _check_share(canary)
        _check_name(policy)
        record = gate_files.kept(gate_id, home() / "gates")
        with _changing() as (books, was, active):
            _check_policy(policy, active)
            _check_gate(record, gate_id, policy, active)
            _check_used(gate_id, active)
            _check_log(policy)
            now = _promoted(books, active, (policy, gate_id), share=canary, who=by.who)
            with audit.of_change():
                return _changed(books, was, now)


def roll_back(settings: Settings, *, by: Doer, ip: str = "", reason: str = "") -> Active:  # noqa: ARG001
    """Go back to what the active policy has replaced, for everybody and at once."""
    audit = _Audit(by, ip, "tips.rollback", "", reason)
    with audit.of_refusals(), _changing() as (books, was, active):
        if not active.beneath:
            raise Conflict(f"there is nothing to go back to: {active.policy} has replaced no other policy")
        now = active.rolled_back(step_of("rolled back", active, by.who, reason=reason))
        with audit.of_change():
            return _changed(books, was, now)


def status(
    settings: Settings,  # noqa: ARG001 - as every workflow takes them
    *,
    known: Callable[[Active], Trial | None] = lambda _: None,
) -> Promotion:
    """Which policy serves whom, since when, and how the canary stands by its rule.

    Whoever watches the canary anyway says by `known` how it stood last, so that the log of it need not be
    read from its beginning.
    """
    try:
        with opened() as books:
            _, active = read_active(books)
            trial = (known(active) or _trial(books, active)) if active.on_trial else None
            return Promotion(active=active, history=[*reversed(active.steps)], canary=trial)
    except NotFound:
        return Promotion(active=Active(), history=[], canary=None)


def _trial(books: Books, active: Active) -> Trial:
    watch = CanaryWatch(books, active)
    watch.catch_up()
    return watch.trial(now_ms=now_ms())


# -- what must hold


def _check_share(canary: float) -> None:
    if not _LEAST <= canary <= _MOST:
        raise BadInput(f"--canary: {canary:g} is not a share from {_LEAST:g} to {_MOST:g}")


def _check_name(policy: str) -> None:
    if policy not in policies.NAMES:
        policies.make(policy)  # raises with a suggestion for a name that is not known
        raise BadInput(f"{policy} is not served; only {', '.join(policies.NAMES)} can be promoted")


def _check_policy(policy: str, active: Active) -> None:
    if active.on_trial:
        raise Conflict(
            f"{active.policy} is a canary since {_date(active.since_ms)}; wait until it is through, "
            "or end it with: tipbench promote --rollback"
        )
    if policy == active.policy:
        raise Conflict(f"{policy} is the active policy already")


def _check_gate(record: Mapping[str, Any], gate_id: str, policy: str, active: Active) -> None:
    said = objection(record, policy, active.policy)
    if said:
        raise CheckFailed(
            f"{policy} is not promoted: gate {gate_id} {said}; hold another: "
            f"tipbench sim gate --challenger {policy} --champion {active.policy} --record"
        )


def objection(record: Mapping[str, Any], policy: str, champion: str) -> str:
    """What speaks against a gate as the one that lets this policy replace that champion; empty for nothing.

    `record` is the gate as it was kept. The words follow on its id.
    """
    plan = record.get("plan", {})
    now = {name: policies.version(policies.make(name)) for name in (policy, champion)}
    world = load_world(os.environ.get(WORLD_ENV) or WORLD)
    age_ms = now_ms() - int(record.get("held_ms", 0))
    loose, short = plan.get("guardrail", 1.0), plan.get("rounds", 0)
    objections = (
        (record.get("rehearsal") is not False, "was a rehearsal"),
        (record.get("outcome") != "passed" or record.get("passed") is not True, _not_passed(record)),
        (plan.get("challenger") != policy, f"was one of {plan.get('challenger')}, not of {policy}"),
        (plan.get("challenger_version") != now[policy], f"was won by another version of {policy} than this"),
        (
            plan.get("champion") != champion,
            f"was against {plan.get('champion')}, but {champion} is active now",
        ),
        (
            plan.get("champion_version") != now[champion],
            f"was against another version of {champion} than this",
        ),
        (
            plan.get("world_hash") != world.hash,
            f"was held in the world {plan.get('world')}, and what counts is {world.id} as it is now",
        ),
        (
            loose > GUARDRAIL,
            f"let a persona be worse by {loose:g}, and {GUARDRAIL:g} is the most that counts",
        ),
        (short < FEWEST_ROUNDS, f"had {short} rounds, too few to see what is learned: {FEWEST_ROUNDS} count"),
        (age_ms > RECENT_DAYS * _DAY_MS, f"is {age_ms / _DAY_MS:.0f} days old, more than {RECENT_DAYS}"),
        (age_ms < -_AHEAD_MS, "was held in the future, by this clock"),
    )
    return next((said for holds, said in objections if holds), "")


def _not_passed(record: Mapping[str, Any]) -> str:
    return f"was not passed but {record.get('outcome')} ({record.get('verdict', {}).get('reason', '')})"


def _check_used(gate_id: str, active: Active) -> None:
    said = used(gate_id, active)
    if said:
        raise CheckFailed(f"gate {gate_id} {said}; hold another gate first")


def used(gate_id: str, active: Active) -> str:
    """What became of a gate's canary, if it ended badly: that goes before what the simulation has shown."""
    ended = [
        one for one in active.steps if (one.what, one.by, one.gate) == ("rolled back", BY_ITSELF, gate_id)
    ]
    if not ended:
        return ""
    when, why = _date(ended[-1].ms), ended[-1].reason
    return f"has been used on {when}, and its canary was rolled back because {why}"


def _check_log(policy: str) -> None:
    found = estimate_from_log(policies.make(policy))
    if found is not None and found.stance == "veto":
        raise CheckFailed(f"{policy} is not promoted: {found.reason}; see tipbench ope --challenger {policy}")


# -- what is done


def _promoted(books: Books, active: Active, won: tuple[str, str], *, share: float, who: str) -> Active:
    policy, gate_id = won
    with books.reading() as reading:
        after = reading.last_seq()
    now = now_ms()
    version = policies.version(policies.make(policy))
    step = Step(
        ms=now,
        what="promoted",
        policy=policy,
        against=active.policy,
        share=share,
        by=who,
        gate=gate_id,
    )
    place = Place(policy=policy, version=version, since_ms=now, gate=gate_id)
    return active.promoted(place, share=share, after=after, step=step)


@contextmanager
def _changing() -> Iterator[tuple[Books, str | None, Active]]:
    """The books, made where nothing was served yet, and what is in them."""
    books = open_books(location())
    try:
        yield books, *read_active(books)
    finally:
        books.close()


def _changed(books: Books, was: str | None, now: Active) -> Active:
    """In one transaction, unless somebody else has changed it meanwhile."""
    [answer] = Tips(books, {}, seed=books.seed(), clock_ms=now_ms).run([actives.change(was, now)])
    if isinstance(answer, TipbenchError):
        raise answer
    return now


class _Audit:
    """Who asks for what, for the service's audit log: every change and every refusal."""

    def __init__(self, by: Doer, ip: str, action: str, target: str, detail: str) -> None:
        self._by, self._ip = by, ip or by.ip
        self._action, self._target, self._detail = action, target, detail

    @contextmanager
    def of_change(self) -> Iterator[None]:
        """Written before it is done, and kept once it is."""
        with Store(home() / FILE_NAME) as store, store.together():
            self._add(store, self._action, self._detail)
            yield

    @contextmanager
    def of_refusals(self) -> Iterator[None]:
        try:
            yield
        except TipbenchError as error:
            with Store(home() / FILE_NAME) as store:
                self._add(store, f"{self._action}.refused", f"{self._detail}: {error}".lstrip(": "))
            raise

    def _add(self, store: Store, action: str, detail: str) -> None:
        store.audit.add(
            who=self._by.who,
            role=self._by.role,
            action=action,
            target=self._target,
            detail=detail,
            ip=self._ip,
            now_ms=now_ms(),
        )


def _date(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, timezone.utc).strftime("%Y-%m-%d")
