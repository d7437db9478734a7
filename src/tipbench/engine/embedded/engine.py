"""What the routes ask for, wired together: the catalog of models, and the one in memory."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TYPE_CHECKING

from tipbench.engine.embedded import replies
from tipbench.engine.embedded.asks import ApiError, Ask, model_not_found
from tipbench.engine.embedded.catalog import Catalog, Entry, show, tag
from tipbench.engine.embedded.llama import Finish, Tuning, load
from tipbench.engine.embedded.prompts import fitting_prompt
from tipbench.engine.embedded.resident import Lease, Resident
from tipbench.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tipbench.engine.embedded.replies import Reply

_LEAST_CONTEXT = 4


class Engine:
    """One catalog, one place in memory. Every method may be called while others run."""

    def __init__(self, *, catalog: Catalog, tuning: Tuning) -> None:
        self._catalog = catalog
        self._resident = Resident(
            load=lambda entry, num_ctx: load(entry, num_ctx=num_ctx, tuning=tuning), parallel=tuning.parallel
        )

    async def tags(self) -> Reply:
        entries = await asyncio.to_thread(self._catalog.entries)
        return {"models": [tag(entry, digest=await self._digest(entry)) for entry in entries]}

    async def show(self, name: str, *, verbose: bool) -> Reply:
        return await asyncio.to_thread(show, await self.entry(name), verbose=verbose)

    async def running(self) -> Reply:
        """What `/api/ps` tells: the model in memory, if there is one."""
        llama = self._resident.llama
        if llama is None:
            return {"models": []}
        digest = await self._digest(llama.entry)
        return {"models": [replies.process(llama, digest=digest, expires_at=self._resident.expires_at)]}

    async def entry(self, name: str) -> Entry:
        """The model of that name as its file is now; ApiError where there is none, or a damaged one."""
        try:
            found = await asyncio.to_thread(self._catalog.find, name)
        except BadInput as error:
            raise ApiError(500, str(error)) from None
        if found is None:
            raise model_not_found(name)
        return found

    async def reply(self, ask: Ask) -> AsyncGenerator[Reply, None]:
        """The objects that answer a request. Closed early, it stops the generation."""
        began = time.perf_counter_ns()
        entry = await self.entry(ask.model)
        if ask.is_empty:
            yield await self._load_or_unload(ask, entry, began)
            return
        written: list[int] = []
        finish: Finish | None = None
        async with self._using(ask, entry) as lease:
            prompt = await fitting_prompt(lease.llama, ask)
            completion = lease.llama.complete(
                prompt.tokens, options=ask.options, most=prompt.reply_room, schema=ask.schema
            )
            async with aclosing(completion) as parts:
                async for part in parts:
                    if isinstance(part, Finish):
                        finish = part
                    else:
                        written += part.tokens
                        yield replies.piece(ask, part.text)
        if finish is None:
            raise ApiError(500, "llama.cpp ended the reply before it was done")
        total_ns = time.perf_counter_ns() - began
        yield replies.last(
            ask,
            replies.Told(
                finish=finish, prompt=prompt, written=written, total_ns=total_ns, load_ns=lease.load_ns
            ),
        )

    async def close(self) -> None:
        await self._resident.clear()

    async def _load_or_unload(self, ask: Ask, entry: Entry, began: int) -> Reply:
        if ask.keep_alive == 0:
            await self._resident.expire(entry)
            return replies.unloaded(ask)
        async with self._using(ask, entry) as lease:
            total_ns = time.perf_counter_ns() - began
            return replies.loaded(ask, total_ns=total_ns, load_ns=lease.load_ns)

    def _using(self, ask: Ask, entry: Entry) -> AbstractAsyncContextManager[Lease]:
        asked = ask.options.num_ctx if ask.options.num_ctx > 0 else type(ask.options).num_ctx
        num_ctx = min(max(asked, _LEAST_CONTEXT), entry.header.context_length)
        return self._resident.using(entry, num_ctx=num_ctx, keep_alive=ask.keep_alive)

    async def _digest(self, entry: Entry) -> str:
        return await asyncio.to_thread(self._catalog.digest, entry)
