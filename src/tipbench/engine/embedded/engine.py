"""What the routes ask for, wired together: the catalog of models, and the one in memory."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TYPE_CHECKING

from tipbench.engine.embedded import replies
from tipbench.engine.embedded.asks import ApiError, Ask, model_not_found
from tipbench.engine.embedded.catalog import Catalog, Entry, show, tag
from tipbench.engine.embedded.llama import Chunk, Finish, Tuning, load
from tipbench.engine.embedded.prompts import fitting_prompt
from tipbench.engine.embedded.resident import Lease, Resident
from tipbench.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

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
        return await asyncio.to_thread(show, self.entry(name), verbose=verbose)

    async def running(self) -> Reply:
        """What `/api/ps` tells: the model in memory, if there is one."""
        llama = self._resident.llama
        if llama is None:
            return {"models": []}
        digest = await self._digest(llama.entry)
        return {"models": [replies.process(llama, digest=digest, expires_at=self._resident.expires_at)]}

    def entry(self, name: str) -> Entry:
        """The model of that name as its file is now; ApiError where there is none, or a damaged one.

        Without a thread of its own, which would let requests overtake each other.
        """
        try:
            found = self._catalog.find(name)
        except BadInput as error:
            raise ApiError(500, str(error)) from None
        if found is None:
            raise model_not_found(name)
        return found

    async def reply(self, ask: Ask) -> AsyncGenerator[Reply, None]:
        """The objects that answer a request. Closed early, it stops the generation."""
        began = time.perf_counter_ns()
        entry = self.entry(ask.model)
        if ask.is_empty:
            yield await self._load_or_unload(ask, entry, began)
            return
        chunks: list[Chunk] = []
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
                        chunks.append(part)
                        if part.text:
                            yield replies.piece(ask, part.text)
        told = replies.Told(
            finish=_checked(finish, ask, chunks),
            prompt=prompt,
            written=[token for chunk in chunks for token in chunk.tokens],
            total_ns=time.perf_counter_ns() - began,
            load_ns=lease.load_ns,
        )
        yield replies.last(ask, told)

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


def _checked(finish: Finish | None, ask: Ask, chunks: Sequence[Chunk]) -> Finish:
    """The end of a reply, if it has one, and if what the model ended under a schema is JSON.

    llama.cpp lets go of a schema that becomes too much for it on the way, without a word.
    """
    if finish is None:
        raise ApiError(500, "llama.cpp ended the reply before it was done")
    if ask.schema is not None and finish.by_model:
        try:
            json.loads("".join(chunk.text for chunk in chunks), parse_int=str)
        except ValueError:
            raise ApiError(500, "llama.cpp lost hold of the JSON schema; give it a simpler one") from None
    return finish
