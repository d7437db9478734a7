"""What a service of tips keeps: over restarts, over `kill -9`, for several at once, and when damaged."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import httpx
import psycopg
import pytest

from postgres_cluster import running_cluster
from shadow_world import until
from tip_service import AWAY, ONLY_TIPS, SCORED, TipService, asked, environment, head, parsed, serving
from tipbench.bandit import active
from tipbench.bandit.asks import Choose
from tipbench.bandit.opening import open_books
from tipbench.store import Store
from tips_world import make_tips, one

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from postgres_cluster import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as found:
        yield found


def choose(location: str, policy: str) -> None:
    """Make a policy the active one, as another process does."""
    books = open_books(location)
    one(make_tips(books), Choose(active.KEY, active.Active(policy=policy).encode()))
    books.close()


def test_a_repeat_has_the_same_bytes_after_a_restart_and_under_another_policy(tmp_path: Path) -> None:
    """What was answered once is answered again; what is new is decided by the policy that is active now.

    The first start has drawn a seed and kept it with the rest.
    """
    home = tmp_path / "home"
    with serving(home, *ONLY_TIPS, TIPBENCH_SERVE_SEED="") as service:
        before = {route: service.score(route, request_id="r") for route in SCORED}
        tip = service.recommend(request_id="r")
        assert service.reward(tip).json()["learned"]
        choose(str(home / "tips.db"), "hybrid")
        until(lambda: service.get("/stats")["active"]["policy"] == "hybrid")
        assert service.recommend(request_id="r").content == tip.content
        assert service.recommend(request_id="new").json()["policy"] == "hybrid"
        assert service.get("/stats/hybrid")["active"] is True
    with serving(home, *ONLY_TIPS, TIPBENCH_SERVE_SEED="") as service:
        assert {route: service.score(route, request_id="r").content for route in SCORED} == {
            route: made.content for route, made in before.items()
        }
        assert service.recommend(request_id="r").content == tip.content
        assert service.reward(tip).json()["ignored"]
        assert service.get("/stats/egreedy", user_id="anna")["rewards"] == 1


async def tell_until_it_dies(url: str, ids: list[str], acknowledged: set[str]) -> None:
    async def tell(client: httpx.AsyncClient, some: list[str]) -> None:
        for decision in some:
            body = {"decision_id": decision, "reward_id": "r", "event": "completed"}
            try:
                answer = await client.post("/reward", json=body)
            except httpx.TransportError:
                return
            if answer.status_code == 200:
                acknowledged.add(decision)

    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as client:
        await asyncio.gather(*(tell(client, ids[at::8]) for at in range(8)))


def test_a_killed_service_has_lost_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    """`kill -9` in the middle of rewards, twice: each that was answered is there, and counts once."""
    home, acknowledged = tmp_path / "home", set[str]()
    for turn in range(2):
        with serving(home, *ONLY_TIPS) as service:
            ids = [
                service.score(user="u", request_id=f"{turn}-{n}").json()["decision_id"] for n in range(100)
            ]
            many = len(acknowledged) + 20 + 30 * turn
            telling = threading.Thread(
                target=lambda: asyncio.run(tell_until_it_dies(service.url, ids, acknowledged))  # noqa: B023 - joined below
            )
            telling.start()
            until(lambda: len(acknowledged) >= many)  # noqa: B023 - called at once
            service.kill()
            telling.join()
    with serving(home, *ONLY_TIPS) as service:
        counted = service.get("/stats/egreedy", user_id="u")
        assert counted["decisions"] == 200
        assert len(acknowledged) <= counted["rewards"] <= 200
        assert counted["mean_reward"] == 1.0
        again = [service.reward(decision, reward_id="r").json() for decision in acknowledged]
        assert all(said["ignored"] and not said["learned"] for said in again)
        assert service.get("/stats/egreedy", user_id="u")["rewards"] == counted["rewards"]


@pytest.mark.parametrize(
    ("how", "code", "told"), [(signal.SIGTERM, 0, ""), (signal.SIGINT, 130, "tipbench: interrupted\n")]
)
def test_what_was_taken_is_answered_before_the_end(
    tmp_path: Path, how: signal.Signals, code: int, told: str
) -> None:
    """Two hundred requests are under way: each has a whole answer or none, and what was answered is kept.

    SIGTERM is how a service is ended, and so no failure; Ctrl-C interrupts it as it does any command.
    """
    with serving(tmp_path / "home", *ONLY_TIPS) as service:
        service.score("egreedy")
        body = json.dumps(asked("many")).encode()
        request = head("/score/egreedy", "Connection: close", f"Content-Length: {len(body)}") + body
        waiting = [socket.create_connection(("127.0.0.1", service.port), timeout=30) for _ in range(200)]
        for connection in waiting:
            connection.sendall(request)
        assert waiting[0].recv(1) == b"H"
        assert service.end(how) == code
        answers = [_rest(connection) for connection in waiting]
        whole = [parsed(answer) for answer in answers[1:] if answer]
        assert {status for status, _ in whole} <= {200, 503}
        assert service.errors.read_text() == told
    served = sum(status == 200 for status, _ in whole) + 1
    db = sqlite3.connect(tmp_path / "home" / "tips.db")
    assert db.execute("SELECT count(*) FROM log WHERE user_id = 'many'").fetchone()[0] >= served
    db.close()


def test_a_second_ctrl_c_is_an_end_like_the_first(tmp_path: Path) -> None:
    """One sentence and no trace of our insides; the books are closed, as nothing beside them shows."""
    with serving(tmp_path / "home", *ONLY_TIPS) as service:
        service.score("egreedy")
        service.process.send_signal(signal.SIGINT)
        with pytest.raises(ConnectionError):  # noqa: PT012 - refused or reset, as soon as it has begun to end
            while True:
                socket.create_connection(("127.0.0.1", service.port)).close()
        assert service.end(signal.SIGINT) == 130
        assert service.errors.read_text() == "tipbench: interrupted\n"
    assert not (tmp_path / "home" / "tips.db-wal").exists()


def _rest(connection: socket.socket) -> bytes:
    answered = b""
    with connection:
        try:
            while received := connection.recv(65536):
                answered += received
        except ConnectionResetError:
            return b""
    return answered


def test_a_request_that_is_never_sent_whole_does_not_hold_the_end_up(tmp_path: Path) -> None:
    """The service ends all the same and says that somebody had no answer; its shadows end with it."""
    with serving(tmp_path / "home", *ONLY_TIPS, "--shadow", "egreedy-v2-shadow") as service:
        service.recommend()
        with socket.create_connection(("127.0.0.1", service.port), timeout=30) as half:
            half.sendall(head("/score/egreedy", "Content-Length: 100") + b"{")
            assert service.score().status_code == 200
            assert service.end() == 130
        assert "1 request had no answer yet" in service.errors.read_text()


def test_damaged_state_is_named_and_keeps_nobody_from_the_pages(tmp_path: Path) -> None:
    """503 with the file's name on every tip route, while the rest of the service works; the file stays.

    Where nothing but tips is served, the command ends with that sentence instead.
    """
    path = tmp_path / "home" / "tips.db"
    path.parent.mkdir()
    was = b"this is no database " * 1000
    path.write_bytes(was)
    store = Store(tmp_path / "home" / "service.db")
    admin = store.tokens.create("root", "admin", now_ms=0)
    store.close()
    with serving(tmp_path / "home", *AWAY) as service:
        refused = [
            service.score(), service.recommend(), service.reward("x"),
            service.post("/reset", {"user_id": "u"}),
            *(service.client.get(path_) for path_ in ("/stats", "/stats/egreedy", "/signals")),
        ]  # fmt: skip
        assert {answer.status_code for answer in refused} == {503}
        assert all(str(path) in answer.json()["error"]["message"] for answer in refused)
        assert service.client.get("/login").status_code == 200
        assert service.client.get("/api/me", headers={"Authorization": f"Bearer {admin}"}).status_code == 200
        assert service.get("/health") == {"status": "ok"}
    ended = alone(tmp_path / "home")
    assert ended.returncode == 3
    assert str(path) in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "tipbench is at" not in ended.stdout
    assert path.read_bytes() == was


def alone(home: Path, arguments: Sequence[str] = ONLY_TIPS, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tipbench", "serve", "--port", "0", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=environment(home, **env)
    )


def test_two_services_in_one_postgres_are_one(tmp_path: Path, cluster: Cluster) -> None:
    """Each is told every reward of one user, at the same time: none is lost, none counts twice."""
    where = {"TIPBENCH_TIPS_DB": cluster.new_database()}
    with (
        serving(tmp_path / "a", *ONLY_TIPS, **where) as one_,
        serving(tmp_path / "b", *ONLY_TIPS, **where) as other,
    ):
        made = [(one_ if n % 2 else other).score("egreedy/v2", request_id=f"p{n}") for n in range(60)]
        told: list[dict[str, Any]] = []

        def tell(service: TipService) -> None:
            told.extend(service.reward(decision).json() for decision in made)

        threads = [threading.Thread(target=tell, args=(service,)) for service in (one_, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(said["learned"] for said in told) == 60
        assert sum(said["ignored"] for said in told) == 60
        stands = [service.get("/stats/egreedy/v2", user_id="anna") for service in (one_, other)]
        assert stands[0] == stands[1]
        assert (stands[0]["decisions"], stands[0]["rewards"]) == (60, 60)
        assert other.score("egreedy/v2", request_id="p1").content == made[1].content
        assert one_.post("/reset", {"user_id": "anna"}).status_code == 200
        assert other.get("/stats/egreedy/v2", user_id="anna")["weights"] is None
        assert other.client.get("/stats/egreedy?user_id=a%00b").status_code == 422
        assert other.client.get("/stats/egreedy?user_id=%ED%A0%80").status_code == 404
        assert not (tmp_path / "a" / "tips.db").exists()


def test_a_database_that_is_away_is_named_without_its_password(tmp_path: Path) -> None:
    """The command for tips alone ends with a sentence; at an address of another kind, all of it does."""
    ended = alone(tmp_path / "home", TIPBENCH_TIPS_DB="postgresql://tips:not-secret@127.0.0.1:9/tips")
    assert ended.returncode == 3
    assert "127.0.0.1" in ended.stderr
    assert "not-secret" not in ended.stderr
    assert "Traceback" not in ended.stderr
    for arguments in (ONLY_TIPS, ()):
        wrong = alone(tmp_path / "home", arguments, TIPBENCH_TIPS_DB="mysql://somewhere/tips")
        assert (wrong.returncode, "postgresql://" in wrong.stderr) == (2, True)


def test_a_database_that_goes_away_and_comes_back(tmp_path: Path, cluster: Cluster) -> None:
    """Meanwhile everybody is told 503 and why, and streams end; then all goes on, with nothing lost."""
    url = cluster.new_database()
    name = url.rpartition("/")[2]
    with (
        serving(tmp_path / "home", *ONLY_TIPS, TIPBENCH_TIPS_DB=url) as service,
        psycopg.connect(cluster.url("postgres"), autocommit=True) as db,
    ):
        made = service.score(request_id="before")
        with service.client.stream("GET", "/signals") as streamed:
            lines = streamed.iter_lines()
            assert "id: 1" in iter(lines.__next__, "event: serve")
            db.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
            db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
            assert any(line.startswith(f": postgresql://127.0.0.1:{cluster.port}") for line in lines)
        for answer in (
            service.reward(made),
            service.score(request_id="during"),
            service.client.get("/stats"),
            service.client.get("/signals"),
        ):
            assert answer.status_code == 503, answer.text
            assert f"127.0.0.1:{cluster.port}/{name} cannot be used" in answer.json()["error"]["message"]
        assert service.get("/health") == {"status": "ok"}
        db.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true".encode())
        assert service.reward(made).json()["learned"]
        assert service.score(request_id="before").content == made.content
        with service.client.stream("GET", "/signals") as streamed:
            assert "id: 1" in streamed.iter_lines()
        assert service.errors.read_text() == ""


def test_what_was_served_is_exported_with_its_propensities(tmp_path: Path) -> None:
    """From the log of decisions made over HTTP, while the service runs."""
    with serving(tmp_path / "home", *ONLY_TIPS) as service:
        made = service.score("egreedy", request_id="x").json()
        service.reward(made["decision_id"], reward=0.5)
        command = [sys.executable, "-m", "tipbench", "bandit", "export"]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env=environment(tmp_path / "home"),
        )
    (line,) = [json.loads(one) for one in done.stdout.splitlines()]
    assert line["pscore"] == made["propensities"][made["tip_id"]]
    assert line["reward"] == 0.5


def test_a_database_that_does_not_answer_keeps_nobody_from_the_rest(tmp_path: Path) -> None:
    """Somebody waits for a tip while the pages are served; in the end that somebody is told 503."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"postgresql://tips@127.0.0.1:{silent.getsockname()[1]}/tips"
        with serving(tmp_path / "home", *AWAY, TIPBENCH_TIPS_DB=where) as service:
            answers: list[httpx.Response] = []
            asking = threading.Thread(target=lambda: answers.append(service.score()))
            asking.start()
            connection, _ = silent.accept()
            with httpx.Client(base_url=service.url, timeout=30, trust_env=False) as others, connection:
                assert others.get("/login").status_code == 200
                assert others.get("/health").status_code == 200
                assert answers == []
                connection.close()
                asking.join()
            assert answers[0].status_code == 503
            assert "127.0.0.1" in answers[0].json()["error"]["message"]
