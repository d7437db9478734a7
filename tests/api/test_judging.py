"""Judging over the API from the first batch to the leaderboard, and what a judge never gets to see."""

from __future__ import annotations

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from mlflow import MlflowClient

from api_world import EXPERIMENT, GOOD, POOR, Api, judge_all, open_api, score
from job_world import wait_until
from judged_world import plant
from tipbench.records import Judge, content_hash
from tipbench.service import create_app
from tipbench.settings import Settings, home
from tipbench.store import Job
from tipbench.suite import load_suite
from tipbench.workflows.exporting import Order, export
from tipbench.workflows.judged import read_judged
from tipbench.workflows.service_state import Service
from verdict_planting import judge

if TYPE_CHECKING:
    from pathlib import Path

    from judged_world import World
    from tipbench.records import Run

BATCH = f"/api/judge/{EXPERIMENT}/batch"


def test_a_judge_scores_a_batch_stroke_by_stroke_and_hands_it_in(api: Api) -> None:
    """From an open batch to verdicts that the leaderboard ranks by."""
    batch = api.ann.get(BATCH).json()
    assert batch["left"] == len(batch["items"]) > 16
    assert judge_all(api.ann, api.world) == batch["batch"]
    applied = api.ann.post(f"/api/judge/batches/{batch['batch']}/submit")
    assert applied.status_code == 200, applied.text
    told = applied.json()
    assert (told["new"], told["skipped"], told["cells_pending"]) == (len(batch["items"]), 0, 0)
    assert told["drift"]["state"] == "ok"
    assert told["agreement"] == {"word": None, "enough": False}
    board = api.admin.get(f"/api/bench/leaderboard/{EXPERIMENT}").json()
    assert board["rows"][0]["model"] == GOOD
    assert board["ground"] == "human"


def test_what_only_a_model_has_judged_waits_for_people(api: Api) -> None:
    """It is listed with all its cells, and handed out; after a person has judged it, it is not."""
    ledger = api.world.ledger
    judge(ledger, EXPERIMENT, Judge(id="mistral:7b", kind="ai"), lambda _run, _slot: 9)
    ledger.mark(EXPERIMENT, read_judged(ledger, EXPERIMENT).marks())
    (entry,) = api.world.ledger.experiments()
    assert (entry.done > 0, entry.pending) == (True, 0)
    (told,) = api.ann.get("/api/judge").json()
    assert (told["cells"], told["cells_pending"], told["open_batch"]) == (entry.done, entry.done, None)
    batch = judge_all(api.ann, api.world)
    assert api.ann.get("/api/judge").json()[0]["open_batch"] == batch
    assert api.ann.post(f"/api/judge/batches/{batch}/submit").status_code == 200
    assert api.ann.get("/api/judge").json() == []


def test_a_stroke_is_there_when_the_batch_is_asked_for_again(api: Api) -> None:
    """A half-given answer is kept as it was given, and counts as not done."""
    batch = api.ann.get(BATCH).json()
    item = batch["items"][3]
    path = f"/api/judge/batches/{batch['batch']}/items/{item['id']}"
    first = api.ann.put(path, json={"relevance": 4, "note": "good"})
    assert first.json()["left"] == len(batch["items"])
    again = api.ann.get(BATCH).json()
    assert again["batch"] == batch["batch"]
    assert again["items"][3]["answer"] == {"relevance": 4, "note": "good"}
    done = api.ann.put(path, json={"relevance": 4, "actionability": 3, "tone": 2, "overlong": None})
    assert done.json()["left"] == len(batch["items"]) - 1
    assert api.ann.get(BATCH).json()["items"][3]["answer"] == {"relevance": 4, "actionability": 3, "tone": 2}


