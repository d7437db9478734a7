"""A planted experiment, copied for each test, behind the real application."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from api_world import EXPERIMENT, GOOD, POOR, Api, open_api
from judged_world import World, plant_home

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory, made_home: Path) -> tuple[Path, World]:
    folder = tmp_path_factory.mktemp("api")
    quality = {(GOOD, "v1"): 4.0, (POOR, "v1"): 2.5}
    return folder, plant_home(folder, made_home, EXPERIMENT, quality=quality)


@pytest.fixture
def world(planted: tuple[Path, World], fresh_home: Path) -> World:
    shutil.copytree(planted[0], fresh_home)
    return planted[1]


@pytest.fixture
def api(world: World) -> Iterator[Api]:
    opened = open_api(world)
    yield opened
    opened.service.close()
