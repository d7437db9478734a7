"""Errors as the API tells them: one JSON shape for all, and which status each of them is.

{"error": {"code": "bad_setting", "message": "one sentence", "fields": {"n_tips": "what is wrong"}}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from tipbench.errors import (
    BadInput,
    BadSetting,
    CheckFailed,
    Conflict,
    EngineFailure,
    HostBusy,
    Interrupted,
    ModelRefused,
    NotFound,
    SuiteError,
    TipbenchError,
    Unavailable,
)
from tipbench.text import plain_problem
from tipbench.workflows.access import NotAllowed
from tipbench.workflows.judge_replies import BatchClosed
from tipbench.workflows.judging_room import WrongAnswer

# The first class that an error is one of decides.
_STATUS: tuple[tuple[type[TipbenchError], int, str], ...] = (
    (NotFound, 404, "not_found"),
    (Conflict, 409, "conflict"),
    (BadSetting, 422, "bad_setting"),
    (ModelRefused, 422, "model_refused"),
    (BadInput, 422, "bad_input"),
    (HostBusy, 409, "host_busy"),
    (BatchClosed, 409, "closed"),
    (CheckFailed, 409, "rejected"),
    (Unavailable, 503, "unavailable"),
    (Interrupted, 503, "unavailable"),
    (EngineFailure, 503, "engine_failure"),
)
_CODES = {
    400: "bad_request",
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "too_large",
    415: "unsupported_media_type",
    421: "unknown_host",
    422: "bad_input",
    429: "too_many_requests",
    431: "headers_too_large",
}
_SENTENCES = {
    "missing": "is missing",
    "extra_forbidden": "there is no such field",
    "json_invalid": "the body is not JSON",
    "model_attributes_type": "send a JSON object, with Content-Type: application/json",
}
_LONGEST = 2000


class Problem(BaseModel):
    """What went wrong. `fields` has a message for each field that is wrong, where fields are."""

    code: str = Field(examples=["bad_setting"])
    message: str
    fields: dict[str, str] | None = None


class ErrorAnswer(BaseModel):
    """The body of every answer that is an error."""

    error: Problem


class BadFields(BadInput):
    """Several fields of one request that are wrong, each with its own message."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {message}" for name, message in fields.items()))
        self.fields = dict(fields)


class ErrorResponse(JSONResponse):
    """What a message repeats of a request may be no text that UTF-8 can carry, so all of it is ASCII."""

    def render(self, content: object) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode("ascii")


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For the OpenAPI: these statuses carry an error in the one shape."""
    return {status: {"model": ErrorAnswer} for status in (401, 403, *statuses)}


def error_response(error: Exception) -> ErrorResponse:
    """The answer to any error. One that nobody foresaw says nothing of what it was."""
    if isinstance(error, RequestValidationError):
        return _invalid(error.errors())
    if isinstance(error, NotAllowed):
        return _refused(error)
    if isinstance(error, ClientDisconnect):
        return _answer(400, "bad_request", "the request ended before all of it was sent")
    if isinstance(error, HTTPException):
        return _of_http(error)
    if isinstance(error, TipbenchError):
        return _told(error)
    return _answer(500, "internal", "something went wrong in the service; its log says what")


def _of_http(error: HTTPException) -> ErrorResponse:
    if error.status_code == 400:
        return _answer(422, "bad_input", "the body cannot be read as JSON", fields={"body": "is not JSON"})
    code = _CODES.get(error.status_code, "error")
    return _answer(error.status_code, code, str(error.detail), headers=error.headers)


def _told(error: TipbenchError) -> ErrorResponse:
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            return _answer(status, code, str(error), fields=_fields(error))
    return _answer(500, "internal", str(error))


def _fields(error: TipbenchError) -> Mapping[str, str] | None:
    """Which field of a request an error is about, where it is about one."""
    if isinstance(error, (BadFields, WrongAnswer)):
        return error.fields
    if isinstance(error, BadSetting):
        return {error.name: error.message}
    if isinstance(error, ModelRefused):
        return {"models": str(error)}
    if isinstance(error, SuiteError):
        return {"suite": str(error)}
    return None


def _refused(refusal: NotAllowed) -> ErrorResponse:
    headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {}
    if refusal.retry_after_s is not None:
        headers["Retry-After"] = str(refusal.retry_after_s)
    return _answer(refusal.status, _CODES.get(refusal.status, "refused"), str(refusal), headers=headers)


def _invalid(problems: Sequence[Any]) -> ErrorResponse:
    fields: dict[str, str] = {}
    for problem in problems:
        name = ".".join(str(part) for part in problem["loc"][1:]) or str(problem["loc"][0])
        name = "body" if problem["type"] == "json_invalid" else name[:100]
        fields.setdefault(name, _SENTENCES.get(problem["type"], plain_problem(problem["msg"])))
    message = "; ".join(f"{name}: {sentence}" for name, sentence in list(fields.items())[:10])
    return _answer(422, "bad_input", message, fields=fields)


def _answer(
    status: int,
    code: str,
    message: str,
    *,
    fields: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> ErrorResponse:
    error: dict[str, Any] = {"code": code, "message": message[:_LONGEST]}
    if fields is not None:
        error["fields"] = {name: text[:_LONGEST] for name, text in fields.items()}
    return ErrorResponse({"error": error}, status_code=status, headers=headers)


def handle_errors(app: FastAPI) -> None:
    """Let every error of the application be told in the one shape."""
    for kind in (TipbenchError, RequestValidationError, HTTPException, ClientDisconnect, Exception):
        app.add_exception_handler(kind, _handler)


def _handler(_request: Request, error: Exception) -> ErrorResponse:
    return error_response(error)
