"""Fixtures of the tests that need a real Airflow: what is slow to make is made once."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from airflow_world import AIRFLOW_BIN, AirflowHome, copy_airflow, engine, make_airflow, tiny_models

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def airflow_made(tmp_path_factory: pytest.TempPathFactory) -> AirflowHome:
    """An Airflow whose database is migrated, which takes seconds."""
    assert AIRFLOW_BIN.exists(), "Airflow is not installed: make test-airflow"
    return make_airflow(tmp_path_factory.mktemp("airflow"), tipbench_home=tmp_path_factory.mktemp("unused"))


@pytest.fixture(scope="module")
def airflow(
    airflow_made: AirflowHome, made_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> AirflowHome:
    """An Airflow and a tipbench home that a module's tests have to themselves."""
    folder = tmp_path_factory.mktemp("world")
    shutil.copytree(made_home, folder / "home")
    return copy_airflow(airflow_made, folder / "airflow", tipbench_home=folder / "home")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The models that a run names by default, with tiny weights."""
    return tiny_models(tmp_path_factory.mktemp("gguf"))


@pytest.fixture(scope="module")
def tiny_hosts(tiny: dict[str, Path]) -> Iterator[tuple[str, str]]:
    """Two embedded engines on two ports."""
    with engine(tiny) as first, engine(tiny) as second:
        yield first, second
