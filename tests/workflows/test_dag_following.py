"""A collection on Airflow: what it is triggered with, how it is followed, and what ends it."""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from airflow_stand_in import (
    PASSWORD,
    AirflowStandIn,
    Frame,
    Run,
    Task,
    environment,
    frames,
    running,
    waiting_frames,
)
from job_world import wait_until
from judged_world import plant
from tipbench.airflow import DagRuns
from tipbench.errors import (
    AirflowUnreachable,
    BadInput,
    BadSetting,
    Conflict,
    DagRunFailed,
    Interrupted,
    NotFound,
    Unavailable,
)
from tipbench.ledger import open_ledger
from tipbench.records import Judge
from tipbench.settings import Settings
from tipbench.workflows.airflow_address import airflow_url, connect
from tipbench.workflows.dag_conf import Asked, asked_of, conf_of
from tipbench.workflows.dag_following import Follower, Pace
from tipbench.workflows.dag_runs import _end, run_on_airflow
from verdict_planting import by_scenario, judge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

    from tipbench.records import Event

QUICK = Pace(every_s=0.01, patience_s=0.3)
SETTINGS = Settings.of({"models": "m0,m1", "experiment": "bench", "ollama_url": "http://localhost:11434"})


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[AirflowStandIn]:
    with running(AirflowStandIn()) as stand_in:
        for name, value in environment(stand_in).items():
            monkeypatch.setenv(name, value)
        yield stand_in


def run(asked: Asked | None = None, *, settings: Settings = SETTINGS, **how: Any) -> tuple[Any, list[Event]]:  # noqa: ANN401 - as run_on_airflow
    """What came of a run, or what it raised, and its events."""
    events: list[Event] = []
    try:
        came = run_on_airflow(settings, asked or Asked(), emit=events.append, **({"pace": QUICK} | how))
    except Exception as error:  # noqa: BLE001 - looked at by each test
        return error, events
    return came, events


def notices(events: list[Event]) -> str:
    return "\n".join(str(event["message"]) for event in events if event["event"] == "notice")


def test_a_run_is_triggered_and_followed_to_its_end(airflow: AirflowStandIn) -> None:
    """Each state of it is told once, each task by its model and host, also before it has run."""
    outcome, events = run(asked_of("gpu-1,gpu-2:1", "off"), run_id="r1")
    assert outcome["state"] == "success"
    assert outcome["verdict"] == "Nothing is judged yet."
    assert outcome["url"] == f"{airflow.url}/dags/bench_collect/runs/r1"
    told = [event for event in events if event["event"] == "dag_run"]
    assert [event["state"] for event in told] == ["queued", "running", "success"]
    assert [task["name"] for task in told[1]["tasks"][1:3]] == [
        "collect: m0 on http://gpu-1:11434",
        "collect: m1 on http://gpu-2:1",
    ]
    changes = [(event["name"], event["state"]) for event in events if event["event"] == "task"]
    assert len(set(changes)) == len(changes)
    assert events[-1]["event"] == "summary"
    assert airflow.runs["r1"].conf == {
        "models": ["m0", "m1"],
        "experiment": "bench",
        "hosts": ["http://gpu-1:11434", "http://gpu-2:1"],
    }


def test_a_failed_run_names_the_task_the_reason_and_the_log(airflow: AirflowStandIn) -> None:
    """One sentence: which model on which host, what it raised, where to read more."""
    airflow.script = frames(last="failed", collect="failed")
    error, events = run(run_id="r1")
    assert isinstance(error, DagRunFailed)
    assert error.exit_code == 1
    assert str(error) == (
        "collect: m0 failed (no host answers), and 1 more; its log is at "
        f"{airflow.url}/dags/bench_collect/runs/r1/tasks/collect/mapped/0"
    )
    assert events[-1]["event"] != "summary"
    airflow.script = [Frame("failed")]
    assert f"r2 of bench_collect failed; see {airflow.url}" in str(run(run_id="r2")[0])


def test_the_same_name_follows_the_run_that_is_there(airflow: AirflowStandIn) -> None:
    """A run that goes on is followed, one that is done is told; neither is triggered again."""
    first, _ = run(run_id="r1")
    again, events = run(run_id="r1")
    assert again == first
    assert "following r1" in notices(events)
    assert (len(airflow.runs), airflow.runs["r1"].cleared) == (1, 0)


