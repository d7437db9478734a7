"""Jobs over the API: started, watched, broken off, taken up again; by real processes on a stand-in host."""

from __future__ import annotations

import json
import shutil
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import uvicorn

from api_world import EXPERIMENT, Api, open_api
from stand_in import FakeModel, StandIn, running
from tipbench.api.jobs import _stream
from tipbench.settings import Settings
from tipbench.store import Job
from tipbench.workflows.job_process import JobFolder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

    from judged_world import World

ENDED = Job(
    job_id="j1", kind="collect", title="", experiment="x", params={}, folder="", by="", created_ms=0,
    state="done", ended_ms=1,
)  # fmt: skip
RUN = {"models": ["qwen2.5:0.5b"], "prompts": ["v1"], "n_scenarios": 3, "n_tips": 2, "experiment": "new"}


@pytest.fixture
def host() -> Iterator[StandIn]:
    with running(StandIn(models=[FakeModel("qwen2.5:0.5b")])) as found:
        yield found


@pytest.fixture
def hosted(world: World, host: StandIn) -> Iterator[Api]:
    opened = open_api(world, settings=Settings.of({"ollama_url": host.url, "engine": "ollama"}))
    yield opened
    for job in opened.service.jobs.page():
        if job.state in {"queued", "running"}:
            opened.service.jobs.cancel(job.job_id)
            ended(opened, job.job_id)
    opened.service.close()


def ended(api: Api, job_id: str) -> dict[str, Any]:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        job: dict[str, Any] = api.admin.get(f"/api/jobs/{job_id}").json()
        if job["state"] not in {"queued", "running"}:
            return job
        time.sleep(0.2)
    raise AssertionError(f"{job} goes on")


def messages(text: str) -> list[dict[str, str]]:
    """The server-sent events of a stream, each with its fields; comments left out."""
    blocks = [block.strip("\n") for block in text.split("\n\n") if block and not block.startswith(":")]
    return [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]


@pytest.fixture(scope="module")
def collected(
    planted: tuple[Path, World], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Api, str]]:
    """A service and a collection that was run by it: recording one takes a while on a busy machine."""
    folder = tmp_path_factory.mktemp("collected") / "home"
    shutil.copytree(planted[0], folder)
    with pytest.MonkeyPatch.context() as patch, running(StandIn(models=[FakeModel("qwen2.5:0.5b")])) as host:
        patch.setenv("TIPBENCH_HOME", str(folder))
        api = open_api(planted[1], settings=Settings.of({"ollama_url": host.url, "engine": "ollama"}))
        answer = api.admin.post("/api/bench/run", json=RUN)
        assert answer.status_code == 202, answer.text
        job_id = answer.json()["job_id"]
        assert answer.json()["url"] == f"/api/jobs/{job_id}"
        ended(api, job_id)
        yield api, job_id
        api.service.close()


def test_a_collection_is_started_watched_and_read(collected: tuple[Api, str]) -> None:
    """A job that ends well, its log, an entry in the audit, and cells to read."""
    api, job_id = collected
    job = api.admin.get(f"/api/jobs/{job_id}").json()
    log = api.admin.get(f"/api/jobs/{job_id}/log?tail=50")
    assert (job["state"], job["exit_code"], job["by"]) == ("done", 0, "root"), log.json()["log"]
    assert (job["progress"]["done"], job["resumable"], job["settings"]["n_tips"]) == (3, False, 2)
    assert api.admin.get("/api/bench/runs/new").json()["total"] == 3
    assert [one["job_id"] for one in api.admin.get("/api/jobs").json()] == [job_id]
    entry = api.admin.get("/api/audit").json()[0]
    assert (entry["who"], entry["action"], entry["target"]) == ("root", "collect.start", "new")
    assert api.admin.post(f"/api/jobs/{job_id}/cancel").status_code == 409
    assert api.admin.post(f"/api/jobs/{job_id}/resume").status_code == 409