def test_a_judge_with_nothing_left_reads_no_command(api: Api) -> None:
    """The words name neither the leaderboard nor the ledger; an admin reads the command too."""
    batch = judge_all(api.ann, api.world)
    assert api.ann.post(f"/api/judge/batches/{batch}/submit").status_code == 200
    words = f"experiment {EXPERIMENT!r} has nothing left to judge"
    told = {who: getattr(api, who).get(BATCH).json()["error"]["message"] for who in ("ann", "admin")}
    assert told == {"ann": words, "admin": f"{words}; see `tipbench compare --experiment {EXPERIMENT}`"}
    notes = api.ann.get(f"/api/judge/{EXPERIMENT}/status").json()["notes"]
    assert notes
    assert not [note for note in notes if "tipbench" in note]


def test_drafts_outlive_the_service(api: Api, world: World) -> None:
    """What was scored before a restart is there after it, and the same batch is handed out."""
    batch = judge_all(api.ann, world)
    api.service.close()
    service = Service(api.service.config)
    again = replace(api, service=service, app=create_app(service))
    found = again.ann.get(BATCH).json()
    assert (found["batch"], found["left"]) == (batch, 0)
    assert again.ann.post(f"/api/judge/batches/{batch}/submit").status_code == 200


def test_a_batch_that_drifted_is_rejected_and_its_draft_kept(api: Api) -> None:
    """409 with the reason; the answers stay, the batch says why, and a better second try is taken in."""
    batch = judge_all(api.ann, api.world, shift=-2)
    refused = api.ann.post(f"/api/judge/batches/{batch}/submit")
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "rejected"
    assert "--accept-drift" not in refused.text
    found = api.ann.get(BATCH).json()
    assert (found["batch"], found["left"]) == (batch, 0)
    assert found["rejected"] == refused.json()["error"]["message"]
    assert api.admin.get(f"/api/judge/{EXPERIMENT}/status").json()["judged"] == 0
    judge_all(api.ann, api.world)
    assert api.ann.post(f"/api/judge/batches/{batch}/submit").status_code == 200


def test_an_unfinished_batch_is_handed_in_only_on_purpose(api: Api) -> None:
    """Missing scores are counted in the refusal; `partial` takes what there is."""
    batch = api.ann.get(BATCH).json()
    submit = f"/api/judge/batches/{batch['batch']}/submit"
    assert api.ann.post(submit).status_code == 422
    for item in batch["items"][:-2]:
        api.ann.put(f"/api/judge/batches/{batch['batch']}/items/{item['id']}", json=score(api.world, item))
    refused = api.ann.post(submit)
    assert refused.status_code == 422
    assert f"2 of {len(batch['items'])} items" in refused.json()["error"]["message"]
    taken = api.ann.post(submit, json={"partial": True})
    assert (taken.status_code, taken.json()["skipped"]) == (200, 2)


def test_a_batch_is_handed_in_once(api: Api) -> None:
    """A second submit, and a stroke after it, are conflicts and change nothing."""
    batch = judge_all(api.ann, api.world)
    item = api.ann.get(BATCH).json()["items"][0]["id"]
    assert api.ann.post(f"/api/judge/batches/{batch}/submit").status_code == 200
    assert api.ann.post(f"/api/judge/batches/{batch}/submit").status_code == 409
    stroke = api.ann.put(f"/api/judge/batches/{batch}/items/{item}", json={"tone": 1})
    assert stroke.status_code == 409


def test_a_judge_touches_only_batches_of_their_own(api: Api) -> None:
    """Somebody else's batch is as good as none, for a judge and for an admin."""
    batch = judge_all(api.ann, api.world)
    item = api.ann.get(BATCH).json()["items"][0]["id"]
    for other in (api.bob, api.admin):
        assert other.put(f"/api/judge/batches/{batch}/items/{item}", json={"tone": 1}).status_code == 404
        assert other.post(f"/api/judge/batches/{batch}/submit").status_code == 404
    assert api.bob.put("/api/judge/batches/nope/items/x", json={}).json() == {
        "error": {"code": "not_found", "message": "there is no batch 'nope' of yours"}
    }
    assert api.ann.get(BATCH).json()["left"] == 0


