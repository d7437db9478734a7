"""Planted experiments, behind the real application."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from api_world import Api, open_api
from web_world import plant_both

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from judged_world import World


@pytest.fixture(scope="session")
def planted_pages(tmp_path_factory: pytest.TempPathFactory, made_home: Path) -> tuple[Path, World]:
    folder = tmp_path_factory.mktemp("pages") / "home"
    shutil.copytree(made_home, folder)
    return folder, plant_both(folder)


@pytest.fixture(scope="module")
def pages_home(
    planted_pages: tuple[Path, World], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """A copy of what was planted as the home of all tests of a file."""
    home = tmp_path_factory.mktemp("copy") / "home"
    shutil.copytree(planted_pages[0], home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIPBENCH_HOME", str(home))
        for name in ("OLLAMA_HOST", "MLFLOW_TRACKING_URI", "TIPBENCH_MLFLOW_HOST_HEADER"):
            patch.delenv(name, raising=False)
        yield planted_pages[1]


@pytest.fixture(scope="module")
def pages(pages_home: World) -> Iterator[Api]:
    """The application without a server; callers share it."""
    opened = open_api(pages_home)
    yield opened
    opened.service.store.close()
