"""One model's weights at a time on a host: make room, load, watch, unload, see it gone.

What is claimed of it (`Tally`) was seen through `/api/ps`.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tipbench.engine.memory import free_bytes, needed_bytes, readable
from tipbench.engine.ollama import full_name, patiently
from tipbench.errors import EngineFailure, HostBusy, ModelStuck

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tipbench.engine.lock import HostLock
    from tipbench.engine.ollama import OllamaHost
    from tipbench.records import Emit, Model, Resident

WATCH_EVERY_S = 1.0
_ASK_AGAIN_S = 5.0
_LATE_LOOKS = 8
_LATE_PAUSE_S = 0.25
# An interrupted command has two seconds in all.
_LET_GO_S = 1.2
_LET_GO_PAUSE_S = 0.05


@dataclass(kw_only=True)
class ModelTally:
    """What was seen of one model."""

    model: Model
    loads: int = 0
    load_s: float = 0.0
    peak_bytes: int = 0
    vram_share: float | None = None


@dataclass(kw_only=True)
class Tally:
    """What was seen of the host's memory while we used it."""

    models: dict[str, ModelTally] = field(default_factory=dict)
    max_resident: int = 0
    seen: frozenset[str] | None = None

    def observe(self, resident: Sequence[Resident]) -> None:
        """Count a load for every model of ours that is there now and was not a moment ago."""
        before = self.seen
        self.seen = frozenset(entry.digest for entry in resident)
        self.max_resident = max(self.max_resident, len(resident))
        for entry in resident:
            mine = self.models.get(entry.digest)
            if mine is not None:
                mine.loads += before is not None and entry.digest not in before
                mine.peak_bytes = max(mine.peak_bytes, entry.size_bytes)
                mine.vram_share = _in_vram(entry)