@pytest.mark.parametrize(
    ("answer", "field"),
    [
        ({"relevance": 6}, "relevance"),
        ({"relevance": "5"}, "relevance"),
        ({"relevance": 2.5}, "relevance"),
        ({"relevance": True}, "relevance"),
        ({"relevanz": 3}, "relevanz"),
        ({"note": "a\x00b"}, "note"),
        ({"note": "x" * 2001}, "note"),
        ({"overlong": "yes"}, "overlong"),
    ],
)
def test_a_wrong_stroke_names_its_field(api: Api, answer: dict[str, Any], field: str) -> None:
    """Nothing of it is kept."""
    batch = api.ann.get(BATCH).json()
    item = batch["items"][0]["id"]
    refused = api.ann.put(f"/api/judge/batches/{batch['batch']}/items/{item}", json=answer)
    assert refused.status_code == 422
    assert list(refused.json()["error"]["fields"]) == [field]
    assert api.ann.get(BATCH).json()["items"][0]["answer"] is None


def test_two_requests_at_once_get_the_same_batch(api: Api) -> None:
    """Asking twice before anything is scored makes no second batch."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        found = list(pool.map(lambda _: api.ann.get(BATCH).json()["batch"], range(2)))
    assert found[0] == found[1]
    assert len(api.world.ledger.batches(EXPERIMENT)) == 1


def test_nothing_a_judge_gets_tells_of_models_or_roles(api: Api) -> None:
    """Lists, batches, status, files and refusals: no model, no role, no other judge."""
    plant("qwen-or-gemma", quality={(GOOD, "v1"): 4.0, (POOR, "v1"): 2.5}, n_scenarios=1)
    names = [one["experiment"] for one in api.ann.get("/api/judge").json()]
    assert EXPERIMENT in names
    assert len(names) == 2
    paths = [f"/api/judge/{name}/{what}" for name in names for what in ("batch", "export", "status")]
    answers = [api.ann.get(path) for path in ["/api/judge", *paths]]
    assert {answer.status_code for answer in answers} == {200}
    refusals = [api.bob.get(path) for path in paths] + [api.bob.get("/api/judge/nope/batch")]
    for text in (answer.text.lower() for answer in (*answers, *refusals)):
        assert not [word for word in ("qwen", "gemma", "anchor_id", '"role"', "foil") if word in text]
    assert not [answer for answer in refusals if "ann" in answer.text.replace("planned", "")]


def test_an_item_shows_six_things(api: Api) -> None:
    """Nothing is told of an item but what it takes to judge it."""
    items = api.ann.get(BATCH).json()["items"]
    assert {frozenset(item) for item in items} == {
        frozenset({"id", "number", "scenario", "context", "tip", "answer"})
    }


def test_the_made_up_name_of_an_experiment_leads_to_it(api: Api) -> None:
    """A judge who was given another name for an experiment judges that experiment under it."""
    world = plant("qwen-or-gemma", quality={(GOOD, "v1"): 4.0, (POOR, "v1"): 2.5}, n_scenarios=2)
    hidden = next(n["experiment"] for n in api.ann.get("/api/judge").json() if n["experiment"] != EXPERIMENT)
    batch = judge_all(api.ann, world, hidden)
    applied = api.ann.post(f"/api/judge/batches/{batch}/submit")
    assert applied.json()["experiment"] == hidden
    assert api.ann.get(f"/api/judge/{hidden}/batch").status_code == 404
    assert "qwen" not in api.ann.get(f"/api/judge/{hidden}/batch").text
    assert api.admin.get("/api/judge/qwen-or-gemma/status").json()["pending"] == 0


def test_a_hidden_name_cannot_be_guessed(api: Api) -> None:
    """The real name leads a judge nowhere, as one that is not there; the made-up one is no plain hash."""
    plant("qwen-or-gemma", quality={(GOOD, "v1"): 4.0, (POOR, "v1"): 2.5}, n_scenarios=1)
    hidden = next(n["experiment"] for n in api.ann.get("/api/judge").json() if n["experiment"] != EXPERIMENT)
    for what in ("status", "batch", "export"):
        real, none = (api.ann.get(f"/api/judge/{name}/{what}") for name in ("qwen-or-gemma", "gemma-or-qwen"))
        assert (real.status_code, real.text.replace("qwen-or-gemma", "x")) == (
            none.status_code,
            none.text.replace("gemma-or-qwen", "x"),
        )
    for page in ("/judge/qwen-or-gemma", "/judge/qwen-or-gemma/result"):
        assert api.ann.get(page).status_code == 404
        assert api.ann.get(page.replace("qwen-or-gemma", hidden)).status_code == 200
    assert content_hash("qwen-or-gemma")[:10] not in hidden
    assert api.admin.get("/api/judge/qwen-or-gemma/status").status_code == 200


def test_an_error_tells_a_judge_no_name(world: World, tmp_path: Path) -> None:
    """What is wrong with an experiment's suite is for an admin; a judge is told whom to ask."""
    suite = tmp_path / "other"
    shutil.copytree(load_suite("tip").path, suite)
    rubric = suite / "rubric.md"
    rubric.write_text(rubric.read_text(encoding="utf-8") + "\nOne more thing.\n", encoding="utf-8")
    plant("qwen-or-gemma", quality={(GOOD, "v1"): 4.0}, n_scenarios=1, remembers=False)
    api = open_api(world, settings=Settings.of({"suite": str(suite)}))
    hidden = next(n["experiment"] for n in api.ann.get("/api/judge").json() if n["experiment"] != EXPERIMENT)
    told = api.ann.get(f"/api/judge/{hidden}/batch")
    assert told.status_code == 422
    assert not [word for word in ("qwen", str(tmp_path)) if word in told.text]
    assert str(tmp_path) in api.admin.get("/api/judge/qwen-or-gemma/batch").text
    api.service.close()


