"""Airflow asked over HTTP: logins, refusals, and what is no Airflow at all."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

from airflow_stand_in import DAG, PASSWORD, SCHEMA_400, USER, AirflowStandIn, Frame, Task, running
from tipbench.airflow import Client, Connection, DagRuns, Pool, TaskRun, set_connection, set_pool
from tipbench.airflow.client import reason_of
from tipbench.errors import AirflowUnreachable, BadInput, Conflict, NotFound, TipbenchError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def airflow() -> Iterator[AirflowStandIn]:
    with running(AirflowStandIn()) as stand_in:
        yield stand_in


def runs_of(airflow: AirflowStandIn, *, user: str = USER, password: str = PASSWORD) -> DagRuns:
    return DagRuns(Client(airflow.url, user=user, password=password), DAG)


def test_one_token_serves_many_questions(airflow: AirflowStandIn) -> None:
    """Who asks often logs in once."""
    runs = runs_of(airflow)
    runs.check()
    assert runs.trigger("r", {"n_tips": 2})
    assert runs.get("r").conf == {"n_tips": 2}
    assert airflow.logins == 1


def test_a_token_that_ran_out_is_fetched_anew(airflow: AirflowStandIn) -> None:
    """Airflow answers 403 to a token it no longer takes, as to one that may not; only the first is mended."""
    runs = runs_of(airflow)
    runs.check()
    airflow.tokens.clear()
    runs.check()
    assert airflow.logins == 2
    airflow.may_trigger = False
    with pytest.raises(
        BadInput, match=r"does not allow this user POST /dags/bench_collect/dagRuns \(Forbidden\)"
    ):
        runs.trigger("r", {})
    assert airflow.logins == 2


@pytest.mark.parametrize(
    ("login", "sentence"),
    [
        ({"password": "wrong"}, "does not let 'bench' in; correct TIPBENCH_AIRFLOW_USER"),
        ({"user": "", "password": ""}, "asks for a login; set TIPBENCH_AIRFLOW_USER"),
    ],
)
def test_a_wrong_login_is_told_without_the_password(
    airflow: AirflowStandIn, login: dict[str, str], sentence: str
) -> None:
    """It says which variables to correct, and never what stood in them."""
    with pytest.raises(BadInput, match=sentence) as told:
        runs_of(airflow, **login).check()
    assert "wrong" not in str(told.value)


def test_an_airflow_without_logins_needs_none(airflow: AirflowStandIn) -> None:
    """Where everybody is an admin, a token is given to whoever asks."""
    airflow.password = None
    runs_of(airflow, user="", password="").check()


def test_a_dag_that_is_missing_or_paused_is_told_with_what_to_do(airflow: AirflowStandIn) -> None:
    """Before anything is triggered: a run of a paused DAG would wait for ever."""
    airflow.paused = True
    with pytest.raises(Unavailable, match="airflow dags unpause bench_collect"):
        runs_of(airflow).check()
    airflow.has_dag = False
    with pytest.raises(NotFound, match="has no DAG bench_collect; put tipbench's dags/ into its DAG folder"):
        runs_of(airflow).check()


def test_a_refused_conf_is_told_in_one_sentence(airflow: AirflowStandIn) -> None:
    """Of what Airflow says, the first line: the rest is its schema."""
    airflow.refuse = SCHEMA_400
    with pytest.raises(BadInput) as told:
        runs_of(airflow).trigger("r", {"n_tips": 100})
    said = str(told.value)
    assert said.endswith(
        "refuses this: Invalid input for param n_tips: 100 is greater than the maximum of 50"
    )


def test_a_run_is_triggered_once(airflow: AirflowStandIn) -> None:
    """The second time it is told that it is there; one that is not there is NotFound."""
    runs = runs_of(airflow)
    assert runs.trigger("r:1+x", {})
    assert not runs.trigger("r:1+x", {})
    with pytest.raises(NotFound):
        runs.get("other")


def test_tasks_are_read_page_by_page(airflow: AirflowStandIn) -> None:
    """A run of many models has more tasks than one answer holds."""
    airflow.script = [Frame("running", tuple(Task("collect", "running", at, str(at)) for at in range(230)))]
    runs = runs_of(airflow)
    runs.trigger("r", {})
    found = runs.tasks("r")
    assert [task.index for task in found] == list(range(230))
    assert found[0] == TaskRun(task="collect", index=0, named="", state="running", tries=1)


def test_what_a_task_raised_and_returned_is_found(airflow: AirflowStandIn) -> None:
    """The first line of the exception; nothing where there is no log, no value."""
    runs = runs_of(airflow)
    runs.trigger("r", {})
    task = TaskRun(task="collect", index=1, named="", state="failed", tries=2)
    assert runs.why("r", task) == "no host answers"
    assert runs.returned("r", "compare")["judged"] == 0
    assert runs.returned("r", "collect") is None
    airflow.fault = lambda _method, path: (500, "oh", {}) if "/logs/" in path else None
    assert runs.why("r", task) == ""
    assert runs.page("a b", task).endswith("/dags/bench_collect/runs/a%20b/tasks/collect/mapped/1")


NO_AIRFLOW: dict[str, Any] = {
    "a page": (200, "<html>hello</html>", {"content-type": "text/html"}),
    "a list": (200, [1], {}),
    "nothing": (200, "", {}),
    "without a state": (200, {"dag_run_id": "r"}, {}),
    "deep": (200, "[" * 100_000, {}),
    "an error page": (502, "<html>bad gateway</html>", {"content-type": "text/html"}),
    "an error": (500, {"detail": "boom"}, {}),
    "too much": (429, "", {}),
    "without an end": (200, '{"state": "queued"' + " " * 21_000_000 + "}", {}),
    "a hang-up": "drop",
}


@pytest.mark.parametrize("kind", NO_AIRFLOW)
def test_what_is_no_answer_is_unreachable(airflow: AirflowStandIn, kind: str) -> None:
    """It may pass, so who follows a run waits; it is one sentence with the address."""
    runs = runs_of(airflow)
    runs.check()
    airflow.fault = lambda _method, path: NO_AIRFLOW[kind] if "dagRuns" in path else None
    with pytest.raises(AirflowUnreachable) as told:
        runs.get("r")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "made",
    [(200, "<html>", {}), (201, {"access_token": 5}, {}), (201, {}, {}), (404, {"detail": "Not Found"}, {})],
)
def test_what_gives_no_token_is_no_airflow(airflow: AirflowStandIn, made: Any) -> None:  # noqa: ANN401 - an answer
    """Another program on that port, or an Airflow before 3."""
    airflow.fault = lambda _method, _path: made
    with pytest.raises(AirflowUnreachable, match="is no Airflow 3"):
        runs_of(airflow).check()


def test_nobody_there_is_unreachable() -> None:
    """The sentence names the address."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(AirflowUnreachable, match=f"127.0.0.1:{port} cannot be reached"):
        Client(f"http://127.0.0.1:{port}", user="u", password="p").ask("GET", "/dags/x")  # noqa: S106 - of a test


