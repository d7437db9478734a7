"""What strangers may send to the tip routes: a clean answer to all of it, never a failure, never a hang."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tip_service import (
    CANDIDATES,
    ONLY_TIPS,
    SCORED,
    TipService,
    asked,
    head,
    parsed,
    raw,
    sent,
    serving,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

GOOD = json.dumps(asked("guest")).encode()
MB = 1_000_000


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TipService]:
    """At the end it is still there and has complained of nothing but requests that were not HTTP."""
    with serving(tmp_path_factory.mktemp("hostile") / "home", *ONLY_TIPS) as one:
        yield one
        assert one.get("/health") == {"status": "ok"}
        complaints = {" ".join(line.split()) for line in one.errors.read_text().splitlines()}
        assert complaints <= {"WARNING: Invalid HTTP request received."}


def changed(**changes: Any) -> bytes:  # noqa: ANN401 - any field of a request
    return json.dumps(asked("guest", **changes)).encode()


def with_features(*numbers: object) -> bytes:
    return changed(candidates=[{"id": "a", "features": list(numbers)}])


BODIES = {
    "nothing": b"",
    "no JSON": b"user_id=anna",
    "an array": b"[]",
    "null": b"null",
    "half of it": GOOD[: len(GOOD) // 2],
    "two of them": GOOD + GOOD,
    "a byte order mark": b"\xef\xbb\xbf" + GOOD,
    "UTF-16": GOOD.decode().encode("utf-16"),
    "no UTF-8 in an id": GOOD.replace(b"guest", b"\xff\xfe"),
    "no UTF-8 in a text": GOOD.replace(b"Make tea", b"\xc3\x28"),
    "no UTF-8 in a key": GOOD.replace(b'"user_id"', b'"user\xffid"'),
    "half a character in an id": GOOD.replace(b"guest", b"\\ud800"),
    "half a character in a text": GOOD.replace(b"Make tea", b"\\udfff"),
    "half a character in a task": GOOD.replace(b"write the report", b"\\ud83d"),
    "deep in an array": b"[" * 400_000,
    "deep in an unknown field": b'{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "deep in objects": b'{"context":' * 80_000,
    "NaN": GOOD.replace(b"9.5", b"NaN"),
    "Infinity": GOOD.replace(b"9.5", b"-Infinity"),
    "1e999": GOOD.replace(b"9.5", b"1e999"),
    "a number of 5000 digits": GOOD.replace(b"9.5", b"9" * 5000),
    "open tasks of 65 bits": changed(context={"open_tasks": 2**64}),
    "open tasks of 100 bits": changed(context={"open_tasks": 2**100}),
    "open tasks of 5000 digits": changed(context={"open_tasks": 7}).replace(b": 7", b": " + b"7" * 5000),
    "fewer than no tasks": changed(context={"open_tasks": -1}),
    "hour 25": changed(context={"hour": 25}),
    "weekday 7": changed(context={"weekday": 7}),
    "a context that is none": changed(context="now"),
    "no candidates": changed(candidates=[]),
    "201 candidates": changed(candidates=[{"id": str(n), "text": "x"} for n in range(201)]),
    "a candidate twice": changed(candidates=[CANDIDATES[0]] * 2),
    "neither text nor features": changed(candidates=[{"id": "a"}]),
    "both text and features": changed(candidates=[{"id": "a", "text": "x", "features": [0.0] * 7}]),
    "one of each": changed(candidates=[{"id": "a", "text": "x"}, {"id": "b", "features": [0.0] * 7}]),
    "six features": with_features(*[0.0] * 6),
    "eight features": with_features(*[0.0] * 8),
    "features 1e999": with_features(*[7.5] * 7).replace(b"7.5", b"1e999"),
    "features beyond reason": with_features(*[1e308] * 7),
    "features that are words": with_features(*["1"] * 7),
    "features that are truths": with_features(*[True] * 7),
    "features that are null": with_features(*[None] * 7),
    "an empty id": changed(user_id=""),
    "an id of 201 characters": changed(user_id="x" * 201),
    "an id with a NUL": changed(user_id="a\0b"),
    "a number for an id": changed(user_id=7),
    "a request id with a NUL": changed(request_id="\0"),
    "a text of 5000 characters": changed(candidates=[{"id": "a", "text": "x" * 5000}]),
}


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("path", ["/score/egreedy", "/recommend"])
def test_a_body_that_cannot_be_used_is_unprocessable(service: TipService, path: str, body: str) -> None:
    """422 in the one shape, with a sentence."""
    status, said = raw(service, path, BODIES[body])
    assert (status, said["error"]["code"]) == (422, "bad_input"), said
    assert said["error"]["message"]


def a_number(name: str, number: str) -> bytes:
    return json.dumps(told("X", event="dwell", **{name: "Y"})).replace('"Y"', number).encode()


TOLD = {
    "nothing": b"",
    "an array": b"[1]",
    "no UTF-8": b'{"decision_id": "\xff", "reward_id": "r", "event": "completed"}',
    "half a character": b'{"decision_id": "\\ud800", "reward_id": "r", "event": "completed"}',
    "deep": b'{"decision_id":' + b"[" * 400_000,
    **{
        f"{name} of {number[:20]}": a_number(name, number)
        for name in ("reward", "dwell_s")
        for number in ("NaN", "Infinity", "-Infinity", "1e999", "-0.1", '"1"', "true", "[]", "9" * 400)
    },
    "reward of 1.1": json.dumps(told("X", reward=1.1)).encode(),
    "no event": b'{"decision_id": "X", "reward_id": "r"}',
    "no reward id": b'{"decision_id": "X", "event": "completed"}',
    "a word for an event": json.dumps(told("X", event="liked")).encode(),
    "dwell without seconds": json.dumps(told("X", event="dwell")).encode(),
}  # fmt: skip


@pytest.mark.parametrize("body", TOLD)
def test_a_reward_that_cannot_be_used_is_unprocessable_and_changes_nothing(
    service: TipService, body: str
) -> None:
    """422 for a decision that is there; the right reward is learned from afterwards."""
    made = service.score("egreedy", f"told {body[:50]}").json()["decision_id"]
    status, said = raw(service, "/reward", TOLD[body].replace(b'"X"', json.dumps(made).encode()))
    assert (status, said["error"]["code"]) == (422, "bad_input"), said
    assert service.reward(made).json()["learned"]


@pytest.mark.parametrize(
    "user", ["../../etc/passwd", "a'; DROP TABLE log; --", "é" * 200, "\u202e", "%00", "0"]
)
def test_any_text_is_a_user(service: TipService, user: str) -> None:
    """Ids are keys: never a path, never a statement."""
    assert service.reward(service.score("egreedy/v2", user)).json()["learned"]
    assert service.get("/stats/egreedy/v2", user_id=user)["rewards"] == 1


def test_the_last_of_two_equal_keys_counts(service: TipService) -> None:
    """As with most readers of JSON."""
    assert (
        raw(service, "/score/random", b'{"user_id": "first", ' + GOOD[1:].replace(b"guest", b"last"))[0]
        == 200
    )
    assert service.client.get("/stats/random?user_id=first").status_code == 404
    assert service.get("/stats/random", user_id="last")["decisions"] == 1


@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "application/x-www-form-urlencoded", ""])
def test_the_kind_of_a_body_is_not_asked(service: TipService, kind: str) -> None:
    """It is JSON or it is refused, whatever it is called: a hand-written call is understood."""
    status, said = raw(service, "/score/egreedy", GOOD, f"Content-Type: {kind}")
    assert (status, said["policy"]) == (200, "egreedy")


def test_extreme_features_never_break_a_policy(service: TipService) -> None:
    """A million, and next to nothing, in turn: every decision is one, and every reward is learned from."""
    rows = ([1e6] * 12, [-1e6, 1e6] * 6, [1e-300] * 12, [0.0] * 12, [1e6, *[1e-9] * 11])
    for route in SCORED:
        dims = 12 if route in {"egreedy/v2", "hybrid"} else 7
        tips = [{"id": str(place), "features": row[:dims]} for place, row in enumerate(rows)]
        for number in range(25):
            made = service.score(route, "extreme", candidates=tips, request_id=f"{route}{number}")
            assert made.status_code == 200, made.text
            assert service.reward(made, reward=number % 2).status_code == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE"])
@pytest.mark.parametrize("path", ["/score/hybrid", "/reward", "/recommend"])
def test_only_a_post_asks(service: TipService, method: str, path: str) -> None:
    """405, which names what to use; a HEAD has no body."""
    answer = sent(service, head(path, "Connection: close", method=method))
    assert answer.startswith(b"HTTP/1.1 405")
    assert b"allow: POST" in answer
    assert answer.endswith(b"\r\n\r\n") is (method == "HEAD")


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*pieces, b""])


@pytest.mark.parametrize("size", [1, 100, 10**6])
def test_a_body_in_pieces_is_put_together(service: TipService, size: int) -> None:
    """Chunks of any size."""
    start = head("/score/egreedy", "Connection: close", "Transfer-Encoding: chunked")
    status, said = parsed(sent(service, start, chunked(GOOD, size)))
    assert (status, said["policy"]) == (200, "egreedy")


def test_a_body_that_arrives_slowly_is_waited_for(service: TipService) -> None:
    """Byte by byte at its end, in as many segments."""
    start = head("/score/egreedy", "Connection: close", f"Content-Length: {len(GOOD)}")
    pieces = [GOOD[:-20], *(GOOD[at : at + 1] for at in range(len(GOOD) - 20, len(GOOD)))]
    assert parsed(sent(service, start, *pieces))[0] == 200


def test_more_than_a_megabyte_is_refused(service: TipService) -> None:
    """413 whether it is announced or comes in chunks; a megabyte to the byte is read."""
    assert raw(service, "/score/egreedy", GOOD + b" " * (MB - len(GOOD)))[0] == 200
    assert raw(service, "/score/egreedy", GOOD + b" " * (MB + 1 - len(GOOD)))[0] == 413
    start = head("/score/egreedy", "Connection: close", "Transfer-Encoding: chunked")
    status, said = parsed(sent(service, start, chunked(b" " * 3 * MB, 65536)))
    assert (status, said["error"]["code"]) == (413, "too_large")


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: -1",),
        ("Content-Length: x",),
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "X: \0"),
    ],
)
def test_what_is_no_http_is_a_bad_request(service: TipService, lines: tuple[str, ...]) -> None:
    """400, and the connection ends."""
    assert sent(service, head("/score/egreedy", *lines), GOOD).startswith(b"HTTP/1.1 400")


def test_requests_in_a_row_are_answered_in_their_order(service: TipService) -> None:
    """Thirty in one packet, good and bad ones, on one connection."""
    one = head("/score/egreedy", f"Content-Length: {len(GOOD)}") + GOOD
    bad = head("/score/egreedy", "Content-Length: 2") + b"{]"
    last = head("/reward", "Connection: close", "Content-Length: 0")
    answers = sent(service, (one + bad) * 15 + last)
    statuses = [int(part[:3]) for part in answers.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [200, 422] * 15 + [422]


@pytest.mark.parametrize("cut", [10, 60, -1])
def test_a_request_that_ends_half_way_harms_nobody(service: TipService, cut: int) -> None:
    """Closed or half closed, in its head or in its body: nothing is decided, others are served."""
    before = service.get("/stats/linucb")["decisions"]
    whole = head("/score/linucb", f"Content-Length: {len(GOOD) + 1}") + GOOD + b" "
    assert b"200 OK" not in sent(service, whole[:cut], half_closed=True)
    with socket.create_connection(("127.0.0.1", service.port), timeout=30) as waiting:
        waiting.sendall(whole[:cut])
        assert service.score("egreedy").status_code == 200
    assert service.get("/stats/linucb")["decisions"] == before


def test_many_half_sent_requests_keep_nobody_waiting(service: TipService) -> None:
    """A hundred that never go on; a hundred others are answered meanwhile."""
    whole = head("/score/egreedy", f"Content-Length: {len(GOOD)}") + GOOD
    waiting = [socket.create_connection(("127.0.0.1", service.port), timeout=30) for _ in range(100)]
    try:
        for connection in waiting:
            connection.sendall(whole[:-1])
        assert {service.score("egreedy").status_code for _ in range(100)} == {200}
        waiting[0].sendall(whole[-1:])
        assert waiting[0].recv(65536).startswith(b"HTTP/1.1 200")
    finally:
        for connection in waiting:
            connection.close()


ADDRESSES = ("/stats/egreedy?user_id=", f"/stats/egreedy?user_id={'x' * 201}", "/signals?after=x",
             "/signals?after=-1", "/signals?after=1e3", f"/signals?after={2**63}")  # fmt: skip
RESETS = (
    b"",
    b"[]",
    b"{",
    b'{"user_id": "\xff"}',
    b'{"user_id": "\\ud800"}',
    b'{"user_id": "\\u0000"}',
    b"[" * 99_999,
)


def refusals(service: TipService) -> Iterator[tuple[str, httpx.Response]]:
    for path in ADDRESSES:
        yield path, service.client.get(path)
    for body in RESETS:
        headers = {"Content-Type": "application/json"}
        yield repr(body[:20]), service.client.post("/reset", content=body, headers=headers)


def test_reports_and_resets_refuse_as_cleanly(service: TipService) -> None:
    """422 in the same shape for whatever they cannot use."""
    for what, answer in refusals(service):
        assert answer.status_code == 422, (what, answer.text)
        assert answer.json()["error"]["code"] == "bad_input", what


def test_odd_users_are_unknown(service: TipService) -> None:
    """An id of any characters has no decisions: 404. A NUL character cannot be stored: 422."""
    for user in ("%00", "%ff", "%F0%9F%98%80", "..%2F..", "%ED%A0%80"):
        status = service.client.get(f"/stats/egreedy?user_id=a{user}").status_code
        assert status == (422 if user == "%00" else 404), user
