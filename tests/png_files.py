"""Pictures made lighter without changing a pixel: a browser packs them in haste."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = b"\x89PNG\r\n\x1a\n"
_RGB = (8, 2, 0, 0, 0)
_PIXEL = 3


def size_of(png: bytes) -> tuple[int, int]:
    """Width and height; an AssertionError for what is no PNG."""
    assert png.startswith(_HEAD)
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def lighter(png: bytes) -> bytes:
    """The same picture of plain colours, where neighbours that are alike are packed best as they are."""
    width, height = size_of(png)
    assert struct.unpack(">5B", png[24:29]) == _RGB, "only pictures of 24 bits, as browsers take them"
    data = zlib.decompress(b"".join(body for kind, body in _chunks(png) if kind == b"IDAT"))
    plain = b"".join(b"\0" + row for row in _rows(data, 1 + _PIXEL * width))
    head = _chunk(b"IHDR", struct.pack(">II5B", width, height, *_RGB))
    return _HEAD + head + _chunk(b"IDAT", zlib.compress(plain, 9)) + _chunk(b"IEND", b"")


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_HEAD)
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        at += 12 + length


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _rows(data: bytes, stride: int) -> Iterator[bytes]:
    """Rows without the filters that they were written with."""
    above = bytes(stride - 1)
    for start in range(0, len(data), stride):
        row = bytearray(data[start + 1 : start + stride])
        if data[start]:
            _unfilter(data[start], row, above)
        above = bytes(row)
        yield above


def _unfilter(how: int, row: bytearray, above: bytes) -> None:
    for at, value in enumerate(row):
        left, corner = (row[at - _PIXEL], above[at - _PIXEL]) if at >= _PIXEL else (0, 0)
        row[at] = (value + _expected(how, left, above[at], corner)) & 255


def _expected(how: int, left: int, up: int, corner: int) -> int:
    if how < 4:
        return (0, left, up, (left + up) // 2)[how]
    likely = left + up - corner
    return min((left, up, corner), key=lambda one: abs(likely - one))
