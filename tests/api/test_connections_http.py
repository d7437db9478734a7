"""Limits of connections, by raw sockets against the real service."""

from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPResponse
from typing import TYPE_CHECKING

import psutil
import pytest

import limited_service
from tip_service import TipService, asked, head, parsed, running, sent
from tipbench.api.connections import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

GOOD = json.dumps(asked("guest")).encode()
HEADER_S, IDLE_S, BODY_S = 1.5, 1.0, 3.0
LATE_S = 15.0  # a busy machine may be so late
MOST = 12
KB = 1024


@contextmanager
def limited(home: Path, **limits: float) -> Iterator[TipService]:
    with running(home, limited_service.__file__, json.dumps(limits)) as one:
        yield one
        assert set(one.errors.read_text().splitlines()) <= {"WARNING:  Invalid HTTP request received."}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TipService]:
    """Short times. The service prints no traceback."""
    home = tmp_path_factory.mktemp("limits") / "home"
    with limited(home, header_s=HEADER_S, idle_s=IDLE_S, body_s=BODY_S) as one:
        yield one


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TipService]:
    """Few connections."""
    with limited(tmp_path_factory.mktemp("crowded") / "home", connections=MOST) as one:
        yield one


def connected(service: TipService) -> socket.socket:
    return socket.create_connection(("127.0.0.1", service.port), timeout=60)


def rest(connection: socket.socket) -> bytes:
    """All that comes until the service closes the connection."""
    received = b""
    with suppress(ConnectionResetError):
        while data := connection.recv(65536):
            received += data
    return received


def status_of(connection: socket.socket) -> int:
    """The status of the next answer, which is read to its end."""
    answer = HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


def closed_after(service: TipService, start: bytes, more: Iterable[bytes] = ()) -> tuple[float, bytes]:
    """How long the service keeps a connection that sends these bytes, and what it answers.

    What is `more` is sent piece by piece, with pauses, until the service closes the connection.
    """
    answer = b""
    with connected(service) as connection:
        begun = time.monotonic()
        connection.sendall(start)
        connection.settimeout(0.2)
        try:
            for piece in more:
                with suppress(socket.timeout):
                    received = connection.recv(65536)
                    if not received:
                        break
                    answer += received
                connection.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass
        connection.settimeout(60)
        answer += rest(connection)
        return time.monotonic() - begun, answer


def forever(piece: bytes) -> Iterator[bytes]:
    while True:
        yield piece


def request(*lines: str, body: bytes = GOOD) -> bytes:
    return head("/score/egreedy", f"Content-Length: {len(body)}", *lines) + body


def test_the_limits_are_those_of_the_documentation() -> None:
    """64 kB of headers, 30 s for headers, 30 s of silence and 5 minutes for a body, 512 connections."""
    assert Limits() == Limits(header_bytes=64 * KB, header_s=30, idle_s=30, body_s=300, connections=512)


def test_a_silent_connection_is_closed(service: TipService) -> None:
    """Without one byte, after the time for a header block."""
    took, answer = closed_after(service, b"")
    assert HEADER_S * 0.9 < took < HEADER_S + LATE_S
    assert answer == b""


@pytest.mark.parametrize("drop", [b"X", b"X-A: b\r\n", b"\r\n"])
@pytest.mark.parametrize("first", [b"", request("Connection: keep-alive")])
def test_a_slow_header_block_is_closed(service: TipService, first: bytes, drop: bytes) -> None:
    """A byte or a line now and then does not extend the time, also not for the second request."""
    start = first + (b"" if drop == b"\r\n" else b"POST /reward HTTP/1.1\r\nHost: localhost\r\n")
    took, answer = closed_after(service, start, forever(drop))
    assert HEADER_S * 0.9 < took < HEADER_S + LATE_S
    assert answer.count(b"HTTP/1.1 200") == (1 if first else 0)


def test_an_idle_connection_is_kept_for_a_while(service: TipService) -> None:
    """The service closes a connection 5 s after its last answer; until then it takes another request."""
    with connected(service) as connection:
        for _ in range(3):
            connection.sendall(request())
            assert status_of(connection) == 200
            time.sleep(HEADER_S + 0.5)
        connection.sendall(request())
        assert status_of(connection) == 200
        begun = time.monotonic()
        assert rest(connection) == b""
        assert 4.5 < time.monotonic() - begun < 5 + LATE_S