def test_the_same_name_begins_a_failed_run_again(airflow: AirflowStandIn) -> None:
    """All its tasks have their turn: cells that are there are not generated again."""
    airflow.script = frames(last="failed", collect="failed")
    run(run_id="r1")
    airflow.script = frames()
    outcome, events = run(run_id="r1")
    assert outcome["state"] == "success"
    assert "it had failed" in notices(events)
    assert airflow.runs["r1"].cleared == 1


def test_a_name_that_is_taken_by_other_settings_is_refused(airflow: AirflowStandIn) -> None:
    """Nobody follows another's run by mistake."""
    run(run_id="r1")
    error, _ = run(
        run_id="r1", settings=Settings.of({"models": "other", "ollama_url": "http://localhost:11434"})
    )
    assert isinstance(error, Conflict)
    assert airflow.runs["r1"].cleared == 0
    assert isinstance(run(run_id="no/name")[0], BadSetting)


@pytest.mark.parametrize("kind", ["paused", "missing", "login", "refused"])
def test_what_cannot_be_triggered_is_told_at_once(airflow: AirflowStandIn, kind: str) -> None:
    """Nothing is begun, and no run is left behind."""
    airflow.paused, airflow.has_dag = kind == "paused", kind != "missing"
    airflow.password = "other" if kind == "login" else PASSWORD
    airflow.refuse = "Invalid input for param n_tips: no" if kind == "refused" else ""
    error, _ = run()
    assert isinstance(error, (BadInput, Unavailable))
    assert not isinstance(error, AirflowUnreachable)
    assert (airflow.runs, PASSWORD in str(error)) == ({}, False)


def test_an_airflow_that_is_away_is_waited_for(airflow: AirflowStandIn) -> None:
    """That it is away is said once, that it is back as well, and the run is followed to its end."""
    looks = iter(range(1000))
    airflow.fault = lambda method, path: (
        (503, "busy", {}) if (method, path[-3:]) == ("GET", "/r1") and 1 <= next(looks) <= 4 else None
    )
    outcome, events = run(run_id="r1", pace=Pace(every_s=0.01, patience_s=60))
    assert outcome["state"] == "success"
    said = notices(events).splitlines()
    assert (
        len([one for one in said if "answers 503; the DAG run goes on, asking again for 60 seconds" in one])
        == 1
    )
    assert said[-1] == "Airflow answers again"


def test_an_airflow_that_stays_away_ends_the_following(airflow: AirflowStandIn) -> None:
    """With what to do; the run itself is left alone, and the same name follows on."""
    airflow.fault = lambda method, path: "drop" if method == "GET" and path.endswith("/r1") else None
    error, _ = run(run_id="r1")
    assert isinstance(error, AirflowUnreachable)
    assert str(error).endswith("the DAG run r1 may well go on: start this again to follow it")
    airflow.fault = lambda _method, _path: None
    assert run(run_id="r1")[0]["state"] == "success"
    assert len(airflow.runs) == 1


def test_a_run_that_was_deleted_ends_the_following(airflow: AirflowStandIn) -> None:
    """It says who may have done that; the same name triggers it anew."""
    airflow.script = [Frame("running", (Task("collect", "running", 0),))]

    def deletes(_method: str, path: str) -> None:
        if path.endswith("taskInstances"):
            airflow.runs.clear()

    airflow.fault = deletes
    error, _ = run(run_id="r1")
    assert isinstance(error, NotFound)
    assert "somebody has deleted it" in str(error)


def test_a_password_that_changes_meanwhile_ends_the_following(airflow: AirflowStandIn) -> None:
    """There is nothing to wait for."""
    airflow.script = [Frame("running", (Task("collect", "running", 0),))]

    def changes(_method: str, path: str) -> None:
        if path.endswith("taskInstances"):
            airflow.password = "other"  # noqa: S105 - of a test
            airflow.tokens.clear()

    airflow.fault = changes
    error, _ = run(run_id="r1")
    assert isinstance(error, BadInput)
    assert "TIPBENCH_AIRFLOW_PASSWORD" in str(error)


