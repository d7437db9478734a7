"""`tipbench.runs`: the cells of an experiment from Python, all of them or those that match."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from judged_world import plant
from ledger_servers import MlflowServer
from tipbench import runs
from tipbench.errors import BadInput, NotFound
from tipbench.ledger import open_ledger
from tipbench.records import Mark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUALITY = {("a:1b", "v1"): 3.0, ("a:1b", "v2-mentor"): 3.0, ("b:1b", "v1"): 3.0}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    folder = tmp_path_factory.mktemp("server")
    root = (folder / "out-of-reach").as_uri()
    options = ("--no-serve-artifacts", "--default-artifact-root", root)
    with MlflowServer(folder, options).running() as server:
        yield server


@pytest.fixture(params=["embedded", "server"])
def experiment(request: pytest.FixtureRequest, fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Six cells, of which the model `b:1b` has one that is judged, with a composite of 12.5."""
    url = request.getfixturevalue("server").url if request.param == "server" else ""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
    name = f"bench {uuid.uuid4().hex[:8]}"
    ledger = open_ledger(url, home=fresh_home)
    plant(name, quality=QUALITY, n_scenarios=2, ledger=ledger)
    first = next(run for run in ledger.runs(name) if run.model == "b:1b")
    ledger.mark(name, {first.run_id: Mark(metrics={"composite": 12.5}, judge_pending=False)})
    return name


def test_runs_are_chosen_by_model_prompt_and_state(experiment: str) -> None:
    """Each argument keeps the cells with exactly that value; all must hold; what is unknown finds nothing."""
    assert len(runs(experiment)) == 6
    assert {run.prompt_id for run in runs(experiment, model="a:1b")} == {"v1", "v2-mentor"}
    assert {(run.model, run.status) for run in runs(experiment, prompt="v1")} == {
        ("a:1b", "done"), ("b:1b", "done"),
    }  # fmt: skip
    assert len(runs(experiment, model="b:1b", prompt="v1", judge_pending=True)) == 1
    assert [run.metrics["composite"] for run in runs(experiment, judge_pending=False)] == [12.5]
    assert runs(experiment, model="a") == runs(experiment, prompt="v9") == []
    with pytest.raises(NotFound, match="there is no experiment"):
        runs(f"{experiment} x", model="a:1b")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("metrics.composite > 12", 1),
        ("metrics.composite > 13", 0),
        ("params.model = 'a:1b' and params.prompt_id = 'v1'", 2),
        ("tags.judge_pending = 'true'", 5),
        ("attributes.status = 'FINISHED'", 6),
        ("tags.`tipbench.kind` = 'suite'", 0),
        ("", 6),
    ],
)
def test_runs_are_found_by_mlflows_filter(experiment: str, text: str, count: int) -> None:
    """The filter is MLflow's own, finds cells alone, and goes with the other arguments."""
    found = runs(experiment, filter=text)
    assert len(found) == count
    assert all(run.candidates for run in found)
    of_b = [run for run in found if run.model == "b:1b"]
    assert runs(experiment, model="b:1b", filter=text) == of_b


@pytest.mark.parametrize(
    "text",
    ["composite > 12", "metrics.composite >", "metrics.composite > 'x", "a = 1 or b = 2", "'", "(" * 50],
)
def test_a_filter_that_mlflow_cannot_read_is_one_sentence(experiment: str, text: str) -> None:
    """The refusal repeats the filter and shows a right one."""
    with pytest.raises(BadInput) as refusal:
        runs(experiment, filter=text)
    assert str(refusal.value).startswith(f"filter {text!r} cannot be read by MLflow (")
    assert "metrics.composite > 12" in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("wrong", [5, 1.5, ["a:1b"], {"a": 1}, b"a:1b", object()])
@pytest.mark.parametrize(
    "name", ["experiment", "model", "prompt", "filter", "mlflow_url", "mlflow_host_header"]
)
def test_an_argument_of_a_wrong_type_is_refused(home: Path, name: str, wrong: object) -> None:
    """BadInput names the argument and its type in one line, before anything is read."""
    given: dict[str, Any] = {"experiment": "no such experiment", name: wrong}
    with pytest.raises(BadInput, match=rf"^runs\(\): {name} is of the type {type(wrong).__name__}; give .*$"):
        runs(**given)
    assert not (home / "spool.db").exists()


@pytest.mark.parametrize("wrong", ["true", 1, [True]])
def test_judge_pending_is_true_or_false(home: Path, wrong: Any) -> None:  # noqa: ANN401 - what a caller may pass
    """A text is refused: no cell would have this value."""
    with pytest.raises(BadInput, match=r"judge_pending is of the type .*; give True or False"):
        runs("no such experiment", judge_pending=wrong)


def test_an_experiment_must_be_named(home: Path) -> None:
    """None is refused and does not mean the default experiment."""
    nothing: Any = None
    with pytest.raises(BadInput, match="experiment is of the type NoneType; give the name of an experiment"):
        runs(nothing)
