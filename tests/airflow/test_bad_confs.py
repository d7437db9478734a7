"""A conf that is wrong is refused with one sentence, and nothing is generated."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tipbench.ledger import open_ledger

if TYPE_CHECKING:
    from airflow_world import AirflowHome

pytestmark = pytest.mark.airflow


def experiments(airflow: AirflowHome) -> list[str]:
    return [one.name for one in open_ledger("", home=Path(airflow.env["TIPBENCH_HOME"])).experiments()]


def test_a_wrong_type_is_refused_by_its_param(airflow: AirflowHome) -> None:
    """Airflow itself says which key is wrong; no run is made."""
    before = airflow.run_ids()
    ran = airflow.run("dags", "test", "bench_collect", "--conf", '{"n_tips": "many"}')
    assert ran.code != 0
    assert "n_tips" in ran.err + ran.out
    assert airflow.run_ids() == before


def test_an_unknown_key_is_refused_by_the_first_task(
    airflow: AirflowHome, tiny_hosts: tuple[str, str]
) -> None:
    """The run fails at once and says what was meant; nothing else of it runs."""
    run = airflow.test({"temprature": 0.7, "models": "qwen2.5:0.5b", "hosts": list(tiny_hosts)})
    assert run.state == "failed"
    assert "conf: there is no key 'temprature'; did you mean 'temperature'?" in run.log
    assert run.tasks.pop(("assign", -1)) == "failed"
    assert set(run.tasks.values()) == {"upstream_failed"}
    assert experiments(airflow) == []
