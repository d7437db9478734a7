"""`doctor`: what is reachable, what is missing, and what to type to fix it."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
import threading
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from tipbench.compare.figures import count
from tipbench.engine.embedded import find_weights
from tipbench.engine.memory import free_bytes, readable
from tipbench.engine.ollama import connect, full_name, how_to_start
from tipbench.errors import EngineFailure, LedgerMisconfigured, TipbenchError
from tipbench.ledger import public_uri
from tipbench.private import is_open_to_others, make_folder, narrow_home
from tipbench.settings import home
from tipbench.text import without_login
from tipbench.workflows.backlog import has_running_command, waiting_cells, what_waits
from tipbench.workflows.engines import with_size
from tipbench.workflows.hosts import in_time
from tipbench.workflows.recording import the_ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tipbench.ledger import Waiting
    from tipbench.records import Model, Resident
    from tipbench.settings import Settings

State = Literal["ok", "warn", "bad"]
_LOCAL_MLFLOW = "http://127.0.0.1:5000"
_LOW_DISK = 2 << 30
_LOW_MEMORY = 1 << 30
PATIENCE_S = 25.0
_LONGEST = 600


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing looked at; `fix` is what to type, empty where there is nothing to do."""

    name: str
    state: State
    detail: str
    fix: str = ""


def examine(settings: Settings, *, patience_s: float = PATIENCE_S) -> list[Finding]:
    """Look at everything a collection needs. Never raises for what it finds: it says so.

    A server that does not come to an end of its answer is not waited for longer than `patience_s`.
    """
    ledger = _InTime(lambda: _ledger(settings), patience_s if _is_server(settings) else None)
    engines = [*_ollama(settings, patience_s), _embedded()]
    if not any(finding.state == "ok" for finding in engines if finding.name in {"ollama", "embedded engine"}):
        cures = " && ".join(finding.fix for finding in engines[-1:]) or "ollama serve"
        engines.append(Finding(name="engine", state="bad", detail="no engine can be used", fix=cures))
    found = [_python(), _home(), _memory(), *engines, ledger.finding(_late(settings))]
    return [_readable(one) for one in (*found, *_local_mlflow(settings), *_spool())]


def _readable(finding: Finding) -> Finding:
    """Without what nobody can read of what a strange host says: too much of it, or half a character."""
    return replace(finding, detail=_shortened(finding.detail), fix=_shortened(finding.fix))


