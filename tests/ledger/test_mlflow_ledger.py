"""What the ledger looks like in MLflow itself, and that it copes with what others do there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

from ledger_samples import sample_pin, sample_result
from tipbench.errors import BadInput, LedgerUnreachable
from tipbench.ledger import open_ledger
from tipbench.ledger.pins import pin_tags
from tipbench.records import Mark, RubricText, content_hash

if TYPE_CHECKING:
    from pathlib import Path

    from ledger_servers import MlflowServer
    from tipbench.ledger import MlflowLedger
    from tipbench.ledger.mlflow_store import Store

    from .conftest import Place

LONG = "Zeile – línea – 行 😀\r\n" * 900


def raw_client(ledger: MlflowLedger) -> Any:  # noqa: ANN401 - MLflow's own client
    """MLflow's client on the same store: what anybody else would see and do there."""
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=ledger._store.address.uri)


def raw_runs(ledger: MlflowLedger, experiment: str) -> list[Any]:
    client = raw_client(ledger)
    found = client.get_experiment_by_name(experiment)
    return list(client.search_runs([found.experiment_id]))


def begun(ledger: MlflowLedger, experiment: str) -> str:
    ledger.pin(experiment, sample_pin())
    experiment_id: str = raw_client(ledger).get_experiment_by_name(experiment).experiment_id
    return experiment_id


def test_two_homes_set_and_remove_the_same_tag_at_once(
    mlflow_ledger: MlflowLedger, experiment: str, tmp_path: Path
) -> None:
    """MLflow looks before it writes, so both may find the tag gone or not yet there: both have done it."""
    stores = [mlflow_ledger._store, open_ledger(mlflow_ledger.uri, home=tmp_path / "other")._store]
    experiment_id = begun(mlflow_ledger, experiment)
    start = Barrier(2)

    def both(store: Store) -> None:
        for turn in range(20):
            start.wait(timeout=60)
            store.tag_experiment(experiment_id, f"tag{turn}", "set")
            start.wait(timeout=60)
            store.untag_experiment(experiment_id, f"tag{turn}")

    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(both, store) for store in stores]:
            each.result(timeout=200)
    found = stores[0].experiment(experiment)
    assert found is not None
    assert not [name for name in found.tags if name.startswith("tag")]


def test_a_run_says_all_that_determines_the_output(mlflow_ledger: MlflowLedger, experiment: str) -> None:
    """The params hold every input of the cell's key, its seeds, and the rubric it will be judged under."""
    result = sample_result(7)
    begun(mlflow_ledger, experiment)
    mlflow_ledger.record(experiment, [result])
    (run,) = raw_runs(mlflow_ledger, experiment)
    assert run.data.params == {
        "model": "tiny:1b",
        "model_digest": "d" * 64,
        "model_parameters": "1000000",
        "model_family": "tiny",
        "prompt_id": "v1",
        "prompt_hash": "p" * 64,
        "scenario_id": "s7",
        "scenario_hash": f"{7:064x}",
        "suite_id": "tip",
        "rubric_id": "tip-v1",
        "rubric_hash": "r" * 64,
        "n_tips": "2",
        "temperature": "0.7",
        "num_ctx": "2048",
        "num_predict": "256",
        "think": "false",
        "base_seed": "0",
        "seed": str(result.cell.seed),
        "repeat": "0",
    }
    tags = run.data.tags
    assert (tags["tipbench.cell"], tags["tipbench.kind"]) == (result.cell.key, "cell")
    assert tags["judge_pending"] == "true"
    assert json.loads(tags["artifact:candidates.json"])[0]["text"].startswith("Take a walk")
    assert (run.info.status, run.info.end_time) == ("FINISHED", result.ended_ms)
    assert run.data.metrics == result.metrics


def test_texts_are_artifacts_where_they_can_be(server: MlflowServer, tmp_path: Path, experiment: str) -> None:
    """A server that serves artifacts holds the texts as such, the thinking among them."""
    ledger = open_ledger(server.url, home=tmp_path)
    begun(ledger, experiment)
    ledger.record(experiment, [sample_result(text=LONG, thinking="hm")])
    (run,) = raw_runs(ledger, experiment)
    names = {file.path for file in raw_client(ledger).list_artifacts(run.info.run_id)}
    assert names == {"candidates.json", "prompt.txt", "raw.txt", "rubric.md", "thinking.txt"}
    assert not any(tag.startswith(("artifact:raw.txt", "artifact:rubric.md")) for tag in run.data.tags)


