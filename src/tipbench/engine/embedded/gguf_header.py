"""What a GGUF file says of itself, read without its weights and without trusting a byte of it."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, BinaryIO

from tipbench.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_LONGEST_ARRAY = 1024
_DEEPEST_ARRAY = 4
_MOST_ENTRIES = 10_000_000  # of anything; a damaged count must not keep us reading for minutes

# A tensor type's name, how many weights share a block, and how many bytes a block takes.
TENSOR_TYPES: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}

# What `general.file_type` stands for: the mix of tensor types a file was quantized to.
FILE_TYPES: Mapping[int, str] = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
}


@dataclass(frozen=True, kw_only=True)
class Tensor:
    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int

    @property
    def kind_name(self) -> str:
        return TENSOR_TYPES.get(self.kind, (str(self.kind), 1, 0))[0]

    @property
    def size(self) -> int:
        """Its bytes in the file; 0 for a type we do not know, which llama.cpp then judges."""
        _, block, bytes_each = TENSOR_TYPES.get(self.kind, ("", 1, 0))
        return prod(self.shape) * bytes_each // block


@dataclass(frozen=True, kw_only=True)
class GgufHeader:
    """Keys and tensors of a file. Arrays longer than were asked for are kept as None."""

    keys: Mapping[str, Any]
    tensors: tuple[Tensor, ...]

    @property
    def architecture(self) -> str:
        return str(self.keys["general.architecture"])

    @property
    def context_length(self) -> int:
        return int(self.keys[f"{self.architecture}.context_length"])

    @cached_property
    def parameters(self) -> int:
        """As the header states it, else counted: every element of every tensor."""
        stated = self.keys.get("general.parameter_count")
        if isinstance(stated, int) and stated > 0:
            return stated
        return sum(prod(tensor.shape) for tensor in self.tensors)

    @cached_property
    def quantization(self) -> str:
        """The file type's name, else that of the type most tensors have."""
        stated = self.keys.get("general.file_type")
        if isinstance(stated, int) and stated in FILE_TYPES:
            return FILE_TYPES[stated]
        kinds = Counter(tensor.kind_name for tensor in self.tensors if len(tensor.shape) > 1)
        return kinds.most_common(1)[0][0] if kinds else "unknown"

    @cached_property
    def weight_bytes(self) -> int:
        return sum(tensor.size for tensor in self.tensors)

    @cached_property
    def cache_bytes_per_token(self) -> int:
        """What one token of context takes in the attention cache, at two bytes a number."""
        layers = self._per_layer("block_count")[0]
        heads = max(1, *self._per_layer("attention.head_count"))
        width = self._per_layer("embedding_length")[0] // heads
        widths = sum(self._per_layer(f"attention.{part}_length")[0] or width for part in ("key", "value"))
        kv_heads = self._per_layer("attention.head_count_kv")
        return 2 * widths * (sum(kv_heads) if len(kv_heads) > 1 else layers * (kv_heads[0] or heads))

    def _per_layer(self, key: str) -> list[int]:
        """A number of the architecture, or one for each layer; 0 for what is not stated, or no number."""
        value = self.keys.get(f"{self.architecture}.{key}")
        values = value if isinstance(value, list) and value else [value]
        return [each if isinstance(each, int) else 0 for each in values]


class _Broken(Exception):
    """Why a file's bytes do not add up, without the file's name."""


def read_header(path: Path, *, longest_array: int = _LONGEST_ARRAY) -> GgufHeader:
    """The header of a model that llama.cpp could load; BadInput says in a sentence what is wrong with it."""
    try:
        with path.open("rb") as file:
            return _parse(_Bytes(file, size=path.stat().st_size), longest_array)
    except FileNotFoundError:
        raise BadInput(f"{path} is not there; give the path of a GGUF file") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    except _Broken as problem:
        raise BadInput(f"{path} {problem}") from None