def test_a_redirect_is_not_followed(airflow: AirflowStandIn) -> None:
    """It would take the login along; the sentence says where it leads, without the login in that."""
    with running(AirflowStandIn()) as other:
        to = other.url.replace("//", "//u:secret@")
        airflow.fault = lambda _method, path: (307, "", {"location": f"{to}{path}"})
        with pytest.raises(BadInput, match="which is not followed") as told:
            runs_of(airflow).check()
        assert other.requests == []
        assert other.url in str(told.value)
        assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"detail": "one.\ntwo"}, "one"),
        ({"detail": [{"loc": ["body", "x"], "msg": "Field required"}, "odd"]}, "x: Field required; odd"),
        ({"detail": {"reason": "Unique constraint violation"}}, "Unique constraint violation"),
        ({"detail": {"odd": 1}}, ""),
        ({"detail": 5}, ""),
        ({"detail": "a\x1b[31mb"}, "a[31mb"),
        ({"detail": "x" * 5000}, "x" * 300),
        ([], ""),
        (None, ""),
    ],
)
def test_reasons_are_one_line(said: object, reason: str) -> None:
    """However Airflow words it."""
    assert reason_of(said) == reason


POOL = Pool(name="ollama-h-1", about="one at a time")
PLACE = Connection(name="ollama-h-1", scheme="http", host="h", port=1, about="a host")


def test_a_pool_is_made_once_and_set_right(airflow: AirflowStandIn) -> None:
    """Slots are corrected; a description that somebody wrote stays."""
    client = runs_of(airflow).client
    assert [set_pool(client, POOL) for _ in range(2)] == ["made", "was there"]
    airflow.pools[POOL.name] |= {"slots": 4, "description": "ours", "include_deferred": True}
    assert set_pool(client, POOL) == "corrected"
    assert airflow.pools[POOL.name] == {
        "name": POOL.name,
        "slots": 1,
        "description": "ours",
        "include_deferred": True,
    }


def test_a_connection_keeps_a_login_that_it_has(airflow: AirflowStandIn) -> None:
    """Without a login to give, what is stored stays; one that is given is written each time."""
    client = runs_of(airflow).client
    assert [set_connection(client, PLACE) for _ in range(2)] == ["made", "was there"]
    airflow.connections[PLACE.name] |= {"login": "u", "password": "p", "port": 2}
    assert set_connection(client, PLACE) == "corrected"
    kept = airflow.connections[PLACE.name]
    assert (kept["login"], kept["password"], kept["port"]) == ("u", "p", 1)
    mine = Connection(name=PLACE.name, scheme="http", host="h", port=1, about="", login="me", password="new")  # noqa: S106 - of a test
    assert [set_connection(client, mine) for _ in range(2)] == ["corrected", "corrected"]
    assert airflow.connections[PLACE.name]["password"] == "new"  # noqa: S105 - as above
    assert "new" not in repr(mine)


def test_one_that_somebody_makes_meanwhile_is_no_error(airflow: AirflowStandIn) -> None:
    """Two who set up at once both succeed."""
    client = runs_of(airflow).client
    missing = iter([True])

    def somebody_first(method: str, path: str) -> Any:  # noqa: ANN401 - an answer or nothing
        if method == "GET" and "pools" in path and next(missing, False):
            airflow.pools[POOL.name] = {"name": POOL.name, "slots": 3, "include_deferred": False}
            return 404, {"detail": "not found"}, {}
        return None

    airflow.fault = somebody_first
    assert set_pool(client, POOL) == "corrected"


def test_an_approval_is_given_once(airflow: AirflowStandIn) -> None:
    """Somebody who was first is no error; every other refusal is."""
    runs, task = runs_of(airflow), TaskRun(task="wait", index=-1, named="", state="awaiting_input", tries=1)
    runs.trigger("r", {})
    assert runs.approve("r", task)
    assert not runs.approve("r", task)
    assert airflow.runs["r"].answers == ["Approve"]
    airflow.fault = lambda method, _path: (
        (400, {"detail": "Invalid options"}, {}) if method == "PATCH" else None
    )
    with pytest.raises(TipbenchError, match="Invalid options"):
        runs.approve("r", task)


def test_conflicts_are_their_own_error(airflow: AirflowStandIn) -> None:
    """For those who can tell what it means that something is there."""
    client = runs_of(airflow).client
    client.ask("POST", "/pools", body={"name": "x"})
    with pytest.raises(Conflict):
        client.ask("POST", "/pools", body={"name": "x"})