def test_texts_are_files_in_the_home(embedded_home: Path, experiment: str) -> None:
    """The embedded store keeps the texts as plain files, exactly as they are."""
    ledger = open_ledger("", home=embedded_home)
    begun(ledger, experiment)
    ledger.record(experiment, [sample_result(text=LONG, thinking="hm")])
    (run,) = ledger.runs(experiment)
    folder = embedded_home / "artifacts" / run.run_id / "artifacts"
    assert (folder / "raw.txt").read_bytes().decode() == LONG
    assert (folder / "thinking.txt").read_text() == "hm"
    assert (folder / "rubric.md").read_text() == "Be useful. ☕\n"


def test_texts_are_tags_where_artifacts_are_out_of_reach(
    server_without_artifacts: MlflowServer, tmp_path: Path, experiment: str
) -> None:
    """Without artifact serving the texts are chunked tags, the first of which begins with the text itself."""
    ledger = open_ledger(server_without_artifacts.url, home=tmp_path)
    begun(ledger, experiment)
    huge = "😀" * 700_000
    ledger.record(experiment, [sample_result(text=huge, thinking="hm")])
    (run,) = raw_runs(ledger, experiment)
    tags = run.data.tags
    assert tags["artifact:prompt.txt"].startswith("[system]\nYou help.")
    assert tags["artifact:thinking.txt"] == "hm"
    assert tags["artifact:rubric.md"] == "Be useful. ☕\n"
    assert int(tags["artifact:raw.txt.chunks"]) > 100
    assert all(len(value) <= 7000 for value in tags.values())
    assert ledger.run(run.info.run_id)[1].raw == huge
    assert not (server_without_artifacts.folder / "out-of-reach").exists()


def without_rubric(ledger: MlflowLedger, run: Any) -> None:  # noqa: ANN401 - MLflow's own class
    """Make a run as the versions before this one recorded it."""
    for tag in run.data.tags:
        if tag.startswith("artifact:rubric.md"):
            raw_client(ledger).delete_tag(run.info.run_id, tag)


def test_a_run_that_lacks_the_rubric_has_the_one_of_its_experiment(
    mlflow_ledger: MlflowLedger, experiment: str, server: MlflowServer, embedded_home: Path
) -> None:
    """Runs of earlier versions are read, listed and shown as before, with the rubric that is pinned."""
    begun(mlflow_ledger, experiment)
    mlflow_ledger.record(experiment, [sample_result()])
    before = mlflow_ledger.runs(experiment)
    (run,) = raw_runs(mlflow_ledger, experiment)
    without_rubric(mlflow_ledger, run)
    files = [*server.folder.rglob("rubric.md"), *embedded_home.rglob("rubric.md")]
    for file in (one for one in files if run.info.run_id in one.parts):
        file.unlink()
    assert mlflow_ledger.run(run.info.run_id)[1].rubric == "Be useful. ☕\n"
    assert mlflow_ledger.runs(experiment) == before


def test_the_earlier_rubric_stays_beside_the_new_one(mlflow_ledger: MlflowLedger, experiment: str) -> None:
    """A run that went over to another rubric holds both texts, the earlier one under its hash."""
    begun(mlflow_ledger, experiment)
    mlflow_ledger.record(experiment, [sample_result()])
    (run,) = mlflow_ledger.runs(experiment)
    rubric = RubricText(id="tip-v2", hash="q" * 64, text="New.")
    mlflow_ledger.mark(experiment, {run.run_id: Mark(metrics={}, judge_pending=True, rubric=rubric)})
    (row,) = mlflow_ledger._store.rows(
        raw_runs(mlflow_ledger, experiment)[0].info.experiment_id, [run.run_id]
    )
    earlier = f"rubric-{content_hash('Be useful. ☕' + chr(10))[:12]}.md"
    assert mlflow_ledger._text(row, earlier) == "Be useful. ☕\n"
    assert mlflow_ledger._text(row, "rubric.md") == "New."
    assert (row.params["rubric_id"], row.tags["tipbench.rubric_id"]) == ("tip-v1", "tip-v2")