class _Bytes:
    """The file, handed out piece by piece; nothing is read or skipped beyond its end."""

    def __init__(self, file: BinaryIO, *, size: int) -> None:
        self._file = file
        self._size = size
        self.at = 0

    @property
    def size(self) -> int:
        return self._size

    def take(self, count: int) -> bytes:
        self._advance(count)
        piece = self._file.read(count)
        if len(piece) < count:
            raise _Broken("became shorter while it was read; try again once it is written")
        return piece

    def skip(self, count: int) -> None:
        self._advance(count)
        self._file.seek(count, 1)

    def number(self, code: str) -> Any:  # noqa: ANN401 - the code decides the type
        return struct.unpack(f"<{code}", self.take(struct.calcsize(code)))[0]

    def text(self) -> str:
        return self.take(self.number("Q")).decode("utf-8", "replace")

    def _advance(self, count: int) -> None:
        self.at += count
        if self.at > self._size:
            raise _Broken("ends in the middle of its header: it is cut short or damaged; fetch it again")


def _parse(source: _Bytes, longest_array: int) -> GgufHeader:
    if source.size < 24 or source.take(4) != b"GGUF":
        raise _Broken("is not a GGUF file; give the path of a model in GGUF format")
    version = source.number("I")
    if version not in {2, 3}:
        raise _Broken(f"is GGUF version {version}; versions 2 and 3 (little-endian) can be read")
    n_tensors, n_keys = source.number("Q"), source.number("Q")
    keys = {}
    for _ in _entries(n_keys):
        name = source.text()
        keys[name] = _value(source, source.number("I"), longest_array)
    header = GgufHeader(keys=keys, tensors=tuple(_tensor(source) for _ in _entries(n_tensors)))
    _check(header, source)
    return header


def _value(source: _Bytes, kind: int, longest: int, depth: int = 0) -> Any:  # noqa: ANN401
    if kind in _SCALARS:
        return source.number(_SCALARS[kind])
    if kind == _STRING:
        return source.text()
    if kind == _ARRAY and depth < _DEEPEST_ARRAY:
        return _array(source, source.number("I"), source.number("Q"), longest, depth)
    raise _Broken(f"has a header value of unknown type {kind}: it is damaged, or newer than this reader")


def _array(source: _Bytes, kind: int, count: int, longest: int, depth: int) -> list[Any] | None:
    if count > longest:
        _skip(source, kind, count, longest, depth)
        return None
    return [_value(source, kind, longest, depth + 1) for _ in range(count)]


def _skip(source: _Bytes, kind: int, count: int, longest: int, depth: int) -> None:
    if kind in _SCALARS:
        source.skip(count * struct.calcsize(_SCALARS[kind]))
    elif kind == _STRING:
        for _ in _entries(count):
            source.skip(source.number("Q"))
    else:
        for _ in _entries(count):
            _value(source, kind, longest, depth + 1)


def _entries(count: int) -> range:
    if count > _MOST_ENTRIES:
        raise _Broken(f"claims {count} entries in its header: it is damaged; fetch it again")
    return range(count)


def _tensor(source: _Bytes) -> Tensor:
    name = source.text()
    n_dims = source.number("I")
    if n_dims > 8:
        raise _Broken(f"has a tensor of {n_dims} dimensions: it is damaged; fetch it again")
    shape = tuple(source.number("Q") for _ in range(n_dims))
    return Tensor(name=name, shape=shape, kind=source.number("I"), offset=source.number("Q"))


def _check(header: GgufHeader, source: _Bytes) -> None:
    """Refuse what would make llama.cpp fail without a word, or take the whole process down."""
    family = header.keys.get("general.architecture")
    if not isinstance(family, str) or not family:
        raise _Broken("names no architecture (general.architecture); it is no language model")
    if not header.tensors:
        raise _Broken("holds no tensors: it is a vocabulary, not a model")
    if header.keys.get("split.count", 0) not in {0, 1}:
        raise _Broken("is one part of a split model; merge the parts into one file first")
    context = header.keys.get(f"{family}.context_length")
    if not isinstance(context, int) or context < 1:
        raise _Broken(f"states no {family}.context_length; it is no language model that can be run")
    alignment = header.keys.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise _Broken(f"has a general.alignment of {alignment!r}: it is damaged; fetch it again")
    data = -(-source.at // alignment) * alignment
    needed = data + max(tensor.offset + tensor.size for tensor in header.tensors)
    if needed > source.size:
        raise _Broken(f"is cut short: it has {source.size} of {needed} bytes; fetch it again")
