"""Bodies that are read as they are: a judge's file, plain or as a form's upload."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from tipbench.errors import BadInput
from tipbench.judge.filled_file import LARGEST_BYTES
from tipbench.workflows.access import NotAllowed

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
