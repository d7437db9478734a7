"""Reading experiments, and asking for a collection, in every way that may be wrong."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from api_world import EXPERIMENT, GOOD, POOR, Api, judge_all, open_api
from compared_worlds import AHEAD, BIG, SMALL
from judged_world import plant
from stand_in import FakeModel, StandIn, running
from tipbench.compare.recommendation import Preferences
from tipbench.settings import RUN_SETTINGS, Settings
from tipbench.suite import load_suite
from tipbench.workflows.comparing import compare
from verdict_planting import ANNA, by_scenario, judge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from judged_world import World

LEADERBOARD = f"/api/bench/leaderboard/{EXPERIMENT}"
ODD = ["with space", "a@b", "a:b", "a+b", "é", "x" * 200]


@pytest.fixture
def host() -> Iterator[StandIn]:
    with running(
        StandIn(models=[FakeModel("qwen2.5:0.5b"), FakeModel("big:9b", parameters=9_000_000_000)])
    ) as found:
        yield found


@pytest.fixture
def hosted(world: World, host: StandIn) -> Iterator[Api]:
    """A service whose Ollama is the stand-in."""
    opened = open_api(world, settings=Settings.of({"ollama_url": host.url, "engine": "ollama"}))
    yield opened
    opened.service.close()


def test_experiments_are_listed_with_what_is_judged(api: Api) -> None:
    """Counts, and the share of cells that wait for nobody."""
    batch = judge_all(api.ann, api.world)
    before = api.admin.get("/api/bench/experiments").json()
    assert [(one["name"], one["done"], one["judged_share"]) for one in before] == [(EXPERIMENT, 8, 0.0)]
    api.ann.post(f"/api/judge/batches/{batch}/submit")
    assert api.admin.get("/api/bench/experiments").json()[0]["judged_share"] == 1.0


NUMBERS_AND_FLAGS = {
    "must be at least 1",
    "must be at most 500",
    "must be a whole number",
    "must be true or false",
}


def test_runs_are_filtered_and_paged(api: Api) -> None:
    """Filters combine; pages are counted from 1 and together hold everything once."""
    path = f"/api/bench/runs/{EXPERIMENT}"
    everything = api.admin.get(path).json()
    assert (everything["total"], len(everything["runs"])) == (8, 8)
    pages = [api.admin.get(path, params={"page": n, "size": 3}).json()["runs"] for n in (1, 2, 3, 4)]
    assert [run["run_id"] for page in pages for run in page] == [run["run_id"] for run in everything["runs"]]
    good = api.admin.get(path, params={"model": GOOD, "prompt": "v1"}).json()
    assert (good["total"], {run["model"] for run in good["runs"]}) == (4, {GOOD})
    scenario = everything["runs"][0]["scenario_id"]
    assert api.admin.get(path, params={"model": POOR, "scenario": scenario}).json()["total"] == 1
    assert api.admin.get(path, params={"model": "none"}).json()["total"] == 0
    assert api.admin.get(path, params={"judged": True}).json()["total"] == 0
    assert api.admin.get(path, params={"judged": False}).json()["total"] == 8
    for wrong in ({"page": 0}, {"size": 0}, {"size": 501}, {"page": "x"}, {"judged": "maybe"}):
        refused = api.admin.get(path, params=wrong)
        assert refused.status_code == 422
        (sentence,) = refused.json()["error"]["fields"].values()
        assert sentence in NUMBERS_AND_FLAGS


def test_a_run_is_shown_with_its_texts_and_verdicts(api: Api) -> None:
    """Candidates, the prompt, the reply, and who gave what for each candidate."""
    batch = judge_all(api.ann, api.world)
    api.ann.post(f"/api/judge/batches/{batch}/submit")
    run = api.admin.get(f"/api/bench/runs/{EXPERIMENT}").json()["runs"][0]
    found = api.admin.get(f"/api/bench/runs/{EXPERIMENT}/{run['run_id']}").json()
    assert found["run"] == run | {"judged": True}
    assert json.loads(found["raw"]) == [one["text"] for one in found["candidates"]]
    assert "Go." in found["prompt"]
    verdict = found["candidates"][0]["verdicts"][0]
    assert (verdict["judge"], verdict["kind"], verdict["counts"]) == ("ann", "human", True)
    assert verdict["scores"] == api.world.true_scores(run["scenario_id"], found["candidates"][0]["text"])


def test_a_run_is_found_only_in_its_own_experiment(api: Api) -> None:
    """An id of another experiment's cell is not found in this one."""
    plant("other", quality={(GOOD, "v1"): 3.0}, n_scenarios=1)
    run = api.admin.get("/api/bench/runs/other").json()["runs"][0]["run_id"]
    assert api.admin.get(f"/api/bench/runs/other/{run}").status_code == 200
    assert api.admin.get(f"/api/bench/runs/{EXPERIMENT}/{run}").status_code == 404


