"""Signed messages that apply a filled batch, and every way in which one may be wrong."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from api_world import EXPERIMENT, SECRET, Api, open_api, score
from judged_world import plant
from receiver import Receiver, listening
from tipbench.service import create_app
from tipbench.store import Job
from tipbench.workflows.announcing import Announcer
from tipbench.workflows.exporting import Order, batch_file, keep_batch, take_batches
from tipbench.workflows.service_state import Service
from tipbench.workflows.webhooks import NONCE, SIGNATURE, TIMESTAMP, Hook, announce, signature, signed_headers

if TYPE_CHECKING:
    from httpx2 import Response

    from judged_world import World

HOOK = "/api/hooks/batch"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def body(api: Api) -> bytes:
    """A batch for whoever takes it, filled in by an agent."""
    taken = take_batches(api.world.settings, Order())
    keep_batch(taken.state, taken.new[0])
    file: dict[str, Any] = json.loads(batch_file(taken.state, taken.new[0], judge=None))
    file["judged_by"] = {"id": "robot", "kind": "agent", "model": "some-model"}
    for item in file["items"]:
        item["judge"] |= score(api.world, item)
    return json.dumps(file).encode()


def send(api: Api, body: bytes, headers: dict[str, str]) -> Response:
    return api.nobody.post(HOOK, content=body, headers=headers | {"Content-Type": "application/json"})


def test_a_signed_batch_is_applied_once(api: Api, body: bytes) -> None:
    """200 and an entry in the audit; the very same message again is a replay (409)."""
    headers = signed_headers(SECRET, body, now_ms=now_ms())
    done = send(api, body, headers)
    assert done.status_code == 200, done.text
    assert (done.json()["judge"], done.json()["cells_pending"]) == ("robot", 0)
    again = send(api, body, headers)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "conflict")
    assert api.admin.get("/api/audit").json()[0]["action"] == "hook.apply"
    anew = send(api, body, signed_headers(SECRET, body, now_ms=now_ms()))
    assert (anew.status_code, anew.json()["new"]) == (200, 0)


def test_of_one_message_that_is_sent_many_times_at_once_one_is_taken(api: Api, body: bytes) -> None:
    """A replay is refused also where it overtakes the message."""
    headers = signed_headers(SECRET, body, now_ms=now_ms())
    with ThreadPoolExecutor(8) as pool:
        codes = sorted(pool.map(lambda _: send(api, body, headers).status_code, range(8)))
    assert codes == [200] + [409] * 7


def test_what_a_hook_brings_is_audited_with_its_address(api: Api, body: bytes) -> None:
    """Also where the hidden items speak against it."""
    spoilt = json.loads(body)
    for item in spoilt["items"]:
        item["judge"] |= {"relevance": 1, "actionability": 5, "tone": 1}
    wrong = json.dumps(spoilt).encode()
    assert send(api, wrong, signed_headers(SECRET, wrong, now_ms=now_ms())).status_code == 409
    assert send(api, body, signed_headers(SECRET, body, now_ms=now_ms())).status_code == 200
    entries = api.admin.get("/api/audit").json()
    assert [(one["action"], one["ip"]) for one in entries[:2]] == [
        ("hook.apply", "127.0.0.1"),
        ("hook.rejected", "127.0.0.1"),
    ]


@pytest.mark.parametrize("late_s", [-3600, -320, 320, 3600])
def test_a_message_from_another_time_is_refused(api: Api, body: bytes, late_s: int) -> None:
    """Five minutes either way, and no more."""
    refused = send(api, body, signed_headers(SECRET, body, now_ms=now_ms() + late_s * 1000))
    assert refused.status_code == 401
    near = 280 if late_s > 0 else -280
    assert send(api, body, signed_headers(SECRET, body, now_ms=now_ms() + near * 1000)).status_code == 200


@pytest.mark.parametrize(
    "change",
    [
        {SIGNATURE: "0" * 64},
        {SIGNATURE: ""},
        {SIGNATURE: "x" * 200},
        {NONCE: "another-nonce"},
        {NONCE: ""},
        {NONCE: "a.b c\td"},
        {TIMESTAMP: ""},
        {TIMESTAMP: "1e9"},
        {TIMESTAMP: "-1"},
        {TIMESTAMP: "9" * 12},
    ],
)
def test_a_message_that_was_tampered_with_is_refused(api: Api, body: bytes, change: dict[str, str]) -> None:
    """401, nothing is applied, and the true message is still taken afterwards."""
    headers = signed_headers(SECRET, body, now_ms=now_ms())
    refused = send(api, body, headers | change)
    assert refused.status_code == 401, refused.text
    assert api.admin.get(f"/api/judge/{EXPERIMENT}/status").json()["judged"] == 0
    assert send(api, body, headers).status_code == 200


def test_another_body_or_another_secret_is_refused(api: Api, body: bytes) -> None:
    """The signature covers every byte, and only one secret makes it."""
    headers = signed_headers(SECRET, body, now_ms=now_ms())
    assert send(api, body + b" ", headers).status_code == 401
    assert send(api, body, signed_headers("guess", body, now_ms=now_ms())).status_code == 401
    upper = headers | {SIGNATURE: headers[SIGNATURE].upper()}
    assert send(api, body, upper).status_code == 401


def test_the_signature_is_the_documented_one() -> None:
    """Hex HMAC-SHA256 of timestamp, nonce and body with dots between, as anybody can compute it."""
    made = signature("key", timestamp="1700000000", nonce="abcdefgh", body=b'{"a":1}')
    # printf '1700000000.abcdefgh.{"a":1}' | openssl dgst -sha256 -hmac key
    assert made == "80f0200216a36c1511c902c5e5812802afe047880350eb584a6ee6d4ac7853e5"


def test_a_signed_message_that_is_no_file_is_refused(api: Api) -> None:
    """What is wrong with it is told, since its sender knows the secret; it changes nothing."""
    for nonsense in (b"", b"{}", b"\x00", b"[" * 50_000):
        refused = send(api, nonsense, signed_headers(SECRET, nonsense, now_ms=now_ms()))
        assert refused.status_code == 422
    large = b" " * 20_000_001
    assert send(api, large, signed_headers(SECRET, large, now_ms=now_ms())).status_code == 413


def test_without_a_secret_there_is_no_hook(api: Api, body: bytes) -> None:
    """A service that was given no secret takes nothing, not even what is signed with an empty one."""
    service = Service(replace(api.service.config, webhook_secret=""))
    off = replace(api, service=service, app=create_app(service))
    assert send(off, body, signed_headers("", body, now_ms=now_ms())).status_code == 404
    service.close()


def test_deliveries_are_listed_without_their_bodies(api: Api) -> None:
    """An admin sees what waits and what its receiver said, the newest first."""
    hook = Hook(url="http://127.0.0.1:9/", secret=SECRET)
    assert announce(api.service.store, hook, api.world.settings, key="one", now_ms=5)
    listed = api.admin.get("/api/hooks/deliveries").json()
    assert [(one["event"], one["state"], one["attempts"]) for one in listed] == [
        ("batch.ready", "waiting", 0)
    ]
    assert listed[0]["size"] > 1000
    assert "body" not in listed[0]


def ended(experiment: str, *, job_id: str = "j1", suite: str = "tip") -> Job:
    moment = now_ms()
    return Job(job_id=job_id, kind="collect", title="t", experiment=experiment, folder="",
               by="x", params={"settings": {"suite": suite}}, created_ms=moment, state="done",
               ended_ms=moment)  # fmt: skip


def answered(api: Api, world: World, message: str) -> None:
    """Judge what was announced, and send it back signed."""
    file = json.loads(message)["file"]
    file["judged_by"] = {"id": "robot", "kind": "agent", "model": "m"}
    for item in file["items"]:
        item["judge"] |= score(world, item)
    body = json.dumps(file).encode()
    done = send(api, body, signed_headers(SECRET, body, now_ms=now_ms()))
    assert done.status_code == 200, done.text


def test_the_next_batch_is_announced_when_the_last_one_is_in(api: Api) -> None:
    """One at a time until nothing is left, however large the experiment is; also after a restart."""
    world = plant("large", quality={("a:1b", "v1"): 4.0, ("b:1b", "v1"): 2.0}, n_scenarios=8, n_tips=6)
    api.service.store.jobs.add(ended("large"))
    hook = Hook(url="http://127.0.0.1:9/", secret=SECRET)
    announcer = Announcer(api.service, hook)
    rounds = 0
    while announcer.look():
        assert announcer.look() == 0
        assert Announcer(api.service, hook).look() == 0
        answered(api, world, api.service.store.deliveries.page()[0].body)
        rounds += 1
        if rounds == 1:
            announcer = Announcer(api.service, hook)
    assert rounds == 2
    status = api.admin.get("/api/judge/large/status").json()
    assert (status["pending"], status["wanted"]) == (0, 96)


def test_an_experiment_that_cannot_be_judged_keeps_no_other_from_being_announced(api: Api) -> None:
    """Its batch cannot be read; the batch of the other one is sent all the same."""
    broken = plant("broken", quality={("a:1b", "v1"): 4.0}, n_scenarios=1, changed=lambda _result: None)
    assert not broken.runs
    api.service.store.jobs.add(ended(EXPERIMENT))
    api.service.store.jobs.add(ended("broken", job_id="j2", suite="/nowhere"))
    api.service.store.jobs.add(ended("never recorded", job_id="j3"))
    announcer = Announcer(api.service, Hook(url="http://user:word@127.0.0.1:9/in", secret=SECRET))
    assert announcer.look() == 1
    [kept] = api.admin.get("/api/hooks/deliveries").json()
    assert kept["url"] == "http://127.0.0.1:9/in"


def test_a_collection_that_ended_is_announced_and_delivered_while_the_service_runs(world: World) -> None:
    """A job that is done makes one message, which arrives by itself; its answer can be sent back signed."""
    with listening(Receiver()) as receiver:
        api = open_api(world, webhook_url=receiver.url)
        moment = now_ms()
        api.service.store.jobs.add(
            Job(job_id="j1", kind="collect", title="t", experiment=EXPERIMENT, params={}, folder="", by="x",
                created_ms=moment, state="done", ended_ms=moment)
        )  # fmt: skip
        with api.caller("root") as running:
            while not receiver.got:
                time.sleep(0.05)
            time.sleep(0.2)
            assert len(receiver.got) == 1
            file = json.loads(receiver.got[0][2])["file"]
            file["judged_by"] = {"id": "robot", "kind": "agent", "model": "m"}
            for item in file["items"]:
                item["judge"] |= score(world, item)
            body = json.dumps(file).encode()
            assert send(api, body, signed_headers(SECRET, body, now_ms=now_ms())).status_code == 200
            assert running.get("/api/hooks/deliveries").json()[0]["state"] == "sent"
        api.service.close()
