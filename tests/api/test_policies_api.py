"""Policies and gates over the API: what is told, what is started, what is promoted and taken back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from gate_samples import gate_record
from tipbench.settings import home
from tipbench.workflows.gate_files import keep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api_world import Api

SMALL = {"seeds": 5, "users": 8, "rounds": 40}


@pytest.fixture(autouse=True)
def _ended(api: Api) -> Iterator[None]:
    yield
    api.service.desk.stop()


def planted(**changes: Any) -> str:  # noqa: ANN401 - parts of a record
    return keep(gate_record(**changes), home() / "gates")


def ended(api: Api, job_id: str) -> dict[str, Any]:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        job: dict[str, Any] = api.admin.get(f"/api/jobs/{job_id}").json()
        if job["state"] not in {"queued", "running"}:
            return job
        time.sleep(0.2)
    raise AssertionError(f"job {job_id} does not end")


def test_a_new_service_has_the_first_policy_and_nothing_else(api: Api) -> None:
    """Everything is there and empty: policies that have decided nothing, no gate, nothing shipped."""
    told = api.admin.get("/api/policies").json()
    assert (told["active"]["policy"], told["active"]["on_trial"]) == ("egreedy", False)
    assert {one["decisions"] for one in told["policies"]} == {0}
    assert told["shadows"]["egreedy-v2-shadow"]["enabled"] is False
    assert (told["last_gate"], told["shipped"], told["canary"], told["troubles"]) == (None, None, None, [])


def test_a_gate_is_told_in_short_and_in_full(api: Api) -> None:
    """The list has the sentence, the gate itself its curves; one that is damaged is named beside."""
    gate_id = planted()
    broken = planted(champion="linucb")
    (home() / "gates" / f"{broken}.json").write_text("{}")
    told = api.admin.get("/api/gates").json()
    assert [one["gate"] for one in told["gates"]] == [gate_id]
    assert broken in told["troubles"][0]
    whole = api.admin.get(f"/api/gates/{gate_id}").json()
    assert whole["verdict"]["reason"] == told["gates"][0]["reason"]
    assert len(whole["curves"]["challenger"]) == 100
    assert api.admin.get("/api/gates/0123456789abcdef").status_code == 404
    assert api.admin.get("/api/gates/..%2fservice").status_code in {404, 422}
    assert api.admin.get("/api/policies").json()["last_gate"]["gate"] == gate_id


def test_a_gate_is_held_as_a_job(api: Api) -> None:
    """202 with the job, which ends as done though the gate refuses; its verdict is kept and audited."""
    body = {"challenger": "random", **SMALL}
    started = api.admin.post("/api/gates", json=body)
    assert started.status_code == 202
    job = ended(api, started.json()["job_id"])
    assert (job["state"], job["exit_code"], job["kind"]) == ("done", 4, "gate")
    assert job["progress"]["summary"]["outcome"] == "refused"
    assert {one["name"] for one in job["progress"]["models"]} == {"egreedy", "random", "egreedy again"}
    [kept] = api.admin.get("/api/gates").json()["gates"]
    assert kept["gate"] == job["progress"]["summary"]["gate"]
    assert "gate.start" in {one["action"] for one in api.admin.get("/api/audit").json()}


def test_a_rehearsal_and_a_simulation_keep_no_gate(api: Api) -> None:
    """One at a time: the second is 409 while the first runs, and neither can promote anybody."""
    first = api.admin.post("/api/gates", json={"challenger": "hybrid", "record": False, **SMALL}).json()
    busy = api.admin.post("/api/simulations", json={"policies": ["random"], **SMALL})
    assert (busy.status_code, busy.json()["error"]["code"]) == (409, "host_busy")
    assert ended(api, first["job_id"])["progress"]["summary"]["gate"] is None
    second = api.admin.post("/api/simulations", json={"policies": ["random", "linucb"], **SMALL}).json()
    summary = ended(api, second["job_id"])["progress"]["summary"]
    assert [one["policy"] for one in summary["rows"]] == ["random", "linucb"]
    assert api.admin.get("/api/gates").json()["gates"] == []


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("gates", {"challenger": "os:getcwd"}, "challenger"),
        ("gates", {"challenger": "hybrid", "champion": "nobody"}, "champion"),
        ("gates", {"challenger": "hybrid", "world": "/etc/passwd"}, "world"),
        ("gates", {"challenger": "hybrid", "seeds": 4}, "seeds"),
        ("gates", {"challenger": "hybrid", "margin": 1}, "margin"),
        ("gates", {"challenger": "hybrid", "users": 2}, "users"),
        ("gates", {"challenger": "hybrid", "rounds": 1.5}, "rounds"),
        ("simulations", {"policies": []}, "policies"),
        ("simulations", {"policies": ["random", "random"]}, "policies"),
        ("simulations", {"policies": ["subprocess:run"]}, "policies"),
    ],
)
def test_what_cannot_be_simulated_names_the_field(
    api: Api, path: str, body: dict[str, Any], field: str
) -> None:
    """422 with a message for the field, and no job: no module is loaded and no file is read by name."""
    refused = api.admin.post(f"/api/{path}", json=body)
    assert refused.status_code == 422
    assert field in refused.json()["error"]["fields"]
    assert api.admin.get("/api/jobs").json() == []


def test_too_much_to_hold_in_memory_is_refused(api: Api) -> None:
    """Before a process is started for it."""
    body = {"challenger": "hybrid", "seeds": 1000, "users": 10_000, "rounds": 100_000}
    refused = api.admin.post("/api/gates", json=body)
    assert refused.status_code == 422
    assert "held in memory" in refused.json()["error"]["message"]


def test_a_challenger_is_promoted_and_taken_back(api: Api) -> None:
    """At once and audited; a second promotion waits for the first, and what is gone back from is told."""
    gate_id = planted()
    body = {"policy": "hybrid", "gate": gate_id, "canary": 0.25}
    now = api.admin.post("/api/policies/promote", json=body).json()
    assert (now["policy"], now["on_trial"], now["share"], now["replaced"]) == (
        "hybrid",
        True,
        0.25,
        "egreedy",
    )
    assert api.service.desk.now.active.policy == "hybrid"
    told = api.admin.get("/api/policies").json()
    assert (told["active"]["policy"], told["canary"]["ruling"]) == ("hybrid", "wait")
    assert api.admin.post("/api/policies/promote", json=body).status_code == 409
    assert api.admin.post("/api/policies/rollback").json()["policy"] == "egreedy"
    assert api.admin.post("/api/policies/rollback").status_code == 409
    told = api.admin.get("/api/policies").json()
    assert [one["what"] for one in told["history"]] == ["rolled back", "promoted"]
    audit = [(one["action"], one["who"]) for one in api.admin.get("/api/audit").json()]
    assert audit == [
        ("tips.rollback.refused", "root"),
        ("tips.rollback", "root"),
        ("tips.promote.refused", "root"),
        ("tips.promote", "root"),
    ]


@pytest.mark.parametrize(
    ("changes", "status"),
    [({"outcome": "refused"}, 409), ({"champion": "linucb"}, 409), ({"held_ms": 1000}, 409), (None, 404)],
)
def test_without_a_gate_that_counts_nobody_is_promoted(
    api: Api, changes: dict[str, Any] | None, status: int
) -> None:
    """Refused, against another champion, too old, or not there: an error that says so, and no change."""
    gate_id = "0" * 16 if changes is None else planted(**changes)
    refused = api.admin.post("/api/policies/promote", json={"policy": "hybrid", "gate": gate_id})
    assert refused.status_code == status
    assert api.admin.get("/api/policies").json()["active"]["policy"] == "egreedy"


def test_books_that_cannot_be_read_hide_no_gate(api: Api) -> None:
    """The page's contents are told as far as they can be, with the reason for the rest."""
    gate_id = planted()
    (home() / "tips.db").write_bytes(b"no database" * 1000)
    told = api.admin.get("/api/policies").json()
    assert (told["active"], told["policies"]) == (None, [])
    assert told["last_gate"]["gate"] == gate_id
    assert "tips.db" in told["troubles"][0]