def filled(size: int, line: Callable[[int], str]) -> bytes:
    """A request whose header block has exactly this size, made of such lines."""
    usual = ("Connection: close", f"Content-Length: {len(GOOD)}")
    lines: list[str] = []
    room = size - len(head("/score/egreedy", *usual))
    while room > 0:
        text = line(len(lines))
        # The last line fills the rest, and no rest is too small for a line.
        lines.append(text if len(text) + 20 < room else f"X: {'v' * (room - 5)}")
        room -= len(lines[-1]) + 2
    return head("/score/egreedy", *usual, *lines) + GOOD


MANY: dict[str, Callable[[int], str]] = {
    "small headers": lambda number: f"X-{number}: {'v' * 20}",
    "one header": lambda _: f"X: {'v' * 100_000}",
}


@pytest.mark.parametrize("form", MANY)
def test_a_header_block_has_64_kb_at_most(service: TipService, form: str) -> None:
    """Up to the limit the request is answered, beyond it with 431 and a sentence, and the connection ends."""
    for size in (2 * KB, 4 * KB, 64 * KB - 1, 64 * KB):
        assert parsed(sent(service, filled(size, MANY[form])))[0] == 200
    for size in (64 * KB + 1, 66 * KB, 120 * KB, 600 * KB):
        answer = flooded(service, [filled(size, MANY[form])])
        status, said = parsed(answer)
        assert (status, said["error"]["code"]) == (431, "headers_too_large")
        assert b"connection: close" in answer


def flooded(service: TipService, pieces: Iterable[bytes]) -> bytes:
    """The answer to these bytes, of which the service need not read all."""
    with connected(service) as connection:
        for piece in pieces:
            try:
                connection.sendall(piece)
            except (BrokenPipeError, ConnectionResetError):
                break
        return rest(connection)


def test_a_long_address_counts(service: TipService) -> None:
    """The first line belongs to the header block."""
    assert parsed(flooded(service, [head("/score/egreedy?" + "x" * 70_000)]))[0] == 431


def test_a_second_request_has_the_same_limit(service: TipService) -> None:
    """Headers of an earlier request, and its body, do not count."""
    large = filled(64 * KB, MANY["small headers"]).replace(b"Connection: close", b"X-Connection: ---")
    body = GOOD + b" " * 500_000
    with connected(service) as connection:
        for one in (large, request(body=body), large, request(body=body)):
            connection.sendall(one)
            assert status_of(connection) == 200
        connection.sendall(filled(66 * KB, MANY["small headers"]))
        assert rest(connection).startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize("line", [b"X-Small: v\r\n", b"v" * 1000])
