"""Limits of HTTP connections: how large a header block is, how long a request takes, how many there are."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from tipbench.api.errors import error_response
from tipbench.errors import Busy, TipbenchError
from tipbench.workflows.access import NotAllowed

# A header block is counted in pieces of this size. Most requests are smaller than one piece.
_PIECE = 4096
_LINGER_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Limits:
    """`header_s` is for a whole header block, `body_s` for a whole body, `idle_s` for a pause in a body."""

    header_bytes: int = 65_536
    header_s: float = 30.0
    idle_s: float = 30.0
    body_s: float = 300.0
    connections: int = 512


class _Phase(Enum):
    """What the next bytes of a connection belong to. The last phase begins when a request is complete."""

    HEADERS = "headers"
    BODY = "body"
    COMPLETE = "complete"


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits for requests. Responses have no limits.

    One timer for each connection compares times when it fires: a timer for each request would cost more.
    """

    limits = Limits()

    @classmethod
    def with_limits(cls, limits: Limits) -> type[LimitedProtocol]:
        return type(cls.__name__, (cls,), {"limits": limits})

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._refused = False
        self._enter(_Phase.HEADERS)
        self._check_in(self.limits.header_s)
        if len(self.connections) > self.limits.connections:
            self._answer(Busy(f"all {self.limits.connections} connections are in use; try again later"))
            self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        end = 0
        while end < len(data) and not self._refused and not self.transport.is_closing():
            start, end = end, end + min(_PIECE, self.limits.header_bytes - self._header_bytes)
            piece = data[start:end]
            super().data_received(piece)
            if self._phase is not _Phase.COMPLETE:
                self._count(len(piece))
            elif self._is_answered():  # empty lines between two requests end uvicorn's own timer
                self._enter(_Phase.HEADERS)

    def on_message_begin(self) -> None:
        if self._phase is not _Phase.HEADERS:
            self._enter(_Phase.HEADERS)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._enter(_Phase.BODY)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._header_bytes = 0  # what follows the last piece of a body are trailers: headers again
        self._progress = self.loop.time()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._phase = _Phase.COMPLETE
        super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: the service never upgrades, and clients may ask for it with every request."""

    def _enter(self, phase: _Phase) -> None:
        self._phase = phase
        self._header_bytes = 0
        self._begun = self._progress = self.loop.time()

    def _is_answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _count(self, received: int) -> None:
        """Count bytes after which the headers are not complete.

        Of a request that follows another one without a pause, the first piece may hold the other's end.
        """
        self._header_bytes += received
        if self._header_bytes < self.limits.header_bytes:
            return
        if not self._is_answered():
            self._close()
            return
        most = self.limits.header_bytes
        self._answer(NotAllowed(f"the headers may have {most:,} bytes; send fewer headers", status=431))
        # A close would discard the answer as long as the client sends.
        self.transport.write_eof()
        self._refused = True
        self._timer.cancel()
        self._check_in(_LINGER_S)

    def _answer(self, refusal: TipbenchError) -> None:
        response = error_response(refusal)
        headers = [b"%b: %b\r\n" % header for header in response.raw_headers]
        lines = [STATUS_LINE[response.status_code], *headers, b"connection: close\r\n\r\n", response.body]
        self.transport.write(b"".join(lines))

    def _check_in(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._check_time)

    def _check_time(self) -> None:
        if self._refused:
            self.transport.abort()
            return
        limits, now = self.limits, self.loop.time()
        if self._phase is _Phase.COMPLETE or self._waits_for_us():
            self._begun = self._progress = now
        if self._phase is _Phase.BODY:
            left = min(self._progress + limits.idle_s, self._begun + limits.body_s) - now
        else:
            left = self._begun + limits.header_s - now
        if left > 0:
            self._check_in(min(left, limits.header_s, limits.idle_s, limits.body_s))
        else:
            self._close()

    def _waits_for_us(self) -> bool:
        """Whether the service stopped reading, has not asked for the body yet, or sends a response."""
        if self.flow.read_paused or self._is_answered():
            return self.flow.read_paused
        cycle = self.cycle
        return self._phase is _Phase.HEADERS or cycle.waiting_for_100_continue or cycle.response_started

    def _close(self) -> None:
        """Close the connection, by force if the client does not read what is left to send."""
        self._refused = True
        if self.cycle is not None:
            self.cycle.disconnected = True
        self._timer.cancel()
        self._check_in(_LINGER_S)
        self.transport.close()