def test_a_dag_that_is_paused_meanwhile_is_told(airflow: AirflowStandIn) -> None:
    """A run of it stays queued, and Airflow does not say why."""
    airflow.script = [Frame("queued")] * 3 + [Frame("success")]

    def pauses(method: str, _path: str) -> None:
        airflow.paused = airflow.paused or (method == "POST" and airflow.logins > 0)

    airflow.fault = pauses
    outcome, events = run(run_id="r1")
    assert outcome["state"] == "success"
    assert notices(events).count("bench_collect is paused") == 1


@pytest.mark.parametrize("away", [False, True])
def test_who_interrupts_ends_the_run(airflow: AirflowStandIn, *, away: bool) -> None:
    """As with a local collection; where Airflow cannot be told, it says where to end it."""
    airflow.script = [Frame("running", (Task("collect", "running", 0), Task("compare", None)))]

    def interrupts(method: str, path: str) -> Any:  # noqa: ANN401 - an answer or nothing
        if path.endswith("taskInstances") and not interrupting.ident:
            interrupting.start()
        return "drop" if away and method == "PATCH" else None

    def interrupt() -> None:
        # Between two looks: a connection that is broken off while it is made is never closed.
        wait_until(lambda: sys._current_frames()[here].f_code is Follower.to_the_end.__code__)
        signal.pthread_kill(here, signal.SIGUSR1)

    here = threading.get_ident()
    interrupting = threading.Thread(target=interrupt)
    airflow.fault = interrupts
    before = signal.signal(signal.SIGUSR1, _interrupted)
    try:
        error, events = run(run_id="r1", pace=Pace(every_s=20))
    finally:
        interrupting.join()
        signal.signal(signal.SIGUSR1, before)
    assert isinstance(error, Interrupted)
    assert airflow.runs["r1"].now.state == ("running" if away else "failed")
    assert ("end it there" if away else "r1 was ended; what it has done is kept") in notices(events)


def test_a_run_that_is_about_to_be_there_is_ended_as_well(airflow: AirflowStandIn) -> None:
    """Whoever is interrupted while it triggers a run cannot know whether Airflow has got as far."""
    made = {"r1": Run(conf={}, frames=[Frame("running")])}

    def late(method: str, _path: str) -> Any:  # noqa: ANN401 - an answer or nothing
        if method == "GET" and not late_is_set.is_set():
            late_is_set.set()
            threading.Timer(0.5, lambda: airflow.runs.update(made)).start()
        return None

    late_is_set = threading.Event()
    airflow.fault = late
    _end(DagRuns(connect(), "bench_collect"), "r1", lambda _event: None)
    assert airflow.runs["r1"].now.state == "failed"


def _interrupted(_signal: int, _frame: FrameType | None) -> None:
    raise Interrupted("interrupted")


def test_the_approval_is_given_when_all_is_judged(airflow: AirflowStandIn, home: Path) -> None:
    """Not before: the run waits, and is answered once a batch is applied that leaves nothing pending."""
    ledger = open_ledger("", home=home)
    plant("bench", quality={("m0", "v1"): 4.0}, n_scenarios=1, n_tips=1, ledger=ledger)
    airflow.script = waiting_frames()

    def applied() -> None:
        looked = ("GET", "/api/v2/dags/bench_collect/dagRuns/r1")
        wait_until(lambda: over or airflow.requests.count(looked) >= 3)
        answers.append(list(airflow.runs["r1"].answers))
        judge(ledger, "bench", Judge(id="anne", kind="human"), by_scenario({("m0", "v1"): (12,)}))

    over: list[bool] = []
    answers: list[list[str]] = []
    judging = threading.Thread(target=applied)
    judging.start()
    outcome, events = run(asked_of(None, "approval"), run_id="r1")
    over.append(True)
    judging.join()
    assert outcome["state"] == "success"
    assert (answers, airflow.runs["r1"].answers) == ([[]], ["Approve"])
    assert "all is judged: the approval was given" in notices(events)


