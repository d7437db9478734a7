"""The engine's process: how it starts, what it says, and that it always ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import httpx
import psutil
import pytest

from tipbench.engine.embedded import SMOLLM2, parse_gguf_option, serve, start_engine
from tipbench.errors import BadInput, EngineUnreachable, Unavailable

if TYPE_CHECKING:
    from pathlib import Path

Start = Callable[..., AbstractContextManager[tuple[str, psutil.Process]]]

PARENT = """
import signal, sys, time, httpx
from pathlib import Path
from tipbench.engine.embedded import start_engine
signal.signal(signal.SIGINT, lambda *_: None)
with start_engine(models={"tiny": Path(sys.argv[1])}, threads=1) as url:
    print(url, flush=True)
    sys.stdin.readline()
    print(httpx.get(url).text, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(tiny: Path, number: int) -> None:
    """Ctrl-C and a polite kill end the engine at once, with status 0 and without a word on stderr."""
    command = [sys.executable, "-m", "tipbench.engine.embedded", "--port=0", f"--gguf=tiny={tiny}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        url = child.stdout.readline().strip()
        options = {"num_predict": 3}
        httpx.post(f"{url}/api/generate", json={"model": "tiny", "prompt": "Hi", "options": options})
        child.send_signal(number)
        out, err = child.communicate(timeout=10)
    assert (child.returncode, out, err) == (0, "", "")


def test_a_signal_ends_it_in_the_middle_of_a_reply(smollm2: Path, engine_process: Start) -> None:
    """A long reply under way does not hold the engine up for more than its grace."""
    with engine_process(f"--gguf={SMOLLM2}={smollm2}") as (url, process):
        request = {"model": SMOLLM2, "prompt": "Hi", "options": {"num_predict": 2000}}
        with httpx.stream("POST", f"{url}/api/generate", json=request, timeout=60) as response:
            next(response.iter_lines())
            process.terminate()
            assert process.wait(10) == 0


def test_a_port_in_use_is_named(tiny: Path) -> None:
    """Another server's port is refused in one sentence, as something that is busy."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable, match=f"port {port} on 127.0.0.1 is in use") as caught:
            serve(
                models={"tiny": tiny},
                host="127.0.0.1",
                port=port,
                threads=1,
                parallel=1,
                prompt_cache=False,
                verbose=False,
                ready=print,
            )
    assert caught.value.exit_code == 3


def test_a_missing_package_is_named(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without llama.cpp the engine says what to install."""
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(Unavailable, match=r"pip install 'tipbench\[embedded\]'"), start_engine(models={}):
        pass


def test_a_child_that_cannot_start_says_why(tmp_path: Path) -> None:
    """The last words of a child that died are in the error."""
    path = tmp_path / "no.gguf"
    path.write_text("no model at all, only some words")
    with (
        pytest.raises(EngineUnreachable, match=r"no\.gguf is not a GGUF file"),
        start_engine(models={"no": path}),
    ):
        pass


def test_the_block_ends_the_engine(tiny: Path) -> None:
    """When the block is left nothing listens any more, and no child is left."""
    before = set(psutil.Process().children())
    with start_engine(models={"tiny": tiny}, threads=1) as url:
        (child,) = set(psutil.Process().children()) - before
        assert httpx.get(url).text == "Ollama is running"
    assert not child.is_running()
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def test_a_killed_parent_leaves_no_engine_behind(tiny: Path) -> None:
    """A Ctrl-C to the parent's group spares the engine; a `kill -9` of the parent ends it."""
    command = [sys.executable, "-c", PARENT, str(tiny)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        url = parent.stdout.readline().strip()
        (engine,) = psutil.Process(parent.pid).children()
        os.killpg(parent.pid, signal.SIGINT)
        time.sleep(0.5)
        parent.stdin.write("\n")
        parent.stdin.flush()
        assert parent.stdout.readline().strip() == "Ollama is running"
        assert url.startswith("http://127.0.0.1:")
        parent.kill()
    psutil.wait_procs([engine], timeout=5)
    assert not engine.is_running()


def test_a_client_that_hangs_up_stops_the_generation(smollm2: Path, engine_process: Start) -> None:
    """Whether it streamed or waited for the whole reply: with the client gone, the engine is free again."""
    long = {"model": SMOLLM2, "prompt": "Tell me a story.", "options": {"num_predict": 3000}}
    short = {**long, "stream": False, "options": {"num_predict": 2}}
    with engine_process("--threads=1", f"--gguf={SMOLLM2}={smollm2}") as (url, process):
        with httpx.stream("POST", f"{url}/api/generate", json=long, timeout=60) as response:
            next(response.iter_lines())
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}/api/generate", json={**long, "stream": False}, timeout=0.5)
        assert httpx.post(f"{url}/api/generate", json=short, timeout=10).json()["done"]
        time.sleep(0.3)
        before = sum(process.cpu_times()[:2])
        time.sleep(0.5)
        assert sum(process.cpu_times()[:2]) - before < 0.2


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("tiny", "give a name and a file"),
        ("tiny=", "give a name and a file"),
        ("=x.gguf", "not a model's name"),
        ("a b=x.gguf", "not a model's name"),
        ("tiny=nowhere.gguf", "is not there"),
    ],
)
def test_a_bad_gguf_option_is_told(text: str, complaint: str) -> None:
    """Each half of `name=path` is checked, and the sentence says which is wrong."""
    with pytest.raises(BadInput, match=complaint):
        parse_gguf_option(text)


def test_a_good_gguf_option_is_split_at_its_first_equals_sign(tiny: Path, tmp_path: Path) -> None:
    """A path may hold an equals sign of its own."""
    path = tmp_path / "a=b.gguf"
    path.write_bytes(tiny.read_bytes())
    assert parse_gguf_option(f"mine:1b={path}") == ("mine:1b", path)
