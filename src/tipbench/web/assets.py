"""Style sheets and scripts. Their address holds a hash of them all, so that a browser may keep them for ever.

The report's own style sheet is among them: pages and reports look alike.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from fastapi import APIRouter, Response

from tipbench.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_FOR_EVER = "public, max-age=31536000, immutable"

router = APIRouter(include_in_schema=False)


@cache
def contents() -> Mapping[str, bytes]:
    """Every file by its name."""
    return dict(_read())


def _read() -> Iterator[tuple[str, bytes]]:
    for file in files("tipbench.web").joinpath("static").iterdir():
        if _ending(file.name) in TYPES:
            yield file.name, file.read_bytes()
    yield "report.css", files("tipbench.compare").joinpath("report.css").read_bytes()


@cache
def version() -> str:
    """Changes with any of the files. A script's imports are relative, and so follow it."""
    every = hashlib.sha256()
    for name, content in sorted(contents().items()):
        every.update(name.encode() + b"\0" + content)
    return every.hexdigest()[:12]


def address(name: str) -> str:
    """Where a page finds a file; KeyError for one that is not there."""
    assert name in contents(), name  # noqa: S101 - a template that names no file is our own mistake
    return f"/static/{version()}/{name}"


@router.api_route("/static/{asked}/{name}", methods=["GET", "HEAD"])
def static(asked: str, name: str) -> Response:
    """A file; one asked for under an older hash is sent as it is now, and not kept."""
    content = contents().get(name)
    if content is None:
        raise NotFound(f"there is no file {name!r} here")
    kept = _FOR_EVER if asked == version() else "no-cache"
    return Response(content, media_type=TYPES[_ending(name)], headers={"cache-control": kept})


def _ending(name: str) -> str:
    return f".{name.rpartition('.')[2]}"
