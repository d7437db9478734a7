"""Artifacts of a store on this machine: plain files where MLflow looks for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from tipbench.private import make_folder, opener

if TYPE_CHECKING:
    from collections.abc import Mapping


def is_path(uri: str) -> bool:
    return urlsplit(uri).scheme in {"", "file"}


def write(uri: str, texts: Mapping[str, str]) -> bool:
    """Write the texts, on disk for good when this returns; False where the folder cannot be written."""
    try:
        folder = _folder(uri)
        make_folder(folder)
        for name, text in texts.items():
            _write(folder / name, text)
    except OSError:
        return False
    return True


def read(uri: str, name: str, *, moved_to: Path) -> str | None:
    """A text, from where MLflow says or, should the home have been moved since, from where it is now."""
    for folder in (_folder(uri), moved_to / "artifacts"):
        try:
            return (folder / name).read_bytes().decode(errors="replace")
        except OSError:
            continue
    return None


def _folder(uri: str) -> Path:
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else Path(uri)


def _write(path: Path, text: str) -> None:
    with open(path, "wb", opener=opener) as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
