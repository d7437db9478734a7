"""Locks between processes. The system lets go of one when its holder ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tipbench.private import make_folder, opener

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LOOK_EVERY_S = 0.05


@contextmanager
def file_lock(path: Path, *, patience_s: float) -> Iterator[bool]:
    """Hold the lock for the block; False where another process held it for all of `patience_s`.

    Raises OSError where the file cannot be made.
    """
    with held_file(path, patience_s=patience_s) as handle:
        yield handle is not None


@contextmanager
def held_file(path: Path, *, patience_s: float, shared: bool = False) -> Iterator[int | None]:
    """As `file_lock`, with the open file: a process that is handed it holds the lock when the block ends.

    Several processes can hold a `shared` lock at the same time; `is_in_use` finds any of them.
    """
    make_folder(path.parent)
    handle = opener(str(path), os.O_RDWR | os.O_CREAT)
    try:
        yield handle if _taken(handle, deadline=time.monotonic() + patience_s, shared=shared) else None
    finally:
        os.close(handle)


def is_held(path: Path) -> bool | None:
    """Whether somebody has the lock; None where there is no file to ask.

    Asked for as one of many, so that two who look do not see each other.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def is_in_use(path: Path) -> bool:
    """Whether a process holds the lock, shared or not."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _taken(handle, deadline=0)
    finally:
        os.close(handle)


def _taken(handle: int, *, deadline: float, shared: bool = False) -> bool:
    while True:
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_EVERY_S)
        else:
            return True
