from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pytest

from tiny_gguf import write_tiny_gguf
from tipbench.engine.embedded.catalog import Catalog, full_name, human_count, is_name, show
from tipbench.errors import BadInput

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("qwen", "qwen:latest"),
        ("qwen:0.5b", "qwen:0.5b"),
        ("me/qwen", "me/qwen:latest"),
        ("library/qwen:1b", "qwen:1b"),
        ("registry.ollama.ai/library/qwen", "qwen:latest"),
        (" qwen ", "qwen:latest"),
    ],
)
def test_names_are_completed_as_ollama_does(name: str, full: str) -> None:
    """A name without a tag means `latest`, and the default registry and owner go without saying."""
    assert full_name(name) == full


@pytest.mark.parametrize("name", ["a", "a:b", "me/a:b", "qwen2.5:0.5b-instruct_q4"])
def test_good_names_are_taken(name: str) -> None:
    """Names as Ollama's library has them are names."""
    assert is_name(name)


@pytest.mark.parametrize("name", ["", "a b", ":b", "a:", "-a", "a/b/c", "a=b", "../a", "a:b:c", "a\n"])
def test_bad_names_are_not(name: str) -> None:
    """What would break a URL, an option or a listing is no name."""
    assert not is_name(name)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (134_515_008, "134.52M"),
        (3_212_749_888, "3.2B"),
        (4_000_000_000, "4B"),
        (7_000_000, "7M"),
        (1500, "2K"),
        (12, "12"),
    ],
)
def test_sizes_are_written_as_ollama_writes_them(count: int, text: str) -> None:
    """Two decimals for millions, one for billions, none for whole numbers."""
    assert human_count(count) == text


def test_a_model_is_found_under_all_its_names(tiny: Path) -> None:
    """Case and a missing tag do not matter; another tag does."""
    catalog = Catalog({"Tiny": tiny})
    found = catalog.find("tiny:latest")
    assert found is not None
    assert found.name == "Tiny:latest"
    assert catalog.find("TINY") == found
    assert catalog.find("tiny:1b") is None


def test_the_digest_is_the_file_s_own(tmp_path: Path) -> None:
    """The digest is the SHA-256 of the bytes, and follows the file when it is replaced."""
    path = write_tiny_gguf(tmp_path / "model.gguf", seed=1)
    catalog = Catalog({"model": path})
    digests = []
    for seed in (1, 2):
        write_tiny_gguf(path, seed=seed)
        entry = catalog.find("model")
        assert entry is not None
        digests.append(catalog.digest(entry))
        assert digests[-1] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert digests[0] != digests[1]


def test_a_file_that_went_away_is_no_longer_offered(tiny: Path, tmp_path: Path) -> None:
    """A removed file is not found, a damaged one is not listed and its fault is named; the others stay."""
    gone, broken = tmp_path / "gone.gguf", tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF but not really, just some text")
    catalog = Catalog({"tiny": tiny, "gone": gone, "broken": broken})
    assert [entry.name for entry in catalog.entries()] == ["tiny:latest"]
    assert catalog.find("gone") is None
    with pytest.raises(BadInput, match="GGUF version"):
        catalog.find("broken")


def test_two_models_of_one_name_are_refused(tiny: Path, other: Path) -> None:
    """`a` and `a:latest` are the same name, so that one of them would never be served."""
    with pytest.raises(BadInput, match="one name"):
        Catalog({"a": tiny, "A:latest": other})


def test_show_is_valid_json_even_for_odd_headers(smollm2: Path) -> None:
    """Long arrays are left out unless asked for, and what is shown can always be sent."""
    entry = Catalog({"m": smollm2}).find("m")
    assert entry is not None
    brief, full = show(entry, verbose=False), show(entry, verbose=True)
    json.dumps(brief, allow_nan=False)
    assert brief["model_info"]["tokenizer.ggml.tokens"] is None
    assert len(full["model_info"]["tokenizer.ggml.tokens"]) == 49_152
    assert brief["model_info"]["general.parameter_count"] == 134_515_008
    assert "im_start" in brief["template"]
