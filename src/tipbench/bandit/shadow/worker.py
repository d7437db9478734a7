"""A shadow's own process: loads one policy, answers batches, and holds nothing that would be missed.

The policy may be a stranger's. So nothing here trusts what it returns, what it prints goes nowhere, its
memory and its time are bounded by the system, and the process ends when the service does.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tipbench.bandit import draws, policies
from tipbench.bandit.features import FEATURES, vectors
from tipbench.bandit.policy import Memory, explored
from tipbench.bandit.profiles import Profile
from tipbench.bandit.ridge_codec import decode_ridge, encode_ridge
from tipbench.bandit.shadow.child import OUT_OF_MEMORY
from tipbench.bandit.shadow.messages import (
    BROKEN,
    UNFIT,
    UNKNOWN,
    Batch,
    Decide,
    Decided,
    Frames,
    Learned,
    Ready,
    Refused,
    Start,
    framed,
)
from tipbench.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tipbench.bandit.policy import Policy, Weighed
    from tipbench.bandit.ridge import Array, Ridge
    from tipbench.bandit.shadow.messages import Answer, Teach

_ANY_LENGTH = 2**31
_LONGEST_WORDS = 500
_batches = msgspec.msgpack.Decoder(Batch)


class _Misanswer(Exception):
    """The policy returned what no policy may."""


class _NeverDecided(Exception):
    """A reward whose decision this shadow has not made."""


def main(connection: str) -> None:
    """Serves the service at the other end of this file descriptor until that is gone."""
    _step_back()
    with socket.socket(fileno=int(connection)) as service:
        messages = _messages(service)
        first = next(messages, None)
        if first is not None:
            _serve(service, messages, msgspec.msgpack.decode(first, type=Start))
    os._exit(0)  # whatever threads the policy has started


def _serve(service: socket.socket, messages: Iterator[bytes], start: Start) -> None:
    _bound_memory(start.memory_mb * 2**20)
    with _alarm(start.start_s):
        ready, policy = _loaded(start.policy)
    service.sendall(framed(ready))
    if policy is None:
        return
    most_resident = _resident() + start.memory_mb * 2**20
    for message in messages:
        desk = _Desk(policy=policy, batch=_batches.decode(message))
        for ask in desk.batch.asks:
            with _alarm(start.deadline_s):
                said = _answered(desk, ask)
            if _resident() > most_resident:
                os._exit(OUT_OF_MEMORY)
            service.sendall(framed(said))


def _messages(service: socket.socket) -> Iterator[bytes]:
    frames = Frames(_ANY_LENGTH)
    with contextlib.suppress(ConnectionError):
        while some := service.recv(2**18):
            yield from frames.feed(some)


def _step_back() -> None:
    """Whoever answers people goes first."""
    os.nice(10)
    # Where Linux shares time out by session, niceness counts within one only: this is the session's own.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text("10", encoding="ascii")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _bound_memory(more: int) -> None:
    """No address space beyond this, where the system knows how much there is: a MemoryError comes instead."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except OSError:
        return
    most = pages * resource.getpagesize() + more
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _resident() -> int:
    """The most bytes that this process has held in memory at once."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


@contextlib.contextmanager
def _alarm(within_s: float) -> Iterator[None]:
    """Ends this process when its work hangs and there is no service left to see that.

    By the system, and not in Python: what hangs may be holding the interpreter. The service ends it sooner.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 2 * within_s + 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _loaded(spec: str) -> tuple[Ready | Refused, Policy | None]:
    try:
        policy = policies.make(spec)
        said = Ready(
            policy=policy.name, policy_version=policies.version(policy), feature_version=policy.features
        )
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except Exception as error:  # noqa: BLE001 - a stranger's module may raise anything: it is told on
        return Refused(decision_id="", reason=BROKEN, said=_words(error)), None
    return said, policy


def _answered(desk: _Desk, ask: Decide | Teach) -> Answer:
    began = time.perf_counter_ns()
    try:
        return desk.decide(ask, began) if isinstance(ask, Decide) else desk.learn(ask, began)
    except MemoryError:
        # Not even an answer: what the policy still holds would be in the way of the next decision.
        os._exit(OUT_OF_MEMORY)
    except BadInput as error:
        return Refused(decision_id=ask.decision_id, reason=UNFIT, said=_words(error))
    except _NeverDecided as error:
        return Refused(decision_id=ask.decision_id, reason=UNKNOWN, said=_words(error))
    except SystemExit as left:
        os._exit(left.code if isinstance(left.code, int) else 1)
    except Exception as error:  # noqa: BLE001 - a stranger's policy may raise anything: that is what is counted
        return Refused(decision_id=ask.decision_id, reason=BROKEN, said=_words(error))


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_LONGEST_WORDS]