def own_suite(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    shutil.copytree(load_suite("tip").path, folder)
    manifest = folder / "suite.yaml"
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(re.sub(r"^id: .*", "id: mine", text, flags=re.MULTILINE), encoding="utf-8")
    return folder


def test_an_experiment_is_judged_with_the_suite_that_it_remembers(api: Api, tmp_path: Path) -> None:
    """Judges and jobs need no folder, whatever the service's own suite is, and no answer holds the path."""
    folder = own_suite(tmp_path)
    plant("own suite", quality={("a:1b", "v1"): 4.0}, n_scenarios=1, suite=str(folder))
    shutil.rmtree(folder)
    taken = api.ann.get("/api/judge/own suite/batch")
    assert taken.status_code == 200
    shown = [taken, api.ann.get("/judge/own suite"), api.ann.get("/api/judge")]
    assert not any(str(tmp_path) in one.text for one in shown)
    started = api.admin.post("/api/judge/own suite/auto", json={"judge": "proxy"})
    assert started.status_code == 202, started.text
    job = started.json()["job_id"]
    wait_until(lambda: api.service.jobs.get(job).state not in {"queued", "running"})
    assert api.service.jobs.get(job).state == "done"


def with_suite(api: Api, suite: str) -> Api:
    """The same service, started with another suite."""
    api.service.close()
    service = Service(replace(api.service.config, settings=Settings.of({"suite": suite})))
    return replace(api, service=service, app=create_app(service))


@pytest.mark.parametrize("own", ["tip", "tip-wide"])
def test_a_service_judges_experiments_of_other_suites(api: Api, tmp_path: Path, own: str) -> None:
    """The suite of `serve` is for new runs: an experiment is judged with the suite that it remembers."""
    folder = own_suite(tmp_path)
    plant("summaries", quality={("a:1b", "s1-plain"): 4.0}, n_scenarios=1, suite="support-summary")
    plant("own suite", quality={("a:1b", "v1"): 4.0}, n_scenarios=1, suite=str(folder))
    shutil.rmtree(folder)
    started = with_suite(api, own)
    for name in ("summaries", "own suite", EXPERIMENT):
        assert started.ann.get(f"/judge/{name}").status_code == 200
        taken = started.ann.get(f"/api/judge/{name}/batch")
        assert taken.status_code == 200, taken.text
    rubric = load_suite("support-summary").rubric.text
    assert started.ann.get("/api/judge/summaries/batch").json()["rubric"] == rubric
    started.service.close()


def test_the_suite_of_the_service_stands_in_for_texts_that_are_gone(api: Api, tmp_path: Path) -> None:
    """Without the folder and the stored texts, `serve --suite` with the same suite is what judges need."""
    folder, copied = own_suite(tmp_path), tmp_path / "copied"
    plant("own suite", quality={("a:1b", "v1"): 4.0}, n_scenarios=1, suite=str(folder))
    shutil.move(folder, copied)
    client = MlflowClient(tracking_uri=f"sqlite:///{home() / 'mlflow.db'}")
    found = client.get_experiment_by_name("own suite")
    assert found is not None
    (run,) = client.search_runs([found.experiment_id], "tags.`tipbench.kind` = 'suite'")
    client.delete_run(run.info.run_id)
    for own, status in (("tip", 422), ("tip-wide", 422), (str(copied), 200)):
        api = with_suite(api, own)
        taken = api.ann.get("/api/judge/own suite/batch")
        assert taken.status_code == status, taken.text
        assert str(tmp_path) not in taken.text
    api.service.close()


def test_an_experiment_is_judged_with_the_suite_that_it_was_collected_from(api: Api, tmp_path: Path) -> None:
    """Of an earlier version's experiment, the folder that the collection's job was given is found again."""
    folder = own_suite(tmp_path)
    quality = {("a:1b", "v1"): 4.0}
    plant("own suite", quality=quality, n_scenarios=1, suite=str(folder), remembers=False)
    assert api.ann.get("/api/judge/own suite/batch").status_code == 422
    api.service.store.jobs.add(
        Job(job_id="j1", kind="collect", title="t", experiment="own suite", folder="", by="x", created_ms=1,
            params={"settings": {"suite": str(folder)}}, state="done", ended_ms=2)
    )  # fmt: skip
    assert api.ann.get("/api/judge/own suite/batch").status_code == 200


def test_taking_handing_in_and_rejecting_are_audited(api: Api) -> None:
    """Once each, with who and from where; looking again at an open batch is no change."""
    batch = judge_all(api.ann, api.world, shift=-2)
    assert api.ann.get(BATCH).json()["batch"] == batch
    refused = api.ann.post(f"/api/judge/batches/{batch}/submit")
    assert (refused.status_code, "--accept-drift" in refused.text) == (409, False)
    judge_all(api.ann, api.world)
    assert api.ann.post(f"/api/judge/batches/{batch}/submit").status_code == 200
    entries = [one for one in api.admin.get("/api/audit").json() if one["target"] == batch]
    assert [one["action"] for one in entries] == ["judge.submit", "judge.rejected", "judge.take"]
    assert {(one["who"], one["role"], one["ip"]) for one in entries} == {("ann", "judge", "127.0.0.1")}


def test_a_file_that_is_rejected_is_audited(api: Api) -> None:
    """The upload's refusal is in the log too, and tells no way out that a judge does not have."""
    file = filled(api, api.ann.get(f"/api/judge/{EXPERIMENT}/export").json())
    for item in file["items"]:
        item["judge"] |= {"relevance": 1, "actionability": 5, "tone": 1}
    refused = api.ann.post("/api/judge/apply", json=file)
    assert (refused.status_code, "--accept-drift" in refused.text) == (409, False)
    entry = api.admin.get("/api/audit").json()[0]
    assert (entry["action"], entry["target"], entry["ip"]) == ("judge.rejected", file["batch"], "127.0.0.1")


def test_an_agents_verdicts_are_an_agents(api: Api) -> None:
    """Stroke by stroke and by file alike; a file of theirs that says it is a person's is refused."""
    token = api.service.store.tokens.create("robot", "judge", now_ms=0, kind="agent")
    robot = replace(api, tokens={"robot": token}).caller("robot")
    export = robot.get(f"/api/judge/{EXPERIMENT}/export").json()
    assert export["judged_by"]["kind"] == "agent"
    assert robot.post("/api/judge/apply", json=filled(api, export, "robot")).status_code == 403
    batch = judge_all(robot, api.world)
    assert robot.post(f"/api/judge/batches/{batch}/submit").status_code == 200
    own = robot.get(f"/api/judge/{EXPERIMENT}/status").json()["judges"]
    assert [(one["id"], one["kind"]) for one in own] == [("robot", "agent")]
    assert api.admin.get(f"/api/bench/leaderboard/{EXPERIMENT}").json()["ground"] == "agent"


def test_a_file_is_exported_filled_in_and_applied(api: Api) -> None:
    """The export is a download of the judge's own batch; applying it is audited."""
    export = api.ann.get(f"/api/judge/{EXPERIMENT}/export?size=20")
    assert "attachment" in export.headers["content-disposition"]
    file = filled(api, export.json())
    assert api.ann.get(f"/api/judge/{EXPERIMENT}/export").json()["batch"] == file["batch"]
    applied = api.ann.post("/api/judge/apply", json=file)
    assert applied.status_code == 200, applied.text
    assert applied.json()["judge"] == "ann"
    assert api.admin.get("/api/audit").json()[0]["action"] == "judge.apply"


def filled(api: Api, file: dict[str, Any], judge: str | None = None) -> dict[str, Any]:
    for item in file["items"]:
        item["judge"] |= score(api.world, item)
    if judge:
        file["judged_by"] |= {"id": judge, "kind": "human"}
    return file


def all_in_one(api: Api, tmp_path: Path, judge: str = "ann") -> dict[str, Any]:
    """The filled-in file of all batches for a judge."""
    order = Order(judge=judge, every=True, size=12)
    export(replace(api.world.settings, experiment=EXPERIMENT), order, out=str(tmp_path / "all.json"))
    return filled(api, json.loads((tmp_path / "all.json").read_text()))


def test_a_file_with_all_batches_is_uploaded(api: Api, tmp_path: Path) -> None:
    """By its judge alone: one reply for all batches, and an entry in the audit log for each."""
    file = all_in_one(api, tmp_path)
    assert len(file["batches"]) > 1
    assert api.bob.post("/api/judge/apply", json=file).status_code == 404
    applied = api.ann.post("/api/judge/apply", json=file)
    assert applied.status_code == 200, applied.text
    assert applied.json()["batches"] == file["batches"]
    assert (applied.json()["new"], applied.json()["cells_pending"]) == (len(file["items"]), 0)
    entries = [one for one in api.admin.get("/api/audit").json() if one["action"] == "judge.apply"]
    assert {one["target"] for one in entries} == {*file["batches"]}


def test_an_upload_rejects_single_batches(api: Api, tmp_path: Path) -> None:
    """409 names the batch, not the experiment; the other batches are recorded."""
    file = all_in_one(api, tmp_path)
    bad = file["batches"][0]
    anchors = [item.reference for item in api.world.ledger.batch(bad).items if item.role == "anchor"]
    low = sum(sum(one.values()) for one in anchors) < 9 * len(anchors)
    for item in file["items"]:
        if item["batch"] == bad:
            item["judge"] |= dict.fromkeys(("relevance", "actionability", "tone"), 5 if low else 1)
    refused = api.ann.post("/api/judge/apply", json=file)
    message = refused.json()["error"]["message"]
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "rejected")
    assert f"batch {bad} is rejected" in message
    assert f"the other {len(file['batches']) - 1} of {len(file['batches'])} batches" in message
    assert EXPERIMENT not in message
    recorded = {one.batch_id for one in api.world.ledger.batches(EXPERIMENT) if one.applications}
    assert recorded == {*file["batches"][1:]}