class Residency:
    """Keeps the rule on one host, under that host's lock."""

    def __init__(
        self,
        host: OllamaHost,
        *,
        lock: HostLock,
        models: Sequence[Model],
        evict: bool,
        check_memory: bool,
        gone_within_s: float,
        emit: Emit,
    ) -> None:
        self._host = host
        self._lock = lock
        self._evict = evict
        self._check_memory = check_memory
        self._gone_within_s = gone_within_s
        self._emit = emit
        self._digests = {full_name(model.name): model.digest for model in models}
        self._ours = {lock.leftover.digest} if lock.leftover else set()
        self._leaving = lock.leftover if lock.leftover and lock.leftover.leaving else None
        self._unsure = False
        self._current: Model | None = None
        self._changed = False
        self.still_loaded = ""
        self.tally = Tally(models={model.digest: ModelTally(model=model) for model in models})

    async def make_room(self, wanted: Model) -> None:
        """Leave nothing in memory but the wanted model itself, where a killed run of ours left it there."""
        await self._wait_for_leaving()
        for entry in await self._resident():
            ours = entry.digest in self._ours
            if ours and entry.digest == wanted.digest:
                continue
            if not ours and not self._evict:
                raise HostBusy(
                    f"{entry.name} ({readable(entry.size_bytes)}) is loaded on {self._host.host.url} but not "
                    f"by tipbench; unload it with `ollama stop {entry.name}`, or pass --evict"
                )
            self._emit({"event": "evict", "model": entry.name, "ours": ours})
            await self.unload(entry.name, entry.digest)

    def check_memory(self, model: Model, *, num_ctx: int) -> None:
        """Refuse to load what does not fit; a model that is there already has shown that it does."""
        if not self._check_memory or model.digest in (self.tally.seen or ()):
            return
        needs, free = needed_bytes(model, num_ctx=num_ctx), free_bytes()
        if needs > free:
            raise EngineFailure(
                f"{model.name} needs about {readable(needs)} of memory and {readable(free)} is free; "
                "close something, or choose a smaller model",
                retryable=False,
            )

    async def load(self, model: Model, *, num_ctx: int, keep_alive: str) -> None:
        """Load it, after writing down in the lock file that what is loaded is ours."""
        self._lock.note(model=model.name, digest=model.digest)
        self._ours.add(model.digest)
        self._current, self._unsure = model, True
        seconds = await self._host.load(model.name, num_ctx=num_ctx, keep_alive=keep_alive)
        self._unsure = False
        resident = await self._resident()
        self.check_unchanged(model)
        self.tally.models[model.digest].load_s += seconds
        size = sum(entry.size_bytes for entry in resident if entry.digest == model.digest)
        self._emit({"event": "model_loaded", "model": model.name, "load_s": round(seconds, 3), "bytes": size})

    def check_unchanged(self, model: Model) -> None:
        """Refuse to go on once other weights were seen under the model's name: they are another model."""
        if self._changed:
            raise EngineFailure(
                f"{model.name} was replaced on the host after this run began; run the same command again",
                retryable=False,
            )

    async def release(self, model: Model) -> None:
        """Unload and see it gone. Where the host cannot be asked, the lock file goes on naming the model."""
        with suppress(EngineFailure):
            if self._unsure:
                await self._stop_loading(model.name, model.digest)
            await self._resident()  # notices other weights under the name, which `unload` must not miss
            await self.unload(model.name, "" if self._changed else model.digest)
            if not self._unsure:
                self._lock.note(model=None, digest=None)
            self._emit({"event": "model_unloaded", "model": model.name})
        self._current, self._changed = None, False

    async def let_go(self, model: Model) -> None:
        """After an interrupt: ask for the unload, and look for a moment whether the model is gone.

        Where it is not seen gone, `still_loaded` and the lock file name it.
        """
        if self._host.host.kind == "embedded":
            return  # the model goes with the engine's process
        self.still_loaded = model.name
        self._lock.note(model=model.name, digest=model.digest, leaving=True)
        try:
            await asyncio.wait_for(self._ask_and_look(model), _LET_GO_S)
        except (EngineFailure, asyncio.TimeoutError) as error:
            if isinstance(error, EngineFailure) and error.unreachable:
                self.still_loaded = ""  # the host has gone, and the model with it
            return
        self.still_loaded = ""
        self._lock.note(model=None, digest=None)
        self._emit({"event": "model_unloaded", "model": model.name})

    async def _ask_and_look(self, model: Model) -> None:
        """Look while the request is under way: a busy host may answer it only after the model is gone.

        A model whose loading was broken off is gone only once it was there.
        """
        digest = "" if self._changed else model.digest
        asking = asyncio.ensure_future(self._told_to_unload(model.name))
        try:
            while True:
                loaded = any(_is(entry, model.name, digest) for entry in await self._resident())
                if not loaded and not self._unsure:
                    return
                appeared, self._unsure = loaded and self._unsure, self._unsure and not loaded
                if appeared or (asking.done() and not asking.result()):
                    asking.cancel()
                    asking = asyncio.ensure_future(self._told_to_unload(model.name))
                await asyncio.sleep(_LET_GO_PAUSE_S)
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    @property
    def still_loading(self) -> bool:
        """Whether the host was asked to load the model and did not say yet that it has."""
        return self._unsure

    async def _wait_for_leaving(self) -> None:
        """Wait for the model that an interrupted command left loaded, or in the middle of loading."""
        leaving, self._leaving = self._leaving, None
        if leaving is None or leaving.model is None:
            return
        name, digest = leaving.model, leaving.digest or ""
        self._emit({"event": "notice", "message": f"waiting until {name} is unloaded"})
        self.still_loaded = name
        await self._stop_loading(name, digest)
        await self.unload(name, digest)
        self.still_loaded = ""
        self._lock.note(model=None, digest=None)

    async def _stop_loading(self, name: str, digest: str) -> None:
        """A load that failed or was broken off may still come true: say no to it, and look a while."""
        await self._told_to_unload(name)
        for _ in range(_LATE_LOOKS):
            if any(_is(entry, name, digest) for entry in await self._resident()):
                self._unsure = False
                return
            await asyncio.sleep(_LATE_PAUSE_S)

    async def unload(self, name: str, digest: str) -> None:
        """Ask, then look until it is gone; a host that will not let go is an error."""
        started = time.monotonic()
        asked = -_ASK_AGAIN_S
        pause = 0.002
        while any(_is(entry, name, digest) for entry in await self._resident()):
            now = time.monotonic()
            if now - started > self._gone_within_s:
                raise ModelStuck(
                    f"{self._host.host.url} still holds {name} {self._gone_within_s:.0f} s after being told "
                    "to unload it; restart Ollama, then run the same command again"
                )
            if now - asked > _ASK_AGAIN_S:
                asked = now if await self._told_to_unload(name) else asked
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.5)

    async def _told_to_unload(self, name: str) -> bool:
        """Whether the host took the request; one that is busy is asked again, one that is gone is not."""
        try:
            await self._host.unload(name)
        except EngineFailure as failure:
            if failure.unreachable:
                raise
            return False
        return True

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Look at `/api/ps` once a second while calls are made."""
        watcher = asyncio.create_task(self._keep_watching())
        try:
            yield
        finally:
            watcher.cancel()
            await asyncio.wait([watcher])  # unlike `await watcher`, an interrupt meanwhile is not lost
            if not watcher.cancelled():
                watcher.result()

    async def _keep_watching(self) -> None:
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            with suppress(EngineFailure):
                resident = await self._resident()
                names = [entry.name for entry in resident]
                total = sum(entry.size_bytes for entry in resident)
                self._emit({"event": "resident", "models": names, "bytes": total})

    async def _resident(self) -> list[Resident]:
        """What is in memory; of a model known by name, a digest that is missing or shortened is filled in."""
        resident = []
        for entry in await patiently(self._host.resident):
            known = self._digests.get(full_name(entry.name), "")
            resident.append(replace(entry, digest=known) if known.startswith(entry.digest) else entry)
        self.tally.observe(resident)
        if self._current is not None:
            self._changed = self._changed or any(_replaced(entry, self._current) for entry in resident)
        return resident


def _in_vram(entry: Resident) -> float | None:
    """How much of a loaded model is in the memory of graphics cards; None where the host does not say."""
    if entry.vram_bytes is None or entry.size_bytes <= 0:
        return None
    return min(max(entry.vram_bytes / entry.size_bytes, 0.0), 1.0)


def _replaced(entry: Resident, model: Model) -> bool:
    return full_name(entry.name) == full_name(model.name) and entry.digest != model.digest


def _is(entry: Resident, name: str, digest: str) -> bool:
    return entry.digest == digest if entry.digest and digest else full_name(entry.name) == full_name(name)