def test_a_flood_of_headers_takes_no_memory(service: TipService, line: bytes) -> None:
    """64 MB on one connection: 431, and others are answered meanwhile."""
    process = psutil.Process(service.process.pid)
    service.score()
    before = process.memory_info().rss
    block = line * (1_000_000 // len(line))
    answer = flooded(service, [head("/stats")[:-2] + b"X: ", *[block] * 64])
    assert not answer or answer.startswith(b"HTTP/1.1 431")
    assert service.score().status_code == 200
    assert process.memory_info().rss - before < 20_000_000


def test_a_flood_of_trailers_takes_no_memory(service: TipService) -> None:
    """Lines after the last chunk of a body are headers too."""
    before = psutil.Process(service.process.pid).memory_info().rss
    chunked = head("/score/egreedy", "Transfer-Encoding: chunked") + b"2\r\n{}\r\n0\r\n"
    flooded(service, [chunked, *[b"X-Small: v\r\n" * 100_000] * 50])
    assert service.score().status_code == 200
    assert psutil.Process(service.process.pid).memory_info().rss - before < 20_000_000


BODIES = {
    "a length": head("/score/egreedy", "Content-Length: 100000"),
    "chunks": head("/score/egreedy", "Transfer-Encoding: chunked"),
}
DROPS = {"a length": b" ", "chunks": b"1\r\n \r\n"}


@pytest.mark.parametrize("form", BODIES)
def test_a_body_without_progress_is_closed(service: TipService, form: str) -> None:
    """After its first bytes, and before any."""
    for start in (b"", DROPS[form]):
        took, answer = closed_after(service, BODIES[form] + start)
        assert IDLE_S * 0.9 < took < IDLE_S + LATE_S
        assert answer == b""


@pytest.mark.parametrize("form", BODIES)
def test_a_body_that_takes_too_long_is_closed(service: TipService, form: str) -> None:
    """A byte now and then is progress, up to the time for a whole body."""
    took, answer = closed_after(service, BODIES[form], forever(DROPS[form]))
    assert BODY_S * 0.9 < took < BODY_S + LATE_S
    assert answer == b""


def test_the_rest_of_a_refused_body_is_limited_too(service: TipService) -> None:
    """The answer comes before the body ends; the connection does not stay open for the rest."""
    start = head("/nowhere", "Content-Length: 100000")
    took, answer = closed_after(service, start, forever(b" "))
    assert answer.startswith(b"HTTP/1.1 404")
    assert took < BODY_S + LATE_S


def test_a_slow_body_in_time_is_answered(service: TipService) -> None:
    """Pauses below the limit do no harm."""
    pieces = [GOOD[at : at + 100] for at in range(0, len(GOOD), 100)]
    with connected(service) as connection:
        connection.sendall(head("/score/egreedy", f"Content-Length: {len(GOOD)}"))
        for piece in pieces:
            time.sleep(min(0.5, 0.7 * BODY_S / len(pieces)))
            connection.sendall(piece)
        assert status_of(connection) == 200


def test_a_body_that_is_asked_for_is_answered(service: TipService) -> None:
    """Expect: 100-continue is answered at once; a body that does not follow is closed."""
    start = head("/score/egreedy", "Expect: 100-continue", f"Content-Length: {len(GOOD)}")
    with connected(service) as connection:
        connection.sendall(start)
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(GOOD)
        assert status_of(connection) == 200
    took, answer = closed_after(service, start)
    assert IDLE_S * 0.9 < took < IDLE_S + LATE_S
    assert answer == b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize("more", [b"", b"GET /st", b"\r\n"])
def test_a_stream_has_no_limit(service: TipService, more: bytes) -> None:
    """A reader of /signals is served for longer than every limit, whatever else it begins to send."""
    with connected(service) as connection:
        connection.sendall(head("/signals", method="GET") + more)
        time.sleep(HEADER_S + IDLE_S + BODY_S + 1)
        made = service.score(user=f"streamed {more!r}").json()["decision_id"].encode()
        received = b""
        while made not in received:
            data = connection.recv(65536)
            assert data, "the stream ended"
            received += data
        assert received.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
def test_an_upgrade_is_an_ordinary_request(service: TipService, protocol: str) -> None:
    """The service speaks HTTP/1.1 alone, and the limits stay."""
    lines = ("Connection: Upgrade", f"Upgrade: {protocol}", "Sec-WebSocket-Version: 13",
             "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")  # fmt: skip
    with connected(service) as connection:
        begun = time.monotonic()
        connection.sendall(head("/stats", *lines, method="GET"))
        assert status_of(connection) == 200
        rest(connection)
        assert time.monotonic() - begun < 5 + LATE_S


def test_so_many_connections_and_no_more(crowded: TipService) -> None:
    """The next connection gets 503 and is closed; when one ends, another is taken."""
    crowded.client.close()
    with ExitStack() as stack:
        waiting = [stack.enter_context(connected(crowded)) for _ in range(MOST)]
        waiting[0].sendall(request())
        assert status_of(waiting[0]) == 200
        for _ in range(3 * MOST):
            status, said = parsed(flooded(crowded, [request()]))
            assert (status, said["error"]["code"]) == (503, "unavailable")
            assert "connections" in said["error"]["message"]
        for connection in waiting[1:4]:
            connection.close()
        until = time.monotonic() + LATE_S
        while parsed(flooded(crowded, [request("Connection: close")]))[0] == 503:
            assert time.monotonic() < until, "the number of connections does not go down"
        waiting[-1].sendall(request())
        assert status_of(waiting[-1]) == 200