def test_a_damaged_text_is_never_passed_off_as_whole(
    server_without_artifacts: MlflowServer, tmp_path: Path, experiment: str
) -> None:
    """A tag that somebody changed is noticed by its checksum, and the refusal names the run."""
    ledger = open_ledger(server_without_artifacts.url, home=tmp_path)
    begun(ledger, experiment)
    ledger.record(experiment, [sample_result(text=LONG)])
    (run,) = ledger.runs(experiment)
    raw_client(ledger).set_tag(run.run_id, "artifact:raw.txt.1", "something else")
    with pytest.raises(BadInput, match=f"raw.txt of run {run.run_id}"):
        ledger.run(run.run_id)


def test_a_half_written_run_does_not_count_and_is_completed(
    mlflow_ledger: MlflowLedger, experiment: str
) -> None:
    """A run that a crash left open is invisible until the same cell comes again, which completes that run."""
    result = sample_result(4)
    experiment_id = begun(mlflow_ledger, experiment)
    left = raw_client(mlflow_ledger).create_run(
        experiment_id,
        tags={"tipbench.cell": result.cell.key, "tipbench.kind": "cell", "tipbench.cut": "reply"},
    )
    assert mlflow_ledger.runs(experiment) == []
    mlflow_ledger.record(experiment, [result])
    (run,) = mlflow_ledger.runs(experiment)
    assert (run.run_id, run.status, run.cut) == (left.info.run_id, "done", None)
    assert len(raw_runs(mlflow_ledger, experiment)) == 1


def test_of_two_runs_with_one_key_one_counts(mlflow_ledger: MlflowLedger, experiment: str) -> None:
    """Should two machines have recorded the same cell, a done run counts before a failed one."""
    begun(mlflow_ledger, experiment)
    mlflow_ledger.record(experiment, [sample_result(1, error="first machine"), sample_result(2)])
    failed, other = mlflow_ledger.runs(experiment)
    client = raw_client(mlflow_ledger)
    client.set_tag(other.run_id, "tipbench.cell", failed.key)
    client.set_experiment_tag(
        client.get_experiment_by_name(experiment).experiment_id, "tipbench.revision", "x"
    )
    assert [run.run_id for run in mlflow_ledger.runs(experiment)] == [other.run_id]


def test_somebody_elses_experiment_is_adopted(
    mlflow_ledger: MlflowLedger, experiment: str, tmp_path: Path
) -> None:
    """An experiment that was made in MLflow beforehand is used, its own runs and tags left alone."""
    client = raw_client(mlflow_ledger)
    place = None if mlflow_ledger.uri.startswith("http") else tmp_path.as_uri()
    experiment_id = client.create_experiment(experiment, artifact_location=place, tags={"team": "blue"})
    foreign = client.create_run(experiment_id)
    assert mlflow_ledger.pinned(experiment) is None
    mlflow_ledger.pin(experiment, sample_pin(rubric=LONG))
    mlflow_ledger.record(experiment, [sample_result()])
    assert mlflow_ledger.pinned(experiment) == sample_pin(rubric=LONG)
    assert [run.status for run in mlflow_ledger.runs(experiment)] == ["done"]
    assert client.get_experiment_by_name(experiment).tags["team"] == "blue"
    assert client.get_run(foreign.info.run_id).data.tags.keys() <= {"mlflow.runName"}


def test_a_deleted_experiment_is_named(mlflow_ledger: MlflowLedger, experiment: str) -> None:
    """An experiment in MLflow's bin is not silently written to: the refusal says how to restore it."""
    experiment_id = begun(mlflow_ledger, experiment)
    raw_client(mlflow_ledger).delete_experiment(experiment_id)
    with pytest.raises(
        BadInput, match=f"{experiment}.* was deleted.*restore --experiment-id {experiment_id}"
    ):
        mlflow_ledger.pin(experiment, sample_pin())


