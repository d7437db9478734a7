"""A host that stays away: its models go to one that answers, and nothing is done twice or lost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_world import add_policy, add_pools, free_port
from tipbench.ledger import open_ledger

if TYPE_CHECKING:
    from airflow_world import AirflowHome, DagRun

pytestmark = pytest.mark.airflow
# The embedded engine has the first as well, and must not stand in for a host that is away.
MODELS = ["smollm2:135m", "qwen2.5:1.5b"]
SMALL = {"models": MODELS, "prompts": "v4-structured", "n_tips": 1, "n_scenarios": 1, "experiment": "handed"}


@pytest.fixture(scope="module")
def dead() -> str:
    return f"http://127.0.0.1:{free_port()}"


def pool(url: str) -> str:
    return f"ollama-localhost-{url.rpartition(':')[2]}"


@pytest.fixture(scope="module")
def run(airflow: AirflowHome, tiny_hosts: tuple[str, str], dead: str) -> DagRun:
    """The first of three hosts is dead, and the third has no model; pools are there for the living ones."""
    add_policy(airflow)
    add_pools(airflow, "tipbench", *map(pool, tiny_hosts))
    login = {f"AIRFLOW_CONN_{pool(tiny_hosts[0]).upper()}": tiny_hosts[0].replace("://", "://ann:hush-hush@")}
    return airflow.test({**SMALL, "hosts": [dead, *tiny_hosts]}, **login)


def test_its_model_is_handed_to_a_living_host(run: DagRun, dead: str, tiny_hosts: tuple[str, str]) -> None:
    """The task is tried three times, then the model goes to the host where a collection went well."""
    assert run.state == "success", run.log[-4000:]
    assert run.tasks["collect", 0] == "failed"
    assert run.log.count("running task <TaskInstance: bench_collect.collect ") == 4
    assert dead in run.log
    states = [run.tasks["collect_elsewhere", index] for index in range(3)]
    assert states == ["skipped", "success", "skipped"]
    handed = run.xcom("collect_elsewhere", 1)
    assert (handed["models"], handed["host"], handed["done"]) == ([MODELS[0]], tiny_hosts[0], 1)


def test_no_cell_is_lost_or_there_twice(run: DagRun, airflow: AirflowHome) -> None:
    """Both models have their cell, once."""
    runs = list(open_ledger("", home=Path(airflow.env["TIPBENCH_HOME"])).runs("handed"))
    assert sorted(run.model for run in runs) == sorted(MODELS)
    assert {run.status for run in runs} == {"done"}


def test_a_login_is_shown_nowhere(run: DagRun, airflow: AirflowHome, tiny_hosts: tuple[str, str]) -> None:
    """The password in a host's connection is in no log, no XCom and no cell."""
    runs = open_ledger("", home=Path(airflow.env["TIPBENCH_HOME"])).runs("handed")
    assert {one.host for one in runs} == {tiny_hosts[0]}
    assert "hush" not in run.log + repr(run.xcoms)


def test_the_policy_gives_each_index_its_hosts_pool(run: DagRun, tiny_hosts: tuple[str, str]) -> None:
    """Tasks wait for the pool of their host; one whose pool is not there stays in the shared one."""
    assert run.pools["collect", 0] == run.pools["collect_elsewhere", 0] == "tipbench"
    assert run.pools["collect", 1] == run.pools["collect_elsewhere", 1] == pool(tiny_hosts[0])
    assert run.pools["collect_elsewhere", 2] == pool(tiny_hosts[1])
    assert run.pools["compare", -1] == "default_pool"
