"""A ridge as bytes and back, exactly: a damaged one is named, never read as something else.

Layout, little endian: magic, version, dimensions, then float64: observations, the upper triangle of the
inverse row by row, moment, weights; at the end the CRC32 of all before it.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from tipbench.bandit.ridge import Ridge
from tipbench.errors import BadState

if TYPE_CHECKING:
    from tipbench.bandit.ridge import Array

_MAGIC = b"TBR"
_VERSION = 1
_HEAD = struct.Struct("<3sBH2x")
_TAIL = struct.Struct("<I")


def encode_ridge(ridge: Ridge) -> bytes:
    """One model as bytes: the same model always gives the same ones."""
    if ridge.moment.ndim != 1:
        raise ValueError(f"one model is encoded at a time, not an array of shape {ridge.moment.shape[:-1]}")
    return encode_ridges(ridge.at(None))[0]


def encode_ridges(ridges: Ridge) -> list[bytes]:
    """Models side by side, each as its own bytes."""
    dims, many = ridges.dims, len(ridges.moment)
    numbers = np.empty((many, _numbers(dims)), dtype="<f8")
    numbers[:, 0] = ridges.seen
    numbers[:, 1 : -2 * dims] = ridges.inverse.reshape(many, -1).take(_upper(dims), axis=1)
    numbers[:, -2 * dims : -dims] = ridges.moment
    numbers[:, -dims:] = ridges.weights
    head = _HEAD.pack(_MAGIC, _VERSION, dims)
    bodies = (head + row.tobytes() for row in numbers)
    return [body + _TAIL.pack(crc32(body)) for body in bodies]


def decode_ridge(data: bytes, *, dims: int, what: str) -> Ridge:
    """The model that was encoded, or a BadState that names it as `what`."""
    _check(data, dims, what)
    numbers = np.frombuffer(data, dtype="<f8", count=_numbers(dims), offset=_HEAD.size).astype(np.float64)
    if not np.isfinite(numbers).all() or numbers[0] < 0.0:
        raise BadState(what, "it holds a number that is not finite, or a count below 0")
    return Ridge(
        inverse=numbers[1 : -2 * dims].take(_square(dims)),
        moment=numbers[-2 * dims : -dims],
        weights=numbers[-dims:],
        seen=numbers[0:1].reshape(()),
    )


def _check(data: bytes, dims: int, what: str) -> None:
    if len(data) < _HEAD.size + _TAIL.size:
        raise BadState(what, "it is cut short")
    magic, version, found = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise BadState(what, "it is not what a policy has learned")
    if version != _VERSION:
        raise BadState(what, f"it is of version {version}, and this release reads version {_VERSION}")
    if crc32(memoryview(data)[: -_TAIL.size]) != _TAIL.unpack_from(data, len(data) - _TAIL.size)[0]:
        raise BadState(what, "its checksum is wrong")
    if found != dims:
        raise BadState(what, f"it has {found} dimensions, and {dims} are needed")
    if len(data) != _HEAD.size + 8 * _numbers(dims) + _TAIL.size:
        raise BadState(what, f"it has {len(data)} bytes, which {dims} dimensions do not take")


def _numbers(dims: int) -> int:
    return 1 + dims * (dims + 1) // 2 + 2 * dims


@lru_cache(maxsize=16)
def _upper(dims: int) -> Array:
    """Places of the upper triangle in the flattened square."""
    rows, columns = np.triu_indices(dims)
    places: Array = rows * dims + columns
    return places


@lru_cache(maxsize=16)
def _square(dims: int) -> Array:
    """For every place of the square, where its value is in the packed triangle."""
    square = np.empty((dims, dims), dtype=np.intp)
    rows, columns = np.triu_indices(dims)
    square[rows, columns] = square[columns, rows] = np.arange(len(rows))
    return square
