"""The engine as a child process that lives exactly as long as it is needed."""

from __future__ import annotations

import selectors
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from tipbench.engine.embedded.server import check_installed
from tipbench.errors import EngineUnreachable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_START_S = 60.0
_END_S = 5.0
# The engine has nothing to save, and an interrupted command has two seconds in all.
_CLOSE_S = 0.5


@contextmanager
def start_engine(
    *,
    models: Mapping[str, Path],
    threads: int | None = None,
    parallel: int = 1,
    prompt_cache: bool = False,
) -> Iterator[str]:
    """Start an engine on a free loopback port, yield its address, and end it with the block.

    The child watches the pipe at its standard input, which closes with this process however it ends, so
    that even a `kill -9` leaves no engine behind. It is in a session of its own, so that a Ctrl-C reaches
    this process alone, which may still need the engine to finish.
    """
    check_installed()
    command = _command(models, threads=threads, parallel=parallel, prompt_cache=prompt_cache)
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(  # noqa: S603 - our own module, by our own interpreter
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
        try:
            yield _address(child, log)
        finally:
            _end(child)


def _command(
    models: Mapping[str, Path], *, threads: int | None, parallel: int, prompt_cache: bool
) -> Sequence[str]:
    return [
        *(sys.executable, "-m", "tipbench.engine.embedded", "--until-stdin-closes", "--port", "0"),
        *(f"--gguf={name}={path}" for name, path in models.items()),
        *((f"--threads={threads}",) if threads is not None else ()),
        f"--parallel={parallel}",
        *(("--prompt-cache",) if prompt_cache else ()),
    ]


def _address(child: subprocess.Popen[bytes], log: IO[bytes]) -> str:
    """The first line of the child's output, which it writes when it takes requests."""
    assert child.stdout is not None  # noqa: S101 - it was asked for
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        readable = selector.select(_START_S)
    line = child.stdout.readline().decode().strip() if readable else ""
    if not line.startswith("http"):
        raise EngineUnreachable(f"the embedded engine did not start: {_last_words(child, log)}")
    return line


def _last_words(child: subprocess.Popen[bytes], log: IO[bytes]) -> str:
    try:
        status = child.wait(_END_S)
    except subprocess.TimeoutExpired:
        return f"it said nothing for {_START_S:.0f} seconds"
    log.seek(0)
    lines = log.read().decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), f"it ended with status {status}")


def _end(child: subprocess.Popen[bytes]) -> None:
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
    try:
        child.wait(_CLOSE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
