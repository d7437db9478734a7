"""The same simulation through a live service: `POST /score/…` and `POST /reward/…`, one request at a time."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import httpx
import msgspec
import numpy as np

from tipbench.bandit.asked import RewardRequest, ScoreReply, ScoreRequest
from tipbench.errors import BadInput, Unavailable
from tipbench.sim.draws import request_id
from tipbench.sim.scenery import candidate
from tipbench.sim.trace import Trace
from tipbench.text import without_login

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tipbench.bandit.policy import Policy
    from tipbench.bandit.ridge import Array
    from tipbench.sim.draws import Draws
    from tipbench.sim.schedule import Wave

_AT_ONCE = 16
_TIMEOUT_S = 30.0
_PAUSES_S = (0.2, 1.0)


class Service(Protocol):
    """Whoever decides and learns: a live service, or the serving half itself."""

    def score(self, policy: str, requests: Sequence[ScoreRequest]) -> list[ScoreReply]:
        """A decision for each; they do not depend on each other's order."""

    def reward(self, policy: str, requests: Sequence[RewardRequest], *, in_order: bool) -> None:
        """What came of decisions. `in_order` where the order in which they are learned matters."""


def route(policy: str) -> str:
    """Where a policy is asked for: `egreedy-v2` is at `egreedy/v2`."""
    return policy.removesuffix("-v2") + "/v2" if policy.endswith("-v2") else policy


def simulate_over(
    service: Service,
    policy: Policy,
    draws: Draws,
    *,
    run: str,
    tick: Callable[[int], None] | None = None,
) -> Trace:
    """What the service's policy does in this world. `run` keeps its users apart from those of other runs."""
    asking = _Asking(service, policy, draws, run)
    for round_ in range(draws.shape[0]):
        asking.decide(round_)
        asking.learn(round_)
        if tick is not None:
            tick(round_ + 1)
    return Trace(
        policy=policy.name,
        version=asking.version,
        draws=draws,
        chosen=asking.chosen,
        propensity=asking.propensity,
        notes=asking.notes(),
    )


class _Asking:
    """A simulation on its way through a service."""

    def __init__(self, service: Service, policy: Policy, draws: Draws, run: str) -> None:
        self.service, self.policy, self.draws, self.run = service, policy, draws, run
        shape = draws.context.shape
        self.chosen = np.zeros(shape, dtype=int)
        self.propensity = np.zeros(shape)
        self.decisions = np.empty(shape, dtype=object)
        self.version = ""
        self.pooled = policy.fresh().pooled is not None
        self.candidates = [
            candidate(draws.scenery.world, tip) for tip in range(len(draws.scenery.world.tips))
        ]

    def notes(self) -> tuple[str, ...]:
        if not self.pooled:
            return ()
        said = (
            f"{self.policy.name} learns from all users of the service together: in a service that has served "
            "others before, or with more than one seed, it does not start from nothing as it does in process"
        )
        return (said,)

    def decide(self, round_: int) -> None:
        places = [(seed, user) for seed in range(self.draws.shape[1]) for user in range(self.draws.shape[2])]
        requests = [self._request(round_, seed, user) for seed, user in places]
        replies = self.service.score(self.policy.name, requests)
        for place, request, reply in zip(places, requests, replies, strict=True):
            ids = [each.id for each in request.candidates]
            if reply.tip_id not in ids:
                raise Unavailable(
                    f"the service answered with the tip {reply.tip_id!r}, which was not offered"
                )
            at = (round_, *place)
            self.chosen[at] = ids.index(reply.tip_id)
            self.propensity[at] = reply.propensities[reply.tip_id]
            self.decisions[at] = reply.decision_id
            self.version = reply.policy_version

    def _request(self, round_: int, seed: int, user: int) -> ScoreRequest:
        draws = self.draws
        return ScoreRequest(
            user_id=f"{self.run}-{self.policy.name}-{draws.seeds[seed]}-{user}",
            request_id=request_id(draws.seeds[seed], user, round_),
            context=draws.scenery.contexts[draws.context[round_, seed, user]],
            candidates=[self.candidates[tip] for tip in draws.tips[round_, seed, user]],
            profile_features=self._profile(seed, user) if self.policy.features == "v2" else None,
        )

    def _profile(self, seed: int, user: int) -> dict[str, Any] | None:
        before = self.draws.before
        if not before.known[seed, user]:
            return None
        kinds = self.draws.scenery.world.kinds
        return {
            kind.id: {name: float(getattr(before, name)[seed, user, number]) for name in before.NAMES}
            for number, kind in enumerate(kinds)
        }

    def learn(self, round_: int) -> None:
        for wave in self.draws.waves(apart=self.pooled)[round_]:
            self.service.reward(self.policy.name, self._rewards(wave), in_order=self.pooled)

    def _rewards(self, wave: Wave) -> list[RewardRequest]:
        place = (*wave.place, self.chosen[wave.place])
        reward = self.draws.rewarded[place]
        kind = self.draws.scenery.kind[self.draws.tips[place]]
        dwell = self.draws.dwell_s(kind, reward, wave.place)
        waved = self.draws.dismissed[wave.place]
        return [
            _told(str(self.decisions[place]), bool(done), bool(away), float(seconds))
            for place, done, away, seconds in zip(
                zip(*(each.tolist() for each in wave.place), strict=True), reward, waved, dwell, strict=True
            )
        ]


