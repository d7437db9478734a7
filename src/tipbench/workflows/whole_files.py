"""Files for people: written whole or not at all, and never over a file that tipbench did not write."""

from __future__ import annotations

import os
import secrets
import stat
from typing import TYPE_CHECKING

from tipbench.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

_LARGEST = 100_000_000
# A redirection may stand behind such a name: the shell has opened its file, perhaps to append.
_STREAMS = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/fd/")


def check_free(path: Path, *, force: bool) -> None:
    """See that a file can be written there and that none is, unless `force`; a BadInput says what to do."""
    try:
        is_folder, is_there = path.is_dir(), path.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{path} cannot be made ({error.strerror}); give another --out") from None
    if is_folder:
        raise BadInput(f"{path} is a folder; give the name of a file")
    if is_there and not force:
        raise BadInput(
            f"{path} exists and may hold somebody's work; give another --out, or --force to replace it"
        )
    if not os.access(path.parent, os.W_OK):
        raise BadInput(f"{path.parent} cannot be written to; give another --out")


def check_replaceable(path: Path, is_ours: Callable[[bytes], bool], *, force: bool) -> None:
    """Refuse to overwrite a file unless it is empty, `is_ours` recognises its content, or `force` is set.

    Raises BadInput for a path that cannot be a file. Devices and pipes may always be written to.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadInput(f"{path} cannot be written ({error.strerror}); give another --out") from None
    if stat.S_ISDIR(found.st_mode):
        raise BadInput(f"{path} is a folder; give the name of a file with --out")
    nothing_to_lose = _is_stream(path) or not stat.S_ISREG(found.st_mode) or not found.st_size
    if not (force or nothing_to_lose or (found.st_size <= _LARGEST and _is_recognised(path, is_ours))):
        raise BadInput(
            f"{path} exists and is not a report of this format by tipbench; give another --out, or --force "
            "to overwrite it"
        )


def _is_recognised(path: Path, is_ours: Callable[[bytes], bool]) -> bool:
    """False also for a file that cannot be read."""
    try:
        return is_ours(path.read_bytes())
    except OSError:
        return False


def _is_stream(path: Path) -> bool:
    return str(path).startswith(_STREAMS)


def write_whole(path: Path, text: str) -> None:
    """The file with this text, or the file as it was: never half of it."""
    write_pieces(path, [text])


def write_pieces(path: Path, pieces: Iterable[str]) -> None:
    """As `write_whole`, for a text that is made piece by piece.

    A pipe or a device is written to, and a link stays a link: another file in their place would take them
    away from everybody.
    """
    if _is_stream(path) or (path.exists() and not path.is_file()):
        with path.open("a", encoding="utf-8", newline="\n") as pipe:
            pipe.writelines(pieces)
        return
    path = path.resolve()
    spare = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with spare.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        spare.replace(path)
    finally:
        spare.unlink(missing_ok=True)