def test_events_go_on_where_a_watcher_stopped(collected: tuple[Api, str]) -> None:
    """Ids grow; after any of them exactly the rest comes; after the last there is nothing (204)."""
    api, job_id = collected
    path = f"/api/jobs/{job_id}/events"
    whole = api.admin.get(path)
    assert whole.headers["content-type"].startswith("text/event-stream")
    found = messages(whole.text)
    assert found[0] == {"retry": "3000"}
    events, end = found[1:-1], found[-1]
    assert end == {"id": events[-1]["id"], "event": "end", "data": '{"state": "done"}'}
    ids = [int(one["id"]) for one in events]
    assert ids == sorted(set(ids))
    assert {"plan", "cell", "summary"} <= {json.loads(one["data"])["event"] for one in events}
    for place in (0, len(ids) // 2):
        rest = messages(api.admin.get(path, headers={"Last-Event-ID": str(ids[place])}).text)
        assert rest[1:-1] == events[place + 1 :]
    assert api.admin.get(path, headers={"Last-Event-ID": str(ids[-1])}).status_code == 204
    for strange in ("-1", "x", "9" * 30, "1.5"):
        again = messages(api.admin.get(path, headers={"Last-Event-ID": strange}).text)
        assert again[1:-1] == events
    assert api.admin.get("/api/jobs/nope/events").status_code == 404


def test_a_first_connect_need_not_begin_at_the_beginning(collected: tuple[Api, str]) -> None:
    """`after` is where to begin; what a browser saw since counts more; a job says how far it was told."""
    api, job_id = collected
    path = f"/api/jobs/{job_id}/events"
    events = messages(api.admin.get(path).text)[1:-1]
    ids = [one["id"] for one in events]
    assert messages(api.admin.get(path, params={"after": ids[1]}).text)[1:-1] == events[2:]
    assert messages(api.admin.get(path, params={"after": 0}).text)[1:-1] == events
    again = api.admin.get(path, params={"after": ids[0]}, headers={"Last-Event-ID": ids[2]})
    assert messages(again.text)[1:-1] == events[3:]
    told = api.admin.get(f"/api/jobs/{job_id}").json()["progress"]["last_event"]
    assert str(told) == ids[-1]
    assert f'data-after="{told}"' in api.admin.get(f"/jobs/{job_id}").text
    assert api.admin.get(path, params={"after": told}).status_code == 204
    for strange in ("-1", "x", "9" * 30, "1.5"):
        refused = api.admin.get(path, params={"after": strange})
        assert (refused.status_code, [*refused.json()["error"]["fields"]]) == (422, ["after"])


async def test_the_end_has_the_place_of_who_saw_nothing_more(api: Api) -> None:
    """A watcher who began late and saw only the end does not begin anew when it connects again."""
    api.service.store.jobs.add(ENDED)

    async def nothing() -> AsyncIterator[tuple[int, Mapping[str, Any]]]:
        none: tuple[tuple[int, Mapping[str, Any]], ...] = ()
        for one in none:
            yield one

    sent = [one async for one in _stream(api.service, "j1", [], nothing(), seen=7)]
    assert sent[1:] == ['id: 7\nevent: end\ndata: {"state": "done"}\n\n']


def test_a_busy_host_is_a_conflict_that_says_who(hosted: Api, host: StandIn) -> None:
    """409 with the job that has the host; when that was cancelled, it can be resumed."""
    host.latency_s = 1.0
    slow = RUN | {"n_scenarios": 8, "repeats": 3}
    job_id = hosted.admin.post("/api/bench/run", json=slow).json()["job_id"]
    while not host.chats:
        time.sleep(0.05)
    busy = hosted.admin.post("/api/bench/run", json=RUN | {"experiment": "other"})
    assert busy.status_code == 409
    assert busy.json()["error"]["code"] == "host_busy"
    assert job_id in busy.json()["error"]["message"]
    assert "started by root" in busy.json()["error"]["message"]
    assert hosted.admin.post(f"/api/jobs/{job_id}/resume").status_code == 409
    assert hosted.admin.post(f"/api/jobs/{job_id}/cancel").status_code == 200
    job = ended(hosted, job_id)
    assert (job["state"], job["resumable"]) == ("cancelled", True)
    host.latency_s = 0.0
    assert hosted.admin.post(f"/api/jobs/{job_id}/resume").status_code == 202
    assert hosted.admin.get(f"/api/jobs/{job_id}").json()["state"] in {"queued", "running", "done"}


@contextmanager
def served(api: Api) -> Iterator[str]:
    """The application on a real port, for what a buffered client cannot show."""
    server = uvicorn.Server(uvicorn.Config(api.app, port=0, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=20)


def test_events_come_while_the_job_runs_and_after_a_broken_connection(hosted: Api, host: StandIn) -> None:
    """A watcher sees cells before the job ends; connected anew, it misses nothing and sees nothing twice."""
    host.latency_s = 0.5
    job_id = hosted.admin.post("/api/bench/run", json=RUN | {"n_scenarios": 8, "repeats": 10}).json()[
        "job_id"
    ]
    headers = {"Authorization": f"Bearer {hosted.tokens['root']}"}
    with (
        served(hosted) as url,
        httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False) as client,
    ):
        seen = ""
        with client.stream("GET", f"/api/jobs/{job_id}/events") as stream:
            for line in stream.iter_lines():
                seen += line + "\n"
                if '"event": "cell"' in line:
                    break
        assert hosted.service.jobs.get(job_id).state == "running"
        first = messages(seen)[1:]
        canceller = threading.Timer(2, hosted.service.jobs.cancel, [job_id])
        canceller.start()
        rest = client.get(f"/api/jobs/{job_id}/events", headers={"Last-Event-ID": first[-1]["id"]})
        canceller.join()
    both = [*first, *messages(rest.text)[1:-1]]
    whole = messages(hosted.admin.get(f"/api/jobs/{job_id}/events").text)[1:-1]
    assert [one["id"] for one in both] == [one["id"] for one in whole]
    assert '"state": "cancelled"' in rest.text


def test_the_proxy_judges_on_request(api: Api) -> None:
    """A job scores everything; only with `insist` is anything ranked by it."""
    answer = api.admin.post(f"/api/judge/{EXPERIMENT}/auto", json={"judge": "proxy"})
    assert answer.status_code == 202, answer.text
    assert ended(api, answer.json()["job_id"])["state"] == "done"
    board = f"/api/bench/leaderboard/{EXPERIMENT}"
    refused = api.admin.get(board)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "rejected")
    assert api.admin.get(board, params={"insist": True}).json()["ground"] == "proxy"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"judge": "cat"}, "judge"),
        ({"judge": ""}, "judge"),
        ({"judge": "ollama:\x00"}, "judge"),
        ({}, "judge"),
        ({"judge": "openai:x", "base_url": "http://10.0.0.1"}, "base_url"),
        ({"judge": "proxy", "same_family": "yes"}, "same_family"),
        ({"judge": "proxy", "more": 1}, "more"),
    ],
)
def test_a_wrong_judge_is_told_by_field(api: Api, body: dict[str, Any], field: str) -> None:
    """422, and no job; nor may a request send the key of the service anywhere."""
    refused = api.admin.post(f"/api/judge/{EXPERIMENT}/auto", json=body)
    assert refused.status_code == 422
    assert field in refused.json()["error"]["fields"]
    assert api.admin.get("/api/jobs").json() == []


