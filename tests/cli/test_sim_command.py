"""`sim run`, `sim gate` and `ope` as people and scripts use them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from mlflow import MlflowClient

from command import here, tipbench
from sim_samples import world_file

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ("--seeds", "5", "--users", "8", "--rounds", "60")


def test_run_prints_a_table(fresh_home: Path) -> None:
    """A row for each policy with its regret and interval, in the order asked for."""
    ran = here("sim", "run", "--policies", "random,hybrid", "--no-record", *SMALL)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0].startswith("tip (Four people")
    assert [line.split("\t")[0] for line in lines[1:]] == ["policy", "random", "hybrid"]
    assert float(lines[2].split("\t")[1]) > float(lines[3].split("\t")[1])


def test_run_as_json(fresh_home: Path) -> None:
    """The numbers, the seeds and the curves for scripts; progress is not on standard output."""
    ran = here("sim", "run", "--policies", "egreedy", "--no-record", "--json", *SMALL)
    assert ran.json["seeds"] == [0, 1, 2, 3, 4]
    [row] = ran.json["rows"]
    assert row["interval"]["low"] < row["regret"] < row["interval"]["high"]
    assert row["curve"][-1][0] == 60
    assert "egreedy: 60 rounds done" in ran.err


def test_a_run_is_recorded_with_its_curve(home: Path) -> None:
    """Every policy is a run in the experiment `tip-sim-WORLD`, with the regret up to each round."""
    ran = here("sim", "run", "--policies", "egreedy,random", "--world", "null", "--json", *SMALL)
    client = MlflowClient(f"sqlite:///{home / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("tip-sim-null")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert {run.data.params["policy"] for run in runs} == {"egreedy", "random"}
    assert sorted(run.info.run_id for run in runs) == sorted(ran.json["runs"])
    assert len(client.get_metric_history(ran.json["runs"][0], "regret_so_far")) == 50


def test_a_world_of_ones_own(fresh_home: Path, tmp_path: Path) -> None:
    """The path of a file is a world; a mistake in it is told with its line and exit code 2."""
    path = world_file(tmp_path)
    ran = here("sim", "run", "--policies", "egreedy", "--world", path, "--no-record", "--json", *SMALL)
    assert set(ran.json["rows"][0]["personas"]) == {"ann", "ben"}
    wrong = world_file(tmp_path, "extends: tip\ncandidats: 3\n", name="wrong.yaml")
    ran = here("sim", "run", "--world", wrong, "--no-record", *SMALL)
    assert ran.code == 2
    assert f"{wrong}:2: " in ran.err
    assert "did you mean 'candidates'?" in ran.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policies", "egredy"), "egreedy"),
        (("--policies", ""), "names nothing"),
        (("--policies", "egreedy,egreedy"), "named twice"),
        (("--seeds", "0"), "--seeds"),
        (("--world", "tipp"), "did you mean 'tip'"),
    ],
)
def test_bad_options_are_told(arguments: tuple[str, ...], message: str, fresh_home: Path) -> None:
    """One sentence and exit code 2."""
    ran = here("sim", "run", "--no-record", *SMALL, *arguments)
    assert ran.code == 2
    assert message in ran.err


def test_a_gate_that_is_passed_exits_0(home: Path) -> None:
    """The reason in one sentence, the numbers under it, the controls, and the id of the gate."""
    clear = ("--challenger", "hybrid", "--champion", "random", "--guardrail", "0.5", "--record")
    # Seeds are drawn anew, and one gate in forty is void by chance: its control was let through.
    ran = next((ran for _ in range(3) if not (ran := here("sim", "gate", *clear, *SMALL)).code), None)
    assert ran is not None
    lines = ran.out.splitlines()
    assert lines[0].startswith("hybrid against random on tip: passed: ")
    assert lines[1].startswith("gate ")
    assert sum(line.startswith("ok ") for line in lines) == 3
    assert (home / "gates" / f"{lines[1].split()[1].rstrip(',')}.json").exists()


def test_a_gate_that_is_refused_exits_4(fresh_home: Path) -> None:
    """Refused and void gates have the same exit code, and the reason on standard error too."""
    refused = here("sim", "gate", "--challenger", "random", "--json", *SMALL)
    assert refused.code == 4
    assert refused.json["outcome"] == "refused"
    assert refused.json["gate"] is None
    assert "refused" in refused.err
    void = here("sim", "gate", "--challenger", "hybrid", "--margin", "0.9", "--json", *SMALL)
    assert (void.code, void.json["outcome"]) == (4, "void")


def test_a_gate_in_a_process_of_its_own(fresh_home: Path) -> None:
    """The real command gives the very numbers of this process: nothing depends on threads or hash seeds."""
    arguments = ("sim", "gate", "--challenger", "egreedy-v2", "--json", *SMALL)
    apart, same = tipbench(*arguments), here(*arguments)
    assert apart.code in {0, 4}
    assert apart.json["verdict"] == same.json["verdict"]


def test_ope_without_a_log_is_told(fresh_home: Path) -> None:
    """There is nothing to estimate from, which is bad input and not an empty answer."""
    ran = here("ope", "--challenger", "egreedy-v2")
    assert ran.code == 2
    assert "no tip has been served" in ran.err


def test_events_are_written_as_they_happen(fresh_home: Path, tmp_path: Path) -> None:
    """With --events, what is to be simulated and how far it is, as JSON lines; also where a gate refuses."""
    events = tmp_path / "events.jsonl"
    ran = here("sim", "gate", "--challenger", "random", "--json", "--events", str(events), *SMALL)
    assert ran.code == 4
    told = [json.loads(line) for line in events.read_text().splitlines()]
    assert told[0]["policies"] == ["egreedy", "random", "egreedy again"]
    assert {one["policy"] for one in told[1:]} == set(told[0]["policies"])
    assert [one["done"] for one in told if one.get("policy") == "egreedy"] == [10, 20, 30, 40, 50, 60]