def test_the_leaderboard_is_what_compare_prints(api: Api) -> None:
    """The same object, but for when it was made."""
    batch = judge_all(api.ann, api.world)
    api.ann.post(f"/api/judge/batches/{batch}/submit")
    shown = api.admin.get(LEADERBOARD).json()
    printed = json.loads(json.dumps(compare(api.world.settings).as_dict()))
    assert shown | {"made_ms": 0} == printed | {"made_ms": 0}
    explored = api.admin.get(LEADERBOARD, params={"weights": "tone=2", "max_latency_ms": 450}).json()
    assert explored["exploration"]["weights"] == {"tone": 2.0}


def test_the_leaderboard_is_sent_again_only_when_it_changed(api: Api) -> None:
    """304 for the tag that was sent, 200 with another tag after a batch came in."""
    first = api.admin.get(LEADERBOARD)
    tag = first.headers["etag"]
    same = api.admin.get(LEADERBOARD, headers={"If-None-Match": f'"x", {tag}'})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    batch = judge_all(api.ann, api.world)
    api.ann.post(f"/api/judge/batches/{batch}/submit")
    later = api.admin.get(LEADERBOARD, headers={"If-None-Match": tag})
    assert later.status_code == 200
    assert later.headers["etag"] != tag


@pytest.mark.parametrize(
    "wrong",
    [{"ground": "cat"}, {"max_latency_ms": "nan"}, {"max_latency_ms": -1}, {"insist": "perhaps"},
     {"weights": ""}, {"weights": "tone=x"}, {"weights": "nope=1"}, {"accept_loss": -1},
     {"accept_loss": "nan"}, {"accept_loss": "much"}, {"cost": "money"}, {"cost": ""}],
)  # fmt: skip
def test_a_wrong_option_of_the_leaderboard_is_named(api: Api, wrong: dict[str, Any]) -> None:
    """422 that speaks of the option."""
    batch = judge_all(api.ann, api.world)
    api.ann.post(f"/api/judge/batches/{batch}/submit")
    refused = api.admin.get(LEADERBOARD, params=wrong)
    assert refused.status_code == 422
    assert next(iter(wrong)) in refused.text or "nope" in refused.text


