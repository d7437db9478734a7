from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tipbench.errors import SuiteError
from tipbench.suite import check_suite, load_suite, new_suite

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("name", "suite_id"),
    [("my-suite", "my-suite"), ("My Suite!", "my-suite"), ("a/b/c", "c"), ("v1.2", "v1.2")],
)
def test_a_new_suite_works_at_once(tmp_path: Path, name: str, suite_id: str) -> None:
    """What is written loads, passes its own check without a warning, and is called like its folder."""
    written = new_suite(tmp_path / name)
    assert all(path.is_file() for path in written)
    assert check_suite(tmp_path / name) == []
    assert load_suite(tmp_path / name).id == suite_id


def test_nothing_else_is_left_behind(tmp_path: Path) -> None:
    """The folder holds the files that were named, and its parent nothing but the folder."""
    written = new_suite(tmp_path / "mine")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert sorted(path for path in (tmp_path / "mine").rglob("*") if path.is_file()) == sorted(written)


def test_permissions_are_the_usual_ones(tmp_path: Path) -> None:
    """Others who may read new folders of this person may read this one."""
    (tmp_path / "usual").mkdir()
    new_suite(tmp_path / "mine")
    assert (tmp_path / "mine").stat().st_mode == (tmp_path / "usual").stat().st_mode


def _filled(path: Path) -> None:
    path.mkdir()
    (path / "notes.txt").write_text("mine")


def _file(path: Path) -> None:
    path.write_text("mine")


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize("occupy", [_filled, _file, _dangling])
def test_nothing_is_overwritten(tmp_path: Path, occupy: object) -> None:
    """Whatever is there already stays as it is."""
    assert callable(occupy)
    occupy(tmp_path / "mine")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    with pytest.raises(SuiteError, match="is there already"):
        new_suite(tmp_path / "mine")
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_an_empty_folder_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder may become the suite, but not the one a person stands in."""
    (tmp_path / "mine").mkdir()
    new_suite(tmp_path / "mine")
    assert load_suite(tmp_path / "mine").id == "mine"
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    new_suite("here")
    assert load_suite("here").id == "here"
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    with pytest.raises(SuiteError, match="the folder you are in"):
        new_suite(".")
    assert list((tmp_path / "inside").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "part"), [("tip", "a suite that ships"), ("!!!", "makes no id"), ("日本", "makes no id")]
)
def test_names_that_cannot_be(tmp_path: Path, name: str, part: str) -> None:
    """A name that ships, or that makes no id, is refused before anything is written."""
    with pytest.raises(SuiteError) as caught:
        new_suite(tmp_path / name)
    assert part in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    """A parent that is a file is told in a sentence."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(SuiteError, match="cannot be made"):
        new_suite(tmp_path / "file" / "mine")


def test_a_failure_at_the_last_step_leaves_nothing(tmp_path: Path) -> None:
    """A name that the disk does not take is told, and no draft stays behind."""
    with pytest.raises(SuiteError, match="cannot be made: File name too long"):
        new_suite(tmp_path / ("long-name-" * 40))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    """A folder that may not be written is told in a sentence."""
    tmp_path.chmod(0o500)
    with pytest.raises(SuiteError, match="cannot be made: Permission denied"):
        new_suite(tmp_path / "mine")
    tmp_path.chmod(0o700)
