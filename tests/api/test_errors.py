"""The one shape of errors, and what never gets out with them."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi.exceptions import RequestValidationError
from starlette.requests import ClientDisconnect

from tipbench import errors
from tipbench.api.errors import BadFields, error_response
from tipbench.workflows.access import NotAllowed
from web_world import serving

if TYPE_CHECKING:
    from api_world import Api
    from judged_world import World


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.BadInput("x"), 422, "bad_input"),
        (errors.BadSetting("n_tips", "x"), 422, "bad_setting"),
        (errors.ModelRefused("x"), 422, "model_refused"),
        (errors.PinConflict("x"), 422, "bad_input"),
        (errors.NotFound("x"), 404, "not_found"),
        (errors.HostBusy("x"), 409, "host_busy"),
        (errors.CheckFailed("x"), 409, "rejected"),
        (errors.LedgerUnreachable("x"), 503, "unavailable"),
        (errors.EngineUnreachable("x"), 503, "unavailable"),
        (errors.EngineFailure("x", retryable=False), 503, "engine_failure"),
        (errors.TipbenchError("x"), 500, "internal"),
        (NotAllowed("x", status=401), 401, "unauthenticated"),
        (NotAllowed("x", status=403), 403, "forbidden"),
        (NotAllowed("x", status=429, retry_after_s=60), 429, "too_many_requests"),
        (ValueError("x"), 500, "internal"),
    ],
)
def test_an_error_has_its_status(error: Exception, status: int, code: str) -> None:
    """Every class of error is one status and one code, told in the same shape."""
    answer = error_response(error)
    assert answer.status_code == status
    assert f'"code":"{code}"'.encode() in answer.body


def test_what_nobody_foresaw_is_not_told() -> None:
    """Neither the message nor the class of an unforeseen error is in the answer."""
    body = error_response(ValueError("password is hunter2")).body
    assert b"hunter2" not in body
    assert b"ValueError" not in body


def test_a_request_that_was_not_sent_whole_is_no_failure_of_ours() -> None:
    """Somebody who hangs up is answered, if at all, in the one shape; nothing went wrong in the service."""
    assert error_response(ClientDisconnect()).status_code == 400


def test_half_an_upload_changes_nothing_and_leaves_no_trace_in_the_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A connection that breaks off in the middle of a file, plain or as a form."""
    with serving(world) as site:
        port = urlsplit(site.url).port or 0
        for kind in ("application/json", "multipart/form-data; boundary=x"):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as half:
                token = site.api.tokens["ann"]
                half.sendall(
                    f"POST /api/judge/apply HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
                    f"Content-Type: {kind}\r\nContent-Length: 1000\r\n\r\n--x\r\n".encode()
                )
        assert httpx.get(f"{site.url}/health").status_code == 200
    assert not [one for one in caplog.records if one.exc_info]


def test_fields_are_named() -> None:
    """Each wrong field has its own message."""
    assert b'"fields":{"a":"1","b":"2"}' in error_response(BadFields({"a": "1", "b": "2"})).body
    assert b'"fields":{"n_tips":"x"}' in error_response(errors.BadSetting("n_tips", "x")).body


def test_what_cannot_be_written_is_escaped() -> None:
    """Half a character, repeated in a message, is written out rather than failing to be sent."""
    wrong = [{"loc": ("body", "\ud800"), "type": "extra_forbidden", "msg": ""}]
    assert b"\\ud800" in bytes(error_response(RequestValidationError(wrong)).body)
    assert error_response(errors.NotFound("\ud800")).status_code == 404


def test_waiting_is_told_in_a_header() -> None:
    """Who is turned away for a while is told for how long."""
    assert error_response(NotAllowed("x", status=429, retry_after_s=60)).headers["retry-after"] == "60"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/nope", 404),
        ("GET", "/api", 404),
        ("PATCH", "/api/me", 405),
        ("GET", "/api/bench/run", 405),
    ],
)
def test_what_is_not_there_is_told_in_the_same_shape(api: Api, method: str, path: str, status: int) -> None:
    """Unknown addresses and methods under /api are JSON like everything else."""
    answer = api.admin.request(method, path)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"code", "message"}


def test_a_failure_inside_is_told_without_a_trace(api: Api) -> None:
    """500 in the one shape; what broke is not in it."""

    @api.app.get("/api/broken")
    def broken() -> None:
        raise RuntimeError("hunter2")

    client = api.caller(None, raise_server_exceptions=False)
    answer = client.get("/api/broken")
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal"
    assert "hunter2" not in answer.text
