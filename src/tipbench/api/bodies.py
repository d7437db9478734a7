"""Request bodies that FastAPI does not parse: judge files, and the JSON of the serving routes."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Collection, Mapping
from typing import Any, Generic, TypeVar

import msgspec
from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from tipbench.api.errors import BadFields
from tipbench.bandit.asked import Candidate, Context
from tipbench.bandit.given import RANGES
from tipbench.errors import BadInput
from tipbench.judge.filled_file import LARGEST_BYTES
from tipbench.suite.problems import did_you_mean, listed
from tipbench.workflows.access import NotAllowed

Body = TypeVar("Body", bound=msgspec.Struct)

LARGEST_TIP_BODY = 1_000_000

_FORM_BYTES = 100_000
_FIELD = "file"
_JUDGE_FILE = {"type": "object", "description": "a judge's file, filled in"}

# What the OpenAPI says of such a body.
FILE = {"requestBody": {"required": True, "content": {"application/json": {"schema": _JUDGE_FILE}}}}
FILE_OR_FORM: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": _JUDGE_FILE},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {_FIELD: {"type": "string", "format": "binary"}},
                    "required": [_FIELD],
                }
            },
        },
    }
}


async def raw_body(request: Request, *, most: int = LARGEST_BYTES) -> bytes:
    """The body; one that is too large is refused before it is in memory."""
    return b"".join([chunk async for chunk in _bounded(request, most)])


async def uploaded_file(request: Request) -> bytes:
    """The judge's file in a request: its body, or the file of a form."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        return await raw_body(request)
    stream = _bounded(request, LARGEST_BYTES + _FORM_BYTES)
    try:
        form = await MultiPartParser(request.headers, stream, max_files=1, max_fields=10).parse()
    except (MultiPartException, KeyError) as error:
        raise BadInput(f"the form cannot be read ({error})") from None
    try:
        file = form.get(_FIELD)
        if not isinstance(file, UploadFile):
            raise BadInput(f"the form has no file under the name {_FIELD!r}")
        return await file.read()
    finally:
        await form.close()


async def _bounded(request: Request, most: int) -> AsyncGenerator[bytes, None]:
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise NotAllowed(f"a judge's file has at most {LARGEST_BYTES // 1_000_000} MB", status=413)
        yield chunk


async def tip_body(receive: Receive) -> bytes:
    """The body of a request to a serving route. NotAllowed with status 413 if it is too large."""
    message = await _received(receive)
    if not message["more_body"]:
        _check_size(message["body"])
        return bytes(message["body"])
    parts = bytearray(message["body"])
    while message["more_body"]:
        message = await _received(receive)
        parts += message["body"]
        _check_size(parts)
    return bytes(parts)


async def _received(receive: Receive) -> Mapping[str, Any]:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return {"body": b"", "more_body": False, **message}


def _check_size(body: bytes | bytearray) -> None:
    if len(body) > LARGEST_TIP_BODY:
        raise NotAllowed(
            f"the body of this request may have {LARGEST_TIP_BODY // 1_000_000} MB at most", status=413
        )


class JsonBody(Generic[Body]):
    """Decodes JSON into a struct of this kind, whatever the Content-Type is."""

    def __init__(self, kind: type[Body]) -> None:
        self._kind = kind
        self._decode = msgspec.json.Decoder(kind).decode

    def read(self, body: bytes) -> Body:
        """The body as a struct. BadFields names the place of the first mistake."""
        try:
            return self._decode(body)
        except RecursionError:
            raise BadFields({"body": "is nested too deeply"}) from None
        except UnicodeDecodeError:
            raise BadFields({"body": "is not UTF-8"}) from None
        except msgspec.MsgspecError as error:
            raise BadFields(_mistake(str(error), self._kind)) from None


_UNKNOWN_KEY = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$\.?([^`]*)`)?", re.DOTALL)
_LONGEST_KEY = 100


def _mistake(sentence: str, kind: type[msgspec.Struct]) -> dict[str, str]:
    """The field with the mistake, and the message. msgspec ends its sentence with the place."""
    unknown = _UNKNOWN_KEY.fullmatch(sentence)
    if unknown:
        key, place = unknown[1][:_LONGEST_KEY], unknown[2] or ""
        return {f"{place}.{key}" if place else key: f"unknown key; {_hint(key, place, kind)}"}
    problem, _, place = sentence.partition(" - at `$")
    return {place.rstrip("`").lstrip(".") or "body": problem}


def _hint(key: str, place: str, kind: type[msgspec.Struct]) -> str:
    top = kind.__struct_fields__
    homes: dict[str, Collection[str]] = {"context": Context.__struct_fields__, "profile_features": RANGES}
    for home, keys in homes.items():
        if home != place and home in top and key in keys:
            return f'it belongs in {home!r}: send "{home}": {{"{key}": …}}'
    if place and key in top:
        return f"it belongs at the top level of the body, not in {place!r}"
    known = homes.get(place, Candidate.__struct_fields__ if place else top)
    return did_you_mean(key, known).removeprefix("; ") or f"the keys here are {listed(known)}"
