"""Artifacts of a store on this machine: plain files where MLflow looks for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping


def is_path(uri: str) -> bool:
    return urlsplit(uri).scheme in {"", "file"}


def write(uri: str, texts: Mapping[str, str], *, moved_to: Path) -> bool:
    """Write the texts, on disk for good when this returns; False where the folder cannot be written."""
    try:
        folder = _places(uri, moved_to)[0]
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            _write(folder / name, text)
    except OSError:
        return False
    return True


def read(uri: str, name: str, *, moved_to: Path) -> str | None:
    """A text, from where it is in this home or, for a folder of somebody else, from where MLflow says."""
    for folder in _places(uri, moved_to):
        try:
            return (folder / name).read_bytes().decode(errors="replace")
        except OSError:
            continue
    return None


def _places(uri: str, moved_to: Path) -> list[Path]:
    """The folders of a run. MLflow's address of a home that was moved or copied is that of the first one."""
    here = moved_to / "artifacts"
    return [here, _folder(uri)] if here.is_dir() else [_folder(uri)]


def _folder(uri: str) -> Path:
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else Path(uri)


def _write(path: Path, text: str) -> None:
    with path.open("wb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
