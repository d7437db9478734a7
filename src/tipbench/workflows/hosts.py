"""What a host has and whether it is free: what a page offers before a collection is started on it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tipbench.engine.embedded.gguf_header import read_header
from tipbench.engine.lock import EMBEDDED, hold_host, host_name, lock_folder
from tipbench.engine.ollama import connect, full_name
from tipbench.errors import EngineUnreachable, HostBusy
from tipbench.ledger.locks import is_held
from tipbench.records import Model
from tipbench.text import without_login
from tipbench.workflows.engines import Engine, embedded_models, too_large, with_size

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from tipbench.records import Resident
    from tipbench.settings import Settings

T = TypeVar("T")
_PATIENCE_S = 10.0
_ALL_OF_IT_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Installed:
    """A model that a host has. `too_large` is why a collection would refuse it, None where it would not."""

    name: str
    parameters: int | None
    size_bytes: int
    too_large: str | None
    resident: bool


def installed_models(settings: Settings) -> list[Installed]:
    """What can be benched on the host that the settings name, smallest first.

    The embedded engine's models are read from their files: it is not started for this.
    """
    if _is_embedded(settings):
        models, resident = _embedded(settings), set[str]()
    else:
        models, loaded = asyncio.run(_on_ollama(settings))
        resident = {full_name(entry.name) for entry in loaded}
    found = [
        Installed(
            name=model.name.encode("utf-8", "replace").decode(),
            parameters=model.parameters,
            size_bytes=model.size_bytes,
            too_large="; ".join(too_large([model], settings.max_model_b)) or None,
            resident=full_name(model.name) in resident,
        )
        for model in (with_size(one, {}) for one in models)
    ]
    return sorted(found, key=lambda model: (model.parameters or 0, model.name))


def busy(settings: Settings) -> str | None:
    """Who is using the host, as a sentence; None where it is free."""
    return busy_lock(lock_name(settings))


def lock_name(settings: Settings) -> str:
    """The lock that a collection with these settings takes; two embedded engines share the machine's one."""
    return EMBEDDED if _is_embedded(settings) else host_name(settings.ollama_url)


def busy_lock(name: str) -> str | None:
    """Who holds a host's lock; looked at for an instant, and not kept."""
    if not is_held(lock_folder() / f"{name}.lock"):
        return None
    try:
        with hold_host(name, folder=lock_folder(), experiment="", wait=False, waiting=lambda _message: None):
            return None
    except HostBusy as error:
        return str(error)


def _is_embedded(settings: Settings) -> bool:
    """Which engine a collection would use; `auto` asks whether an Ollama answers."""
    if settings.engine != "auto":
        return settings.engine == "embedded"
    try:
        asyncio.run(_greet(settings.ollama_url))
    except EngineUnreachable:
        return True
    return False


async def _greet(url: str) -> None:
    await (await in_time(connect(url, kind="ollama", timeout_s=_PATIENCE_S), url, _PATIENCE_S)).close()


async def _on_ollama(settings: Settings) -> tuple[list[Model], list[Resident]]:
    return await in_time(_asked(settings), settings.ollama_url, _ALL_OF_IT_S)


async def _asked(settings: Settings) -> tuple[list[Model], list[Resident]]:
    engine = Engine(kind="ollama", url=settings.ollama_url)
    async with engine.host(timeout_s=min(settings.timeout, _PATIENCE_S)) as host:
        return await host.models(), await host.resident()


async def in_time(asking: Coroutine[Any, Any, T], url: str, seconds: float) -> T:
    """What a host says; EngineUnreachable for one that is still talking after so long, however it talks."""
    try:
        return await asyncio.wait_for(asking, seconds)
    except asyncio.TimeoutError:
        raise EngineUnreachable(
            f"{without_login(url)} has not answered within {seconds:g} s; is it an Ollama, and is it very "
            "busy?"
        ) from None


def _embedded(settings: Settings) -> list[Model]:
    return [_from_file(name, path) for name, path in embedded_models(settings).items()]


def _from_file(name: str, path: Path) -> Model:
    """What the file says; its digest, which would take long, stands for nothing here."""
    return Model(
        name=name,
        digest="not worked out",
        parameters=read_header(path).parameters,
        size_bytes=path.stat().st_size,
    )
