"""The simulation through the serving half: in this process, and over real HTTP on loopback."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from sim_samples import drawn
from tipbench.bandit import policies
from tipbench.bandit.asked import RewardReply, RewardRequest, ScoreReply, ScoreRequest
from tipbench.bandit.asks import Reward, Score
from tipbench.bandit.decisions import decode
from tipbench.bandit.serving import Tips
from tipbench.bandit.sqlite_books import SqliteBooks
from tipbench.errors import BadInput, TipbenchError, Unavailable
from tipbench.sim.over_http import HttpService, agreement, route, simulate_over
from tipbench.sim.runner import Run, simulate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tipbench.bandit.ridge import Array

SEED = b"of the service"
ALL = {name: policies.make(name) for name in policies.NAMES}


class Direct:
    """The serving half itself, without a network; remembers the requests."""

    def __init__(self, folder: Path) -> None:
        self.books = SqliteBooks(folder / "tips.db")
        self.tips = Tips(self.books, ALL, seed=SEED, clock_ms=lambda: 1_000_000)
        self.asked: list[ScoreRequest] = []
        self.lock = threading.Lock()

    def score(self, policy: str, requests: Sequence[ScoreRequest]) -> list[ScoreReply]:
        self.asked += requests
        return [
            self._good(answer, ScoreReply) for answer in self.run([Score(policy, each) for each in requests])
        ]

    def reward(self, policy: str, requests: Sequence[RewardRequest], *, in_order: bool) -> None:  # noqa: ARG002
        for answer in self.run([Reward(policy, each) for each in requests]):
            assert self._good(answer, RewardReply).learned

    def run(self, asks: list[Any]) -> list[Any]:
        with self.lock:
            return self.tips.run(asks)

    def _good(self, answer: Any, kind: Any) -> Any:  # noqa: ANN401 - either kind of answer
        assert isinstance(answer, kind), answer
        return answer


@pytest.fixture
def direct(tmp_path: Path) -> Iterator[Direct]:
    service = Direct(tmp_path)
    yield service
    service.books.close()


@pytest.mark.parametrize("name", policies.NAMES)
def test_the_serving_half_gives_the_same_numbers(name: str, direct: Direct) -> None:
    """Choices and propensities are those of the simulation in process, to the last bit of the propensity.

    One seed, because a service keeps one pooled memory; delayed and missing rewards, both kinds of users.
    """
    draws = drawn(seeds=1, users=12, rounds=30)
    policy = ALL[name]
    served = simulate_over(direct, policy, draws, run="a")
    here = simulate(policy, draws, serve_seed=SEED)
    assert np.array_equal(served.chosen, here.chosen)
    assert np.array_equal(served.propensity, here.propensity)
    assert agreement(served, here) == 1.0
    assert served.version == policies.version(policy)


def test_seeds_do_not_meet_in_a_service(direct: Direct) -> None:
    """Several seeds through one service have users of their own: each starts from nothing."""
    draws = drawn(seeds=3, users=4, rounds=10)
    served = simulate_over(direct, ALL["egreedy-v2"], draws, run="a")
    assert np.array_equal(served.chosen, simulate(ALL["egreedy-v2"], draws, serve_seed=SEED).chosen)


def test_runs_do_not_meet_in_a_service(direct: Direct) -> None:
    """A second run under another name starts from nothing and makes the same choices again."""
    draws = drawn(seeds=1, users=4, rounds=10)
    first, second = (simulate_over(direct, ALL["linucb"], draws, run=run) for run in ("a", "b"))
    assert np.array_equal(first.chosen, second.chosen)


def test_profile_features_are_sent_to_those_who_read_them(direct: Direct) -> None:
    """egreedy-v2 and hybrid get profile features of users that are known; egreedy and LinUCB get none."""
    draws = drawn(seeds=1, users=12, rounds=1)
    for name, reads in (("egreedy", False), ("linucb", False), ("egreedy-v2", True), ("hybrid", True)):
        direct.asked.clear()
        simulate_over(direct, ALL[name], draws, run=name)
        sent = [each.profile_features is not None for each in direct.asked]
        assert sent == (draws.before.known[0].tolist() if reads else [False] * 12)


def test_a_pooled_policy_says_what_it_shares(direct: Direct) -> None:
    """The trace of a policy that learns from all users together has a note, that of another has none."""
    draws = drawn(seeds=1, users=4, rounds=1)
    assert "does not start from nothing" in simulate_over(direct, ALL["hybrid"], draws, run="a").notes[0]
    assert simulate_over(direct, ALL["egreedy"], draws, run="a").notes == ()


@contextmanager
def serving(direct: Direct, *, flaky: bool = False) -> Iterator[str]:
    """The two routes over HTTP. With `flaky`, every third request is answered 503 after it was done."""
    count = iter(range(10**9))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            _, kind, *rest = self.path.split("/")
            name = "-".join(rest)
            ask = (
                Score(name, msgspec.json.decode(body, type=ScoreRequest))
                if kind == "score"
                else Reward(name, msgspec.json.decode(body, type=RewardRequest))
            )
            [answer] = direct.run([ask])
            if isinstance(answer, TipbenchError):
                self.reply(404, str(answer).encode())
            elif flaky and next(count) % 3 == 0:
                self.reply(503, b"busy")
            else:
                self.reply(200, msgspec.json.encode(answer))

        def reply(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("flaky", [False, True])
@pytest.mark.parametrize("name", ["egreedy-v2", "hybrid"])
def test_over_http_gives_the_same_numbers(name: str, direct: Direct, *, flaky: bool) -> None:
    """Over real HTTP, also when replies get lost and are asked for again: everything counts once."""
    draws = drawn(seeds=1, users=4, rounds=4 if flaky else 8)
    with serving(direct, flaky=flaky) as url, HttpService.at(url) as service:
        served = simulate_over(service, ALL[name], draws, run="a")
    here = simulate(ALL[name], draws, serve_seed=SEED)
    assert np.array_equal(served.chosen, here.chosen)
    assert np.array_equal(served.propensity, here.propensity)


def test_a_service_that_is_not_there() -> None:
    """The message names the address and what to start."""
    with HttpService.at("http://127.0.0.1:9") as service, pytest.raises(Unavailable, match="tipbench serve"):
        simulate_over(service, ALL["egreedy"], drawn(seeds=1, users=4, rounds=1), run="a")


@pytest.mark.parametrize("url", ["http://[::1", "127.0.0.1:8801", "localhost", "ftp://127.0.0.1"])
def test_what_is_no_address_is_told(url: str) -> None:
    """An address that cannot be one is bad input."""
    with pytest.raises(BadInput, match="--url"), HttpService.at(url):
        pass


def test_what_a_service_refuses_is_told(direct: Direct) -> None:
    """A policy that the service does not have is bad input, in the service's own words."""
    direct.tips = Tips(direct.books, {"egreedy": ALL["egreedy"]}, seed=SEED, clock_ms=lambda: 0)
    draws = drawn(seeds=1, users=4, rounds=1)
    with (
        serving(direct) as url,
        HttpService.at(url) as service,
        pytest.raises(BadInput, match=r"404.*hybrid"),
    ):
        simulate_over(service, ALL["hybrid"], draws, run="a")


def test_routes() -> None:
    """Policies are asked for where the service has them."""
    assert [route(name) for name in ("egreedy", "egreedy-v2", "linucb")] == [
        "egreedy",
        "egreedy/v2",
        "linucb",
    ]


class Seeing(Run):
    """A simulation that keeps what the policy saw."""

    def weigh(self, round_: int, x: Array) -> Array:
        self.seen = [*getattr(self, "seen", []), x]
        return super().weigh(round_, x)


@pytest.mark.parametrize("name", ["egreedy", "egreedy-v2"])
def test_features_are_the_same_to_the_last_bit(name: str, direct: Direct) -> None:
    """What the service logged as features is what the simulation worked out for all users at once."""
    draws = drawn(seeds=1, users=8, rounds=25)
    simulate_over(direct, ALL[name], draws, run="a")
    here = Seeing(ALL[name], draws)
    for round_, u in enumerate(draws.exploration(SEED)):
        here.decide(round_, u)
        here.learn(round_)
    with direct.books.reading() as reading:
        logged = [decode(past.entry).matrix() for past in reading.served(after=0, limit=10_000)]
    assert np.array_equal(np.array(logged).reshape(25, 1, 8, 5, -1), np.array(here.seen))
