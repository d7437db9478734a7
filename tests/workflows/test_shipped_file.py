"""The file that says what is shipped: whole, durable, and never half believed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from shipped_world import filed
from tipbench.errors import StoreUnusable
from tipbench.workflows.shipped_file import FILE, read_filed, write_filed

if TYPE_CHECKING:
    from pathlib import Path


def test_it_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    """Into a folder that was not there, over an earlier one, with nothing left beside it."""
    folder = tmp_path / "a" / "home"
    write_filed(folder, filed(mean=None, low=None, replaces=None, ground=None))
    given = filed(model="qwen/\udc80 ünï:1b")
    write_filed(folder, given)
    assert read_filed(folder) == given
    assert [path.name for path in folder.iterdir()] == [FILE]


def test_no_file_is_nothing_shipped(tmp_path: Path) -> None:
    """Also where there is no home yet."""
    assert read_filed(tmp_path) is None
    assert read_filed(tmp_path / "not there") is None


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b"null", b'{"format": 2}', b'{"format": 1}', b"\xff", b"[" * 100_000, b"\x00" * 500],
    ids=["empty", "torn", "list", "null", "newer", "bare", "bytes", "deep", "zeros"],
)
def test_a_damaged_file_is_named(tmp_path: Path, raw: bytes) -> None:
    """With what to do about it."""
    (tmp_path / FILE).write_bytes(raw)
    with pytest.raises(StoreUnusable, match="is damaged") as refusal:
        read_filed(tmp_path)
    assert str(tmp_path / FILE) in str(refusal.value)
    assert "`tipbench ship --status --suite SUITE`" in str(refusal.value)


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("shipped", "version", "1"),
        ("shipped", "model", None),
        ("shipped", "mean", "high"),
        ("shipped", "n_tips", True),
        ("shipped", "cautions", "no"),
        ("shipped", "sampling", {"temperature": 1}),
        ("shipped", "more", 1),
        ("", "suite", 1),
        ("", "kinds", [{"id": "x"}]),
        ("", "kinds", None),
    ],
)
def test_a_value_of_the_wrong_kind_is_damage(tmp_path: Path, part: str, name: str, value: object) -> None:
    """What somebody's editor did to it does not reach the app."""
    write_filed(tmp_path, filed())
    held: dict[str, Any] = json.loads((tmp_path / FILE).read_text())
    (held[part] if part else held)[name] = value
    (tmp_path / FILE).write_text(json.dumps(held))
    with pytest.raises(StoreUnusable):
        read_filed(tmp_path)


def test_a_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """A record without a label is named by its model and its prompt."""
    write_filed(tmp_path, filed(label="tiny:latest · v1 · t=0.2"))
    held: dict[str, Any] = json.loads((tmp_path / FILE).read_text())
    del held["shipped"]["label"]
    (tmp_path / FILE).write_text(json.dumps(held))
    assert read_filed(tmp_path) == filed()
    assert filed().shipped.combination == "tiny:latest with v1"


def test_a_file_out_of_reach_is_named(tmp_path: Path) -> None:
    """A folder in its place, and a home that is a file, are told apart from nothing shipped."""
    (tmp_path / FILE).mkdir()
    with pytest.raises(StoreUnusable, match="cannot be read"):
        read_filed(tmp_path)
    (tmp_path / "home").write_text("")
    with pytest.raises(StoreUnusable, match="cannot be written"):
        write_filed(tmp_path / "home", replace(filed()))
