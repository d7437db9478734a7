from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import gguf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_gguf import CONTEXT_LENGTH, write_tiny_gguf
from tipbench.engine.embedded.gguf_header import FILE_TYPES, TENSOR_TYPES, read_header
from tipbench.errors import BadInput

if TYPE_CHECKING:
    from pathlib import Path

HEADER_BYTES = 6000


def sentence(path: Path) -> str:
    with pytest.raises(BadInput) as caught:
        read_header(path)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert "\n" not in text
    return text


def test_the_tiny_model_is_read(tiny: Path) -> None:
    """Architecture, context, size and quantization come out of the header alone."""
    header = read_header(tiny)
    assert header.architecture == "llama"
    assert header.context_length == CONTEXT_LENGTH
    assert header.parameters == 1_053_568
    assert header.quantization == "F16"
    assert header.weight_bytes <= tiny.stat().st_size


def test_a_real_model_is_read(smollm2: Path) -> None:
    """SmolLM2's header, with a vocabulary of 49,152, gives the numbers its makers publish."""
    header = read_header(smollm2)
    assert header.parameters == 134_515_008
    assert (header.quantization, header.context_length) == ("Q4_1", 8192)
    assert header.cache_bytes_per_token == 30 * 3 * (64 + 64) * 2


def test_long_arrays_are_read_only_when_asked_for(smollm2: Path) -> None:
    """The vocabulary is skipped by default, and whole when a reader wants it."""
    key = "tokenizer.ggml.tokens"
    assert read_header(smollm2).keys[key] is None
    tokens = read_header(smollm2, longest_array=1 << 30).keys[key]
    assert len(tokens) == 49_152
    assert tokens[1] == "<|im_start|>"


def test_the_tables_agree_with_the_format_s_own_package() -> None:
    """Every tensor type and file type we know has the name and the sizes that the gguf package gives it."""
    for kind, (name, block, size) in TENSOR_TYPES.items():
        official = gguf.GGMLQuantizationType(kind)
        assert (official.name, gguf.GGML_QUANT_SIZES[official]) == (name, (block, size))
    for kind, name in FILE_TYPES.items():
        assert gguf.LlamaFileType(kind).name in {f"MOSTLY_{name}", f"ALL_{name}"}


@pytest.mark.parametrize("keep", [0, 3, 4, 23, 24, 40, 200, 1000, 4000, 6000, 100_000, -1])
def test_a_cut_file_is_named_as_such(tiny: Path, tmp_path: Path, keep: int) -> None:
    """Wherever a download broke off, one sentence names the file and what to do."""
    path = tmp_path / "cut.gguf"
    path.write_bytes(tiny.read_bytes()[:keep])
    assert "fetch it again" in sentence(path) or "is not a GGUF file" in sentence(path)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    """A missing file, a folder and some other file each get their own sentence."""
    assert "is not there" in sentence(tmp_path / "nothing.gguf")
    assert "cannot be read" in sentence(tmp_path)
    text = tmp_path / "readme.gguf"
    text.write_text("# a model\n" * 10)
    assert "is not a GGUF file" in sentence(text)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (b"GGUF\x03\0\0\0", b"GGUF\0\0\0\x03", "GGUF version"),
        (b"llama.context_length", b"llama.context_lenGTH", "context_length"),
        (b"general.architecture", b"general.architectURE", "architecture"),
    ],
)
def test_a_header_llama_cpp_would_die_of_is_refused(
    tiny: Path, tmp_path: Path, old: bytes, new: bytes, complaint: str
) -> None:
    """Files that are whole but cannot be run are found out before llama.cpp sees them."""
    path = tmp_path / "odd.gguf"
    path.write_bytes(tiny.read_bytes().replace(old, new))
    assert complaint in sentence(path)


def test_a_count_beyond_reason_is_refused_at_once(tmp_path: Path) -> None:
    """A damaged count of tensors does not keep the reader busy."""
    path = tmp_path / "many.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0) + bytes(1000))
    assert "damaged" in sentence(path)


@settings(max_examples=150)
@given(
    changes=st.lists(st.tuples(st.integers(4, HEADER_BYTES), st.integers(0, 255)), min_size=1, max_size=20)
)
def test_no_damage_gets_past_the_reader(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]
) -> None:
    """Whatever bytes are wrong, the header is either read or refused; nothing else comes out."""
    folder = tmp_path_factory.getbasetemp()
    whole = folder / "whole.gguf"
    if not whole.exists():
        write_tiny_gguf(whole)
    damaged = bytearray(whole.read_bytes())
    for at, value in changes:
        damaged[at] = value
    path = folder / "damaged.gguf"
    path.write_bytes(damaged)
    try:
        header = read_header(path)
    except BadInput:
        return
    assert isinstance(header.parameters, int)
    assert isinstance(header.quantization, str)
    assert header.cache_bytes_per_token >= 0