def _shortened(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


class _InTime:
    """A look that may take for ever: begun at once, waited for a while, and then left to itself."""

    def __init__(self, look: Callable[[], Finding], patience_s: float | None) -> None:
        self._found: list[Finding] = []
        self._patience_s = patience_s
        self._thread = threading.Thread(target=lambda: self._found.append(look()), daemon=True)
        self._thread.start()

    def finding(self, late: Finding) -> Finding:
        self._thread.join(self._patience_s)
        return self._found[0] if self._found else late


def _late(settings: Settings) -> Finding:
    detail = f"{public_uri(settings.mlflow_url, home=home())} does not come to an end of its answer"
    return Finding(name="ledger", state="bad", detail=detail, fix=_ledger_fix(settings))


def _is_server(settings: Settings) -> bool:
    return urlsplit(settings.mlflow_url).scheme in {"http", "https"}


def _ledger_fix(settings: Settings) -> str:
    if _is_server(settings):
        return "see that MLFLOW_TRACKING_URI is the address of an `mlflow server` that runs"
    return "correct MLFLOW_TRACKING_URI, or export TIPBENCH_HOME=a folder that can be written"


def _python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    return Finding(name="python", state="ok", detail=f"{version} at {sys.executable}")


def _home() -> Finding:
    folder = home()
    try:
        make_folder(folder)
        narrow_home(folder)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
        free = shutil.disk_usage(folder).free
        is_shared = is_open_to_others(folder)
    except OSError as error:
        fix = "export TIPBENCH_HOME=a folder that can be written"
        return Finding(name="home", state="bad", detail=f"{folder}: {error.strerror}", fix=fix)
    detail = f"{folder}, {readable(free)} of disk free"
    if free <= _LOW_DISK:
        fix = f"free some of the disk, or export TIPBENCH_HOME=a folder on another; now it is {folder}"
        return Finding(name="home", state="warn", detail=detail, fix=fix)
    if is_shared:
        detail += "; other users of this machine may look into it"
        fix = shlex.join(["chmod", "700", str(folder)])
        return Finding(name="home", state="warn", detail=detail, fix=fix)
    return Finding(name="home", state="ok", detail=detail)


def _memory() -> Finding:
    free = free_bytes()
    if free > _LOW_MEMORY:
        return Finding(name="memory", state="ok", detail=f"{readable(free)} free")
    fix = "end other programs, or bench smaller models (--max-model-b)"
    return Finding(name="memory", state="warn", detail=f"only {readable(free)} free", fix=fix)


def _ollama(settings: Settings, patience_s: float) -> Iterator[Finding]:
    try:
        url = settings.ollama_url
        version, models, resident = asyncio.run(in_time(_look_at(url), url, patience_s))
    except (TipbenchError, EngineFailure) as error:
        fix = how_to_start(settings.ollama_url)
        detail = str(error).removesuffix(f"; {fix}")
        yield Finding(name="ollama", state="warn", detail=detail, fix=fix)
        return
    yield Finding(
        name="ollama", state="ok", detail=f"{without_login(settings.ollama_url)}, version {version}"
    )
    for model in models:
        yield _model(model, settings)
    have = {full_name(model.name) for model in models}
    missing = [name for name in settings.models if full_name(name) not in have]
    if missing:
        pulls = " && ".join(f"ollama pull {name}" for name in missing)
        yield Finding(name="models", state="warn", detail=f"not installed: {', '.join(missing)}", fix=pulls)
    for entry in resident:
        detail = f"{entry.name} is loaded ({readable(entry.size_bytes)}); a collection would refuse to start"
        yield Finding(name="resident", state="warn", detail=detail, fix=f"ollama stop {entry.name}")


async def _look_at(url: str) -> tuple[str, list[Model], list[Resident]]:
    host = await connect(url, kind="ollama", timeout_s=10)
    try:
        return host.host.version, await host.models(), await host.resident()
    finally:
        await host.close()


def _model(model: Model, settings: Settings) -> Finding:
    model = with_size(model, {})
    if model.parameters is None:
        detail = f"{model.name}: the host does not give its size, so a collection refuses it"
        fix = f"tipbench collect --assume-size {model.name}=3.2 (its billions of parameters)"
        return Finding(name="model", state="warn", detail=detail, fix=fix)
    billions = model.parameters / 1e9
    detail = f"{model.name}: {billions:.2f}B parameters, {readable(model.size_bytes)}, {model.digest[:12]}"
    if round(billions, 1) > settings.max_model_b:
        detail += f"; above --max-model-b {settings.max_model_b:g}, would be refused"
    return Finding(name="model", state="ok", detail=detail)


def _embedded() -> Finding:
    name = "embedded engine"
    if find_spec("xllamacpp") is None:
        detail = "llama.cpp is not installed"
        fix = "pip install 'tipbench[embedded]' && tipbench engine pull"
        return Finding(name=name, state="warn", detail=detail, fix=fix)
    if find_weights() is None:
        return Finding(name=name, state="warn", detail="its weights are missing", fix="tipbench engine pull")
    return Finding(name=name, state="ok", detail="smollm2:135m is ready (--engine embedded)")


def _ledger(settings: Settings) -> Finding:
    try:
        ledger = the_ledger(settings)
        held = count(len(ledger.experiments()), "experiment")
    except LedgerMisconfigured as error:
        fix = "export TIPBENCH_MLFLOW_HOST_HEADER=NAME:PORT as the server lists it (or --mlflow-host-header)"
        return Finding(name="ledger", state="bad", detail=str(error), fix=fix)
    except TipbenchError as error:
        return Finding(name="ledger", state="bad", detail=str(error), fix=_ledger_fix(settings))
    return Finding(name="ledger", state="ok", detail=f"{ledger.uri}, {held}")


def _local_mlflow(settings: Settings) -> Iterator[Finding]:
    """A server on MLflow's usual port that is not being used is worth a word."""
    import httpx

    if settings.mlflow_url:
        return
    try:
        found = httpx.get(f"{_LOCAL_MLFLOW}/version", timeout=2, trust_env=False)
    except httpx.HTTPError:
        return
    if found.is_success and found.text[:1].isdigit():
        detail = f"an MLflow server {found.text.strip()[:20]} answers at {_LOCAL_MLFLOW} and is not used"
        fix = f"export MLFLOW_TRACKING_URI={_LOCAL_MLFLOW}"
        yield Finding(name="mlflow server", state="warn", detail=detail, fix=fix)


def _spool() -> Iterator[Finding]:
    """Warn about cells and marks that wait, unless a running command is about to record them."""
    try:
        waiting = waiting_cells()
        running = [entry for entry in waiting if has_running_command(entry)]
    except TipbenchError as error:
        fix = "export TIPBENCH_HOME=a folder that can be written"
        yield Finding(name="spool", state="bad", detail=str(error), fix=fix)
        return
    idle = [entry for entry in waiting if entry not in running]
    if running:
        detail = f"{_words_of(running)} of a running command waiting"
        yield Finding(name="spool", state="ok", detail=detail)
    if idle:
        fix = "tipbench sync, or see which: tipbench sync --list"
        yield Finding(name="spool", state="warn", detail=f"{_words_of(idle)} waiting for a ledger", fix=fix)


def _words_of(waiting: Sequence[Waiting]) -> str:
    return what_waits(sum(one.count for one in waiting), sum(one.marks for one in waiting))