@dataclass(frozen=True, kw_only=True)
class _Desk:
    """A batch at work: what is remembered of its users changes from lesson to lesson."""

    policy: Policy
    batch: Batch
    own: dict[str, Ridge] = field(default_factory=dict)
    pooled: list[Ridge] = field(default_factory=list)  # the newest last
    served: dict[str, Array] = field(default_factory=dict)

    def decide(self, ask: Decide, began: int) -> Decided:
        request = ask.request
        made = vectors(self.policy.features, request, ask.profile or Profile())
        weighed = _checked(self.policy.weigh(self._memory(ask.user_id), made.x), len(request.candidates))
        chosen = int(draws.pick(weighed.propensities, ask.u))
        ids = [candidate.id for candidate in request.candidates]
        self.served[ask.decision_id] = x = made.x[ids.index(ask.served)]
        return Decided(
            decision_id=ask.decision_id,
            tip_id=ids[chosen],
            scores=dict(zip(ids, weighed.scores.tolist(), strict=True)),
            propensities=dict(zip(ids, weighed.propensities.tolist(), strict=True)),
            explored=explored(weighed, chosen),
            absent=list(made.absent),
            served_x=x.astype("<f8").tobytes(),
            took_us=(time.perf_counter_ns() - began) // 1000,
        )

    def learn(self, ask: Teach, began: int) -> Learned:
        x = self._vector(ask)
        memory = self.policy.learn(self._memory(ask.user_id), x, np.asarray(ask.reward))
        own, pooled = _encoded(memory.own), _encoded(memory.pooled)
        if memory.own is not None:
            self.own[ask.user_id] = memory.own
        if memory.pooled is not None:
            self.pooled.append(memory.pooled)
        took_us = (time.perf_counter_ns() - began) // 1000
        return Learned(decision_id=ask.decision_id, own=own, pooled=pooled, took_us=took_us)

    def _vector(self, ask: Teach) -> Array:
        """The served tip's vector, from this batch or from when the decision was made."""
        if ask.decision_id in self.served:
            return self.served[ask.decision_id]
        if ask.x is None:
            raise _NeverDecided(f"decision {ask.decision_id} was not made by this shadow")
        dims = FEATURES[self.policy.features].dims
        if len(ask.x) != 8 * dims:
            raise BadInput(
                f"decision {ask.decision_id} was not made by this shadow, and what served it reads other "
                "features"
            )
        return np.frombuffer(ask.x, dtype="<f8").astype(np.float64)

    def _memory(self, user_id: str) -> Memory:
        fresh = self.policy.fresh()
        own = self.own.get(user_id) or _decoded(self.batch.own.get(user_id), fresh.own, f"of user {user_id}")
        newest = self.pooled[-1] if self.pooled else None
        pooled = newest or _decoded(self.batch.pooled, fresh.pooled, "of everybody")
        return Memory(own=own, pooled=pooled)


def _decoded(body: bytes | None, fresh: Ridge | None, whose: str) -> Ridge | None:
    """What was kept; a part that the policy does not keep stays None, one that was never kept is fresh."""
    if body is None or fresh is None:
        return fresh
    return decode_ridge(body, dims=fresh.dims, what=f"the shadow's memory {whose}")


def _encoded(ridge: Ridge | None) -> bytes | None:
    """Bytes that can be read again: what is not finite must not be kept."""
    if ridge is None:
        return None
    body = encode_ridge(ridge)
    decode_ridge(body, dims=ridge.dims, what="what the policy learned")
    return body


def _checked(weighed: Weighed, count: int) -> Weighed:
    for said, numbers in (("scores", weighed.scores), ("propensities", weighed.propensities)):
        if np.shape(numbers) != (count,):
            raise _Misanswer(f"{said} of shape {np.shape(numbers)} for {count} candidates")
        if not np.isfinite(numbers).all():
            raise _Misanswer(f"{said} that are not finite")
    total = float(weighed.propensities.sum())
    if weighed.propensities.min() < 0.0 or abs(total - 1.0) > 1e-6:
        raise _Misanswer(f"propensities that sum to {total} or are below 0")
    return weighed
