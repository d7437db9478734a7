"""A store in a folder of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tipbench.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "service.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store(path) as opened:
        yield opened