def test_who_may_not_approve_goes_on_following(airflow: AirflowStandIn, home: Path) -> None:
    """It says so once; somebody else gives the approval, and the run comes to its end."""
    ledger = open_ledger("", home=home)
    plant("bench", quality={("m0", "v1"): 4.0}, n_scenarios=1, n_tips=1, ledger=ledger)
    judge(ledger, "bench", Judge(id="anne", kind="human"), by_scenario({("m0", "v1"): (12,)}))
    airflow.script = waiting_frames()
    refused: list[str] = []

    def refuses(method: str, path: str) -> Any:  # noqa: ANN401 - an answer or nothing
        if refused and path.endswith("taskInstances"):
            airflow.runs["r1"].at = 1
        if method != "PATCH":
            return None
        refused.append(path)
        return 403, {"detail": "Forbidden"}, {}

    airflow.fault = refuses
    outcome, events = run(run_id="r1")
    assert (outcome["state"], len(refused)) == ("success", 1)
    assert notices(events).count("give the approval in Airflow") == 1


def test_an_approval_of_what_this_ledger_does_not_know_is_left_to_people(
    airflow: AirflowStandIn, home: Path
) -> None:
    """It says so once, and ends when somebody answers in Airflow."""
    assert home.exists()
    airflow.script = waiting_frames()

    def answers(_method: str, path: str) -> None:
        asked = [one for one in airflow.requests if one[1].endswith("taskInstances")]
        if len(asked) > 3 and path.endswith("taskInstances"):
            airflow.runs["r1"].at = 1

    airflow.fault = answers
    outcome, events = run(run_id="r1")
    assert outcome["state"] == "success"
    assert notices(events).count("whether all is judged is not known") == 1
    assert airflow.runs["r1"].answers == []


def test_the_conf_holds_what_differs_and_no_login() -> None:
    """Everybody who may look at a run in Airflow can read it."""
    settings = Settings.of(
        {"ollama_url": "http://u:secret@h:1/x", "n_tips": 2, "suite": "mine", "diversity": True, "pull": True}
    )
    conf = conf_of(settings, asked_of(["http://u:secret@g:2", "g:2", " "], True))
    assert "secret" not in str(conf)
    assert conf.pop("suite").endswith("/mine")
    assert conf == {
        "ollama_url": "http://h:1/x",
        "n_tips": 2,
        "diversity": True,
        "hosts": ["http://g:2"],
        "wait_for_judge": "sensor",
    }
    with pytest.raises(BadSetting, match="MLFLOW_TRACKING_PASSWORD"):
        conf_of(Settings.of({"mlflow_url": "http://u:p@mlflow"}), Asked())


@pytest.mark.parametrize(
    ("hosts", "way", "name"),
    [("ftp://x", "off", "hosts"), (5, "off", "hosts"), ([1], "off", "hosts"), (["h:0"], "off", "hosts"),
     ([], "maybe", "wait_for_judge"), ([], 5, "wait_for_judge"), ([], ["off"], "wait_for_judge")],
)  # fmt: skip
def test_what_is_asked_wrongly_names_the_field(hosts: object, way: object, name: str) -> None:
    """So that a request can answer per field."""
    with pytest.raises(BadSetting) as told:
        asked_of(hosts, way)
    assert told.value.name == name


@pytest.mark.parametrize(
    "url",
    [
        "airflow",
        "ftp://x",
        "http://",
        "http://h:0",
        "http://h:99999",
        "http://h/?q",
        "http://a b",
        'http://"x',
    ],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    """Before anything is asked."""
    with pytest.raises(BadInput, match="is no address"):
        airflow_url({"TIPBENCH_AIRFLOW_URL": url})


def test_the_environment_is_taken_as_it_is_meant() -> None:
    """A login belongs into its own variables, and takes both."""
    assert airflow_url({"TIPBENCH_AIRFLOW_URL": " https://h/air/ "}) == "https://h/air"
    assert airflow_url({}) == ""
    with pytest.raises(BadInput, match="holds a login") as told:
        airflow_url({"TIPBENCH_AIRFLOW_URL": "http://u:secret@h"})
    assert "secret" not in str(told.value)
    with pytest.raises(BadInput, match="one is not set"):
        connect({"TIPBENCH_AIRFLOW_URL": "http://h", "TIPBENCH_AIRFLOW_USER": "u"})
    with pytest.raises(BadInput, match="TIPBENCH_AIRFLOW_URL is not set"):
        connect({})