def _told(decision: str, completed: bool, waved_away: bool, dwell_s: float) -> RewardRequest:  # noqa: FBT001
    """A tip that is neither completed nor waved away was left alone, which is a reward of 0 as well."""
    event = "completed" if completed else "dismissed" if waved_away else "left"
    worth = 0.0 if event == "left" else None
    return RewardRequest(decision_id=decision, reward_id="end", event=event, reward=worth, dwell_s=dwell_s)


class HttpService:
    """A live service. Every request may be sent again: ids make sure that it counts once."""

    def __init__(self, client: httpx.Client, url: str) -> None:
        self._client, self._url = client, url
        self._pool = ThreadPoolExecutor(_AT_ONCE)

    @classmethod
    @contextmanager
    def at(cls, url: str, *, token: str = "") -> Iterator[HttpService]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        wrong = BadInput(
            f"--url: {without_login(url, is_wrong=True)!r} is not an address such as http://127.0.0.1:8801"
        )
        if not url.startswith(("http://", "https://")):
            raise wrong
        try:
            opened = httpx.Client(base_url=url, headers=headers, timeout=_TIMEOUT_S)
        except (httpx.InvalidURL, ValueError):
            raise wrong from None
        with opened as client:
            service = cls(client, url)
            with service._pool:
                yield service

    def score(self, policy: str, requests: Sequence[ScoreRequest]) -> list[ScoreReply]:
        path = f"/score/{route(policy)}"
        return list(self._pool.map(lambda each: self._read(self._post(path, each)), requests))

    def reward(self, policy: str, requests: Sequence[RewardRequest], *, in_order: bool) -> None:
        path = f"/reward/{route(policy)}"
        if in_order:
            for each in requests:
                self._post(path, each)
        else:
            list(self._pool.map(lambda each: self._post(path, each), requests))

    def _read(self, body: bytes) -> ScoreReply:
        try:
            return msgspec.json.decode(body, type=ScoreReply)
        except msgspec.MsgspecError as error:
            raise Unavailable(f"{self._url} does not answer as tipbench serve does ({error})") from None

    def _post(
        self, path: str, body: ScoreRequest | RewardRequest, pauses: tuple[float, ...] = _PAUSES_S
    ) -> bytes:
        try:
            reply = self._client.post(
                path, content=msgspec.json.encode(body), headers={"Content-Type": "application/json"}
            )
        except httpx.TransportError as error:
            if not pauses:
                raise Unavailable(
                    f"{self._url} cannot be reached ({error}); start it with: tipbench serve --only tips"
                ) from None
            reply = None
        if reply is None or (reply.status_code == 503 and pauses):
            time.sleep(pauses[0])
            return self._post(path, body, pauses[1:])
        if reply.status_code != 200:
            raise _refused(self._url + path, reply.status_code, reply.text)
        return bytes(reply.content)


def _refused(where: str, status: int, text: str) -> BadInput | Unavailable:
    said = " ".join(text.split())[:300]
    kind = Unavailable if status >= 500 else BadInput
    return kind(f"{where} answered {status}: {said}")


def agreement(one: Trace, other: Trace) -> float:
    """The share of decisions at which both chose the same tip."""
    same: Array = one.chosen == other.chosen
    return float(same.mean())