def test_a_damaged_pin_is_refused(mlflow_ledger: MlflowLedger, experiment: str) -> None:
    """A pin whose tags were changed by hand is not taken for a pin to something else."""
    experiment_id = begun(mlflow_ledger, experiment)
    client = raw_client(mlflow_ledger)
    tags = client.get_experiment(experiment_id).tags
    part = next(name for name, value in tags.items() if value == "Be useful. ☕\n")
    client.set_experiment_tag(experiment_id, part, "Be useless.")
    with pytest.raises(BadInput, match=r"pin of experiment .* is damaged"):
        mlflow_ledger.pinned(experiment)


def test_a_pin_that_died_half_way_changes_nothing(mlflow_ledger: MlflowLedger, experiment: str) -> None:
    """New parts of a pin count only with the tag that is written last; leftovers are cleared later."""
    experiment_id = begun(mlflow_ledger, experiment)
    client = raw_client(mlflow_ledger)
    parts, _ = pin_tags(sample_pin(prompts=["never finished"]))
    for name, value in parts.items():
        client.set_experiment_tag(experiment_id, name, value)
    assert mlflow_ledger.pinned(experiment) == sample_pin()
    mlflow_ledger.pin(experiment, sample_pin(prompts=["v2"]))
    left = client.get_experiment(experiment_id).tags
    assert len([name for name in left if name.startswith("tipbench.pin.")]) == 2


def test_every_write_changes_the_revision(mlflow_ledger: MlflowLedger, experiment: str) -> None:
    """Pinning more and recording give the experiment a new revision; reading does not."""
    client = raw_client(mlflow_ledger)
    seen = []
    experiment_id = begun(mlflow_ledger, experiment)
    seen.append(client.get_experiment(experiment_id).tags["tipbench.revision"])
    mlflow_ledger.pin(experiment, sample_pin(prompts=["v2"]))
    seen.append(client.get_experiment(experiment_id).tags["tipbench.revision"])
    mlflow_ledger.record(experiment, [sample_result()])
    seen.append(client.get_experiment(experiment_id).tags["tipbench.revision"])
    assert len(set(seen)) == 3
    mlflow_ledger.pin(experiment, sample_pin(prompts=["v1"]))
    mlflow_ledger.runs(experiment)
    assert client.get_experiment(experiment_id).tags["tipbench.revision"] == seen[-1]


def test_runs_are_read_from_the_cache_until_somebody_writes(place: Place, experiment: str) -> None:
    """Another opening that records is seen at once, though the runs were cached."""
    first, second = place.open(), place.open()
    first.pin(experiment, sample_pin())
    first.record(experiment, [sample_result(1)])
    assert len(first.runs(experiment)) == len(second.runs(experiment)) == 1
    second.record(experiment, [sample_result(2), sample_result(3, error="x")])
    assert [run.scenario_id for run in first.runs(experiment)] == ["s1", "s2", "s3"]


def test_the_cache_is_really_used(embedded_home: Path, experiment: str) -> None:
    """While the revision stands, what MLflow holds is not read again."""
    ledger = open_ledger("", home=embedded_home)
    begun(ledger, experiment)
    ledger.record(experiment, [sample_result()])
    (run,) = ledger.runs(experiment)
    raw_client(ledger).set_tag(run.run_id, "judge_pending", "false")
    assert ledger.runs(experiment) == [run]
    (embedded_home / "cache.db").unlink()
    assert ledger.runs(experiment) == [replace(run, judge_pending=False)]


def test_a_prompt_is_registered_once_per_text(mlflow_ledger: MlflowLedger, experiment: str) -> None:
    """The same text makes one version however often it comes, a new text another."""
    name = experiment.replace(" ", "_")
    for number, text in enumerate(("Give tips.", "Give tips.", "Give good tips.", "Give tips.")):
        prompts, templates = {experiment: f"hash of {text}"}, {experiment: text}
        pin = replace(sample_pin(), suite_id="my suite", prompts=prompts, templates=templates)
        mlflow_ledger.pin(f"{experiment} {number}", pin)
    versions = raw_client(mlflow_ledger).search_prompt_versions(f"tipbench.my_suite.{name}")
    assert sorted(version.template for version in versions) == ["Give good tips.", "Give tips."]


def test_a_server_has_a_page_per_experiment(mlflow_ledger: MlflowLedger, experiment: str) -> None:
    """A summary links to MLflow's own page where there is a server to show it."""
    experiment_id = begun(mlflow_ledger, experiment)
    (summary,) = [entry for entry in mlflow_ledger.experiments() if entry.name == experiment]
    is_server = mlflow_ledger.uri.startswith("http")
    assert summary.url == (f"{mlflow_ledger.uri}/#/experiments/{experiment_id}" if is_server else None)


