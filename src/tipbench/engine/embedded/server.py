"""The engine as a server: it listens, says where, and ends cleanly."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tipbench.engine.embedded.app import build_app
from tipbench.engine.embedded.catalog import Catalog
from tipbench.engine.embedded.engine import Engine
from tipbench.engine.embedded.llama import Tuning
from tipbench.errors import BadInput, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_MOST_THREADS = 4
_MOST_PORT = 65535
_GRACE_S = 1
_IDLE_S = 3600


def check_installed() -> None:
    """Unavailable, with what to type, where the packages the engine runs on are missing."""
    missing = [name for name in ("xllamacpp", "starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        raise Unavailable(f"the embedded engine needs {names}; type: pip install 'tipbench[embedded]'")


def default_threads() -> int:
    """One for each processor we may use, at most four: enough for a small model, and room for others."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, _MOST_THREADS)


def serve(
    *,
    models: Mapping[str, Path],
    host: str,
    port: int,
    threads: int | None,
    parallel: int,
    prompt_cache: bool,
    verbose: bool,
    ready: Callable[[str], None],
) -> None:
    """Serve until SIGINT or SIGTERM; `ready` gets the address once it takes requests. Port 0 is any free."""
    check_installed()
    if parallel < 1 or (threads is not None and threads < 1):
        raise BadInput(f"threads ({threads}) and parallel ({parallel}) must be at least 1")
    tuning = Tuning(
        threads=threads or default_threads(), parallel=parallel, prompt_cache=prompt_cache, verbose=verbose
    )
    catalog = Catalog(models)
    _prepare_environment()
    listener = _listen(host, port)
    with listener:
        app = build_app(Engine(catalog=catalog, tuning=tuning), ready=lambda: ready(_address(listener)))
        asyncio.run(_run(app, listener, verbose=verbose))


def _prepare_environment() -> None:
    """What llama.cpp and its threads read when they are first loaded; a person's own values stay."""
    # by default a waiting thread spins long: on a busy machine two threads took up to ten times one's time
    os.environ.setdefault("GOMP_SPINCOUNT", "200")
    # a failed assertion would start a debugger on us before it ends the process
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")


async def _run(app: object, listener: socket.socket, *, verbose: bool) -> None:
    import uvicorn

    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        log_level="info" if verbose else "critical",
        access_log=verbose,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
        # Ollama never closes an idle connection; a client that reuses one must not race with us
        timeout_keep_alive=_IDLE_S,
    )
    server = uvicorn.Server(config)
    _end_quietly_on_signals()
    await server.serve(sockets=[listener])


def _end_quietly_on_signals() -> None:
    """Uvicorn ends on a signal, then raises it again for the handler that was there before: this one."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: None)


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= _MOST_PORT:
        raise BadInput(f"port {port} is not between 0 and {_MOST_PORT}; 0 is any free one")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise BadInput(
            f"cannot listen on {host}: {error.strerror}; give an address of this machine"
        ) from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise _cannot_listen(host, port, error) from None
    return listener


def _cannot_listen(host: str, port: int, error: OSError) -> Unavailable:
    if error.errno == errno.EADDRINUSE:
        users = "by Ollama, or another engine?"
        return Unavailable(f"port {port} on {host} is in use ({users}); end that, or choose another port")
    return Unavailable(f"cannot listen on {host}:{port}: {error.strerror}; choose another host or port")


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