def test_accept_loss_and_cost_decide_what_the_leaderboard_recommends(api: Api) -> None:
    """The answer is that of `compare` with the same options; a large loss accepts the smaller model."""
    world = plant("by cost", quality={BIG: 3.0, SMALL: 3.0})
    judge(world.ledger, "by cost", ANNA, by_scenario(AHEAD))

    def answer(**options: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of Preferences
        shown = api.admin.get("/api/bench/leaderboard/by cost", params=options)
        assert shown.status_code == 200, shown.text
        printed = compare(world.settings, preferences=Preferences(**options)).as_dict()
        assert shown.json() | {"made_ms": 0} == json.loads(json.dumps(printed)) | {"made_ms": 0}
        return dict(shown.json())

    usual = answer()
    assert (usual["margin"], usual["margin_from"], usual["recommended"]) == (0.75, "scale", usual["winner"])
    wide = answer(accept_loss=6.0)
    assert (wide["margin"], wide["margin_from"], wide["winner"]) == (6.0, "given", usual["winner"])
    assert (wide["recommended"]["model"], wide["recommended_because"]) == (SMALL[0], "cheapest")
    unmeasured = answer(accept_loss=6.0, cost="memory")
    assert unmeasured["recommended"]["model"] == BIG[0]


@pytest.mark.parametrize("name", ODD)
def test_an_experiment_may_have_an_odd_name(api: Api, name: str) -> None:
    """What may be a name is found by it in a path."""
    world = plant(name, quality={(GOOD, "v1"): 4.0, (POOR, "v1"): 2.0}, n_scenarios=2)
    place = quote(name, safe="")
    assert api.admin.get(f"/api/bench/runs/{place}").json()["total"] == 4
    batch = judge_all(api.ann, world, place)
    assert api.ann.post(f"/api/judge/batches/{batch}/submit").json()["experiment"] == name
    assert api.admin.get(f"/api/bench/leaderboard/{place}").json()["title"] == name


@pytest.mark.parametrize(
    "name", ["a%2Fb", "..%2F..%2Fetc", "%00", "a%00b", "%ED%A0%80", "%FF", "'", "nope", "%20", "%", "x" * 999]
)
@pytest.mark.parametrize("path", ["/api/bench/runs/{}", "/api/bench/leaderboard/{}", "/api/judge/{}/status",
                                  "/api/judge/{}/batch", "/api/judge/{}/export"])  # fmt: skip
def test_what_is_no_experiment_is_not_found(api: Api, path: str, name: str) -> None:
    """404 in the one shape, whatever stands in the path."""
    answer = api.admin.get(path.format(name))
    assert answer.status_code == 404, answer.text
    assert answer.json()["error"]["code"] == "not_found"


def test_the_options_are_the_settings_table(api: Api) -> None:
    """Every key that a run takes, with its type, its default and its help."""
    rows = api.admin.get("/api/bench/options").json()
    assert {row["name"] for row in rows} == set(RUN_SETTINGS)
    by_name = {row["name"]: row for row in rows}
    assert by_name["models"]["default"] == list(Settings.of({}).models)
    assert (by_name["n_tips"]["type"], by_name["diversity"]["type"]) == ("whole number", "flag")


def test_a_password_in_an_address_is_not_shown(world: World) -> None:
    """Defaults are shown without the login that the service was started with."""
    settings = Settings.of({"mlflow_url": "http://user:hunter2@127.0.0.1:5000"})
    api = open_api(world, settings=settings)
    assert "hunter2" not in api.admin.get("/api/bench/options").text
    api.service.close()


def test_installed_models_are_offered_with_what_is_too_large(hosted: Api) -> None:
    """The host's models, smallest first, and why one would be refused."""
    found = hosted.admin.get("/api/bench/models?ollama_url=").json()
    assert [(one["name"], one["too_large"] is None) for one in found] == [
        ("qwen2.5:0.5b", True),
        ("big:9b", False),
    ]


def test_a_host_that_does_not_answer_is_unavailable(api: Api) -> None:
    """503 that names the address."""
    settings = api.service.config.settings
    assert settings.engine == "auto"
    refused = api.admin.post(
        "/api/bench/estimate", json={"ollama_url": "http://127.0.0.1:9", "models": "nope:1b"}
    )
    assert refused.status_code == 503
    assert "127.0.0.1:9" in refused.json()["error"]["message"]


def test_an_estimate_says_what_it_would_take(hosted: Api) -> None:
    """Cells, minutes and memory, and nothing is generated."""
    plan = hosted.admin.post(
        "/api/bench/estimate",
        json={"models": ["qwen2.5:0.5b"], "prompts": "v1", "n_scenarios": "2", "experiment": "new"},
    )
    assert plan.status_code == 200, plan.text
    assert (plan.json()["cells"], plan.json()["models"][0]["name"]) == (2, "qwen2.5:0.5b")
    refused = hosted.admin.post("/api/bench/estimate", json={"models": ["big:9b"], "experiment": "new"})
    assert refused.status_code == 422
    assert "big:9b" in refused.json()["error"]["fields"]["models"]


@pytest.mark.parametrize("models", ["big:9b", "nope:1b", "qwen2.5:0.5b,big:9b"])
def test_a_run_refuses_what_an_estimate_refuses(hosted: Api, models: str) -> None:
    """A model that is too large or not installed gets the same 422 from both routes, and no job starts."""
    body = {"models": models, "prompts": "v1", "experiment": "new"}
    estimated, started = (hosted.admin.post(f"/api/bench/{path}", json=body) for path in ("estimate", "run"))
    assert (started.status_code, started.json()) == (422, estimated.json())
    assert hosted.admin.get("/api/jobs").json() == []


def test_a_run_refuses_changed_prompts(hosted: Api, tmp_path: Path) -> None:
    """A suite whose prompt differs from the experiment's gets the same 422 from both routes."""
    suite = tmp_path / "tip"
    shutil.copytree(load_suite("tip").path, suite)
    prompt = suite / "prompts" / "v1.md"
    prompt.write_text(prompt.read_text() + "\nBe brief.\n")
    body = {"models": "qwen2.5:0.5b", "prompts": "v1", "experiment": EXPERIMENT, "suite": str(suite)}
    estimated, started = (hosted.admin.post(f"/api/bench/{path}", json=body) for path in ("estimate", "run"))
    assert (started.status_code, started.json()) == (422, estimated.json())
    assert "v1" in started.json()["error"]["message"]
    assert hosted.admin.get("/api/jobs").json() == []


def test_a_run_with_an_engine_that_does_not_answer_is_unavailable(hosted: Api) -> None:
    """Both routes answer 503 and name the address, and no job starts."""
    body = {"models": "qwen2.5:0.5b", "experiment": "new", "ollama_url": "http://127.0.0.1:9"}
    for path in ("estimate", "run"):
        refused = hosted.admin.post(f"/api/bench/{path}", json=body)
        assert refused.status_code == 503
        assert "127.0.0.1:9" in refused.json()["error"]["message"]
    assert hosted.admin.get("/api/jobs").json() == []


def test_everything_that_is_wrong_is_told_at_once(api: Api) -> None:
    """A name that is not known hides no wrong value, and no value hides a suite that is not there."""
    wrong = {"nope": 1, "n_tips": 0, "mlflow_url": "http://evil.example\\@localhost", "suite": "/nowhere"}
    refused = api.admin.post("/api/bench/run", json=wrong)
    assert (refused.status_code, set(refused.json()["error"]["fields"])) == (422, set(wrong))


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"n_tips": 0}, {"n_tips"}),
        ({"n_tips": "many", "temperature": -1, "seed": 1.5}, {"n_tips", "temperature", "seed"}),
        ({"n_tips": True}, {"n_tips"}),
        ({"models": []}, {"models"}),
        ({"models": [1]}, {"models"}),
        ({"models": "a\x00b"}, {"models"}),
        ({"models": ["\ud800"]}, {"models"}),
        ({"experiment": "a/b"}, {"experiment"}),
        ({"experiment": "\ud800"}, {"experiment"}),
        ({"suite": "\x00"}, {"suite"}),
        ({"suite": "no such suite"}, {"suite"}),
        ({"prompts": ["nope"]}, {"prompts"}),
        ({"ollama_url": "http://10.0.0.1:11434"}, {"ollama_url"}),
        ({"ollama_url": "http://169.254.169.254"}, {"ollama_url"}),
        ({"mlflow_url": "http://example.com"}, {"mlflow_url"}),
        ({"mlflow_url": "sqlite:////etc/passwd"}, {"mlflow_url"}),
        ({"mlflow_url": "file:///etc"}, {"mlflow_url"}),
        ({"ollama_url": "http://localhost:x"}, {"ollama_url"}),
        ({"seed": 10**400}, {"seed"}),
        ({"temperature": float("nan")}, {"temperature"}),
        ({"temperature": float("inf")}, {"temperature"}),
        ({"parallel": 2}, {"parallel"}),
        ({"engine": "embedded", "pull": True}, {"engine", "pull"}),
        ({"diversity": "perhaps"}, {"diversity"}),
        ({"repeats": {}}, {"repeats"}),
    ],
)
@pytest.mark.parametrize("path", ["/api/bench/run", "/api/bench/estimate"])
def test_a_wrong_setting_is_told_by_field(
    hosted: Api, path: str, body: dict[str, Any], fields: set[str]
) -> None:
    """422 with a message for each field that is wrong, and no job."""
    refused = hosted.admin.post(path, content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert refused.status_code == 422, refused.text
    error = refused.json()["error"]
    assert error["message"]
    assert set(error["fields"]) == fields
    assert hosted.admin.get("/api/jobs").json() == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"\xff\xfe",
        b"[" * 100_000,
        b"1" * 10_000,
        b"{}" + b" " * 26_000_000,
    ],
)
def test_a_body_that_is_no_object_is_refused(api: Api, body: bytes) -> None:
    """A 4xx in the one shape, also for what is too deep or too large."""
    refused = api.admin.post("/api/bench/run", content=body, headers={"Content-Type": "application/json"})
    assert 400 <= refused.status_code < 500
    assert set(refused.json()) == {"error"}


def test_a_caller_who_may_not_is_told_so_before_the_body_is_read(api: Api) -> None:
    """403, not what is wrong with the body."""
    broken = {"Content-Type": "application/json"}
    assert api.ann.post("/api/bench/run", content=b"{", headers=broken).status_code == 403
    assert api.nobody.post("/api/bench/run", content=b"{", headers=broken).status_code == 401