def test_guarded_servers_are_written_and_read(guarded_place: Place, experiment: str) -> None:
    """Behind a path prefix, a host check or a password, a cell is recorded and shown all the same."""
    ledger = guarded_place.open()
    ledger.pin(experiment, sample_pin())
    ledger.record(experiment, [sample_result(text=LONG)])
    (run,) = guarded_place.open().runs(experiment)
    assert guarded_place.open().run(run.run_id)[1].raw == LONG
    assert "horse" not in str(ledger.experiments())


def test_a_host_that_is_not_allowed_is_explained(server_behind_prefix: MlflowServer, tmp_path: Path) -> None:
    """The server's plain-text refusal becomes a sentence with both ways out."""
    with pytest.raises(LedgerUnreachable, match=r"--allowed-hosts.*--mlflow-host-header"):
        open_ledger(server_behind_prefix.url, home=tmp_path).pinned("x")


@pytest.mark.parametrize("user", ["", "admin:wrong@"])
def test_a_missing_or_wrong_password_is_explained(
    server_with_accounts: MlflowServer, tmp_path: Path, user: str
) -> None:
    """A server that wants to know who is there is told through MLflow's own variables."""
    url = server_with_accounts.url.replace("://", f"://{user}")
    with pytest.raises(LedgerUnreachable, match="MLFLOW_TRACKING_USERNAME") as refusal:
        open_ledger(url, home=tmp_path).pinned("x")
    assert "wrong" not in str(refusal.value)


def test_credentials_may_come_from_the_environment(
    server_with_accounts: MlflowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow's own variables for user and password are honoured."""
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "correct horse@battery/staple")
    assert open_ledger(server_with_accounts.url, home=tmp_path).pinned("not there") is None


SAY_NOTHING = """
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from ledger_samples import sample_pin, sample_result
from tipbench.ledger import open_ledger
ledger = open_ledger(sys.argv[2], home=Path(sys.argv[3]))
ledger.pin(sys.argv[4], replace(sample_pin(), prompts={"v1": "h"}, templates={"v1": "Hi"}))
ledger.record(sys.argv[4], [sample_result(), sample_result(1, error="x")])
assert len(ledger.runs(sys.argv[4])) == 2
"""


@pytest.mark.parametrize("kind", ["embedded", "server"])
def test_mlflow_keeps_quiet_and_leaves_nothing_behind(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, experiment: str
) -> None:
    """No word of MLflow's reaches the screen, and no file appears outside the home."""
    uri = request.getfixturevalue("server").url if kind == "server" else ""
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    env = os.environ | {"MLFLOW_EXPERIMENT_NAME": "somewhere else"}
    tests = str(request.config.rootpath / "tests")
    done = subprocess.run(
        [sys.executable, "-c", SAY_NOTHING, tests, uri, str(home), experiment],
        cwd=work, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(work.iterdir()) == []


def test_opening_touches_nothing(tmp_path: Path) -> None:
    """A ledger that is not used makes no folder, asks no server and does not import MLflow."""
    code = (
        "import sys; from pathlib import Path; from tipbench.ledger import open_ledger;"
        "open_ledger('', home=Path(sys.argv[1])); open_ledger('http://127.0.0.1:9', home=Path(sys.argv[1]));"
        "assert not {'mlflow', 'sqlalchemy', 'requests'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "home")], check=True)
    assert list(tmp_path.iterdir()) == []


def test_texts_follow_a_home_that_was_moved(tmp_path: Path, experiment: str) -> None:
    """After the home was moved as a whole, old runs are still shown and new ones recorded."""
    old, new = tmp_path / "old", tmp_path / "new"
    before = open_ledger("", home=old)
    before.pin(experiment, sample_pin())
    before.record(experiment, [sample_result(text=LONG)])
    (run,) = before.runs(experiment)
    old.rename(new)
    ledger = open_ledger("", home=new)
    assert ledger.run(run.run_id)[1].raw == LONG
    ledger.record(experiment, [sample_result(2)])
    assert len(ledger.runs(experiment)) == 2