def test_a_file_may_come_as_a_form(api: Api) -> None:
    """A browser's upload is taken as the body is; a form without the file is refused."""
    file = filled(api, api.ann.get(f"/api/judge/{EXPERIMENT}/export").json())
    assert api.ann.post("/api/judge/apply", files={"other": b"{}"}).status_code == 422
    done = api.ann.post("/api/judge/apply", files={"file": ("batch.json", json.dumps(file).encode())})
    assert done.status_code == 200, done.text


def test_a_judge_applies_only_what_is_their_own(api: Api) -> None:
    """Neither somebody else's batch nor one's own in another's name; an admin may apply anybody's."""
    anns = filled(api, api.ann.get(f"/api/judge/{EXPERIMENT}/export?size=10").json())
    assert api.bob.post("/api/judge/apply", json=anns).status_code == 404
    forged = json.loads(json.dumps(anns))
    forged["judged_by"]["id"] = "bob"
    assert api.ann.post("/api/judge/apply", json=forged).status_code == 403
    assert api.bob.post("/api/judge/apply", json=forged).status_code == 404
    assert api.admin.post("/api/judge/apply", json=forged).status_code == 422
    assert api.admin.post("/api/judge/apply", json=anns).status_code == 200


def test_a_file_that_is_none_is_refused_with_its_line(api: Api) -> None:
    """The mistakes of a judge's file are told by line, without a path of this machine."""
    for body in (b"", b"{", b"[]", b"\xff", b'{"schema": 1}', b"null", b'{"a": NaN}'):
        refused = api.ann.post("/api/judge/apply", content=body, headers={"Content-Type": "application/json"})
        assert refused.status_code == 422, body
        assert refused.json()["error"]["message"].startswith("file:1: ")


