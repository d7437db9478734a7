"""Engines and models for these tests: real ones, started once where sharing them does no harm."""

from __future__ import annotations

import subprocess
import sys
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import httpx
import ollama
import psutil
import pytest

from tiny_gguf import write_tiny_gguf
from tipbench.engine.embedded import find_weights, start_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

EngineProcess = tuple[str, psutil.Process]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("models") / "other.gguf", seed=1)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    path = find_weights()
    if path is None:
        pytest.skip("the weights are not installed; type: tipbench engine pull")
    return path


@pytest.fixture(scope="session")
def url(tiny: Path, other: Path) -> Iterator[str]:
    """An engine that many tests share: they may find any model loaded, or none."""
    with start_engine(models={"tiny": tiny, "other:1m": other}, threads=1) as address:
        yield address


@pytest.fixture
def client(url: str) -> Iterator[ollama.Client]:
    with ollama.Client(host=url) as client:
        yield client


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=60) as client:
        yield client


@pytest.fixture
def engine_process() -> Callable[..., AbstractContextManager[EngineProcess]]:
    """Start the engine's own command, to look at its process: address and process."""

    @contextmanager
    def start(*arguments: str) -> Iterator[EngineProcess]:
        command = [sys.executable, "-m", "tipbench.engine.embedded", "--port=0", *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            try:
                yield child.stdout.readline().strip(), psutil.Process(child.pid)
            finally:
                child.kill()

    return start