async def test_a_quiet_stream_is_kept_open_by_comments(api: Api) -> None:
    """When nothing happens for a while a comment is sent, which no watcher takes for an event."""
    api.service.store.jobs.add(ENDED)

    async def found() -> AsyncIterator[tuple[int, Mapping[str, Any]]]:
        yield 7, {"event": "cell"}
        yield 7, {"event": "quiet"}

    sent = [one async for one in _stream(api.service, "j1", [], found())]
    assert sent[1:3] == ['id: 7\ndata: {"event": "cell"}\n\n', ": quiet\n\n"]


@contextmanager
def planted_job(api: Api, folder: Path) -> Iterator[str]:
    """A job that goes on for as long as the block, and does nothing."""
    params = {"host": "h", "settings": {}, "logins": [], "cwd": "/"}
    job = replace(ENDED, job_id="live", state="queued", folder=str(folder), params=params, ended_ms=None)
    with JobFolder(folder).claimed():
        JobFolder(folder).events.write_text('{"event": "notice", "message": "hello"}\n')
        api.service.store.jobs.add(job)
        yield job.job_id


def test_a_revoked_token_ends_the_stream_that_it_began(api: Api, tmp_path: Path) -> None:
    """Somebody else revokes it while the job goes on: the stream ends soon, and not as if the job had."""
    headers = {"Authorization": f"Bearer {api.service.store.tokens.create('eve', 'admin', now_ms=0)}"}
    with planted_job(api, tmp_path / "job") as job_id, served(api) as url:
        path = f"{url}/api/jobs/{job_id}/events"
        with httpx.stream("GET", path, headers=headers, timeout=60, trust_env=False) as stream:
            seen = ""
            for line in stream.iter_lines():
                seen += line
                if "hello" in line:
                    api.service.store.tokens.revoke("eve", now_ms=1)
        assert "event: end" not in seen
        assert httpx.get(path, headers=headers, trust_env=False).status_code == 401


def test_a_stream_that_is_stopped_tells_no_end(api: Api, tmp_path: Path) -> None:
    """When the service stops, watchers are let go at once, and come back to a job that goes on."""
    headers = {"Authorization": f"Bearer {api.tokens['root']}"}
    with planted_job(api, tmp_path / "job") as job_id, served(api) as url:
        path = f"{url}/api/jobs/{job_id}/events"
        with httpx.stream("GET", path, headers=headers, timeout=60, trust_env=False) as stream:
            lines = stream.iter_lines()
            seen = [next(lines) for _ in range(4)]
            api.service.jobs.stop_watching()
            seen += list(lines)
        assert "hello" in "".join(seen)
        assert "event: end" not in seen
        assert api.service.jobs.get(job_id).state == "queued"