def test_how_much_is_judged_is_for_an_admin_to_say(api: Api) -> None:
    """A judge's `tips_per_cell` would change what the leaderboard counts."""
    export = f"/api/judge/{EXPERIMENT}/export"
    assert api.ann.get(export, params={"tips_per_cell": 1}).status_code == 403
    assert api.admin.get(export, params={"tips_per_cell": 1, "size": 5}).status_code == 200
    assert api.ann.get(export, params={"tips_per_cell": 0}).status_code == 403
    assert api.ann.get(export, params={"tips_per_cell": 1}).status_code == 200


def test_a_judge_is_told_of_nobody_else(api: Api) -> None:
    """An admin sees all judges and batches; a judge their own."""
    batch = judge_all(api.ann, api.world)
    api.ann.post(f"/api/judge/batches/{batch}/submit")
    status = f"/api/judge/{EXPERIMENT}/status"
    assert [one["id"] for one in api.admin.get(status).json()["judges"]] == ["ann"]
    assert [one["id"] for one in api.ann.get(status).json()["judges"]] == ["ann"]
    assert api.bob.get(status).json()["judges"] == []


def test_an_admin_sees_how_a_model_compares_with_people(api: Api) -> None:
    """Alpha and the audits are in the status and on the page of an admin; a judge sees no model at all."""
    ledger = api.world.ledger
    machine = Judge(id="openai:gpt-x", kind="ai", model="gpt-x@host prompt 1a2b3c4d")
    judge(ledger, EXPERIMENT, Judge(id="zoe", kind="human"), _points)
    judge(ledger, EXPERIMENT, machine, lambda run, slot: 1 + _points(run, slot))
    status, result = f"/api/judge/{EXPERIMENT}/status", f"/judge/{EXPERIMENT}/result"
    (told,) = [one for one in api.admin.get(status).json()["judges"] if one["kind"] == "ai"]
    found = told["calibration"]
    assert (found["people"], found["version"], found["n_swapped"]) == ("human", machine.version, 0)
    assert found["n"] >= 8
    assert found["least_alpha"] == min(scale["alpha"] for scale in found["scales"].values())
    assert {"length", "length_people", "swap_alpha"} <= found["scales"]["tone"].keys()
    page = api.admin.get(result).text
    assert "Models against people" in page
    assert f"Lowest alpha {found['least_alpha']:.2f} on " in page
    assert "gpt-x" not in api.ann.get(status).text
    assert "gpt-x" not in api.ann.get(result).text


def _points(run: Run, slot: int) -> int:
    return 4 + (sum(run.scenario_id.encode()) + slot) % 9
