"""Files and folders of tipbench's own: only their owner may open them, whatever the umask is.

SQLite gives the files beside a database the mode of the database. Where the system refuses to change a mode,
tipbench works on.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from tipbench.settings import home

_OTHERS = 0o077
_BESIDE = ("", "-wal", "-shm", "-journal")
_DATABASES = ("spool.db", "cache.db", "service.db", "tips.db", "mlflow.db")
_FOLDERS = ("airflow", "anchors", "artifacts", "gates", "jobs", "locks", "reports")
_FILES = ("ship.lock", "shipped.json", "writer-id", "writer.lock")


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, for the owner alone.

    A folder that exists stays as it is.
    """
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for folder in reversed(missing):
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
    path.mkdir(exist_ok=True)  # raises where something else has the name


def opener(path: str, flags: int) -> int:
    """For `open`: a file that is made is for the owner alone, and so is one that is there already."""
    handle = os.open(path, flags | os.O_CLOEXEC, 0o600)
    with suppress(OSError):
        if os.fstat(handle).st_mode & _OTHERS:
            os.fchmod(handle, stat.S_IMODE(os.fstat(handle).st_mode) & ~_OTHERS)
    return handle


def make_file(path: Path) -> None:
    """Make an empty file for the owner alone, where there is none. What exists is not opened."""
    make_folder(path.parent)
    with suppress(FileExistsError):
        path.touch(mode=0o600, exist_ok=False)


def is_own(path: Path) -> bool:
    """Whether a file belongs to tipbench: by its name in the home, or in a folder of its own there.

    A user may put other files into the home; they are as the umask says.
    """
    place, mine = path.resolve(), home().expanduser().resolve()
    return place.is_relative_to(mine) and _is_ours((*place.relative_to(mine).parts, "")[0])


def narrow_database(path: Path) -> None:
    """Take the rights of others from a database that exists, and from what SQLite keeps beside it."""
    if path.parent.resolve() == home().expanduser().resolve():
        narrow_home(path.parent)
    for suffix in _BESIDE:
        _narrow(path.with_name(path.name + suffix))


def is_open_to_others(folder: Path) -> bool:
    """Whether other users of this machine may look into a folder."""
    return bool(folder.stat().st_mode & _OTHERS)


@lru_cache(maxsize=100)
def narrow_home(folder: Path) -> None:
    """Take the rights of others from the files and folders of tipbench in its home.

    The home itself is changed only if an earlier version made it: others can read a database in it, and it
    holds no name that tipbench does not know. Files and folders with other names are never changed.
    """
    with suppress(OSError):
        names = [one.name for one in folder.iterdir()]
        known = [name for name in names if _is_ours(name)]
        if len(known) == len(names) and any(_is_loose(folder / name) for name in _DATABASES):
            _narrow(folder)
        for name in known:
            _narrow_tree(folder / name)


def _narrow_tree(top: Path) -> None:
    """Take the rights of others from a file, or from a folder and all in it. Links are not followed.

    A folder that others cannot open is not read again: that would cost time at every start.
    """
    if not _is_loose(top):
        return
    for parent, folders, files in os.walk(top, topdown=False):
        for name in (*files, *folders):
            _narrow(Path(parent, name))
    _narrow(top)


def _is_ours(name: str) -> bool:
    return name in _FOLDERS or name.removeprefix(".").startswith(_DATABASES + _FILES)


def _is_loose(path: Path) -> bool:
    """Whether others may open a file or folder. False for a link, and for a path that does not exist."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return bool(mode & _OTHERS) and (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _narrow(path: Path) -> None:
    with suppress(OSError):
        if _is_loose(path):
            path.chmod(stat.S_IMODE(path.lstat().st_mode) & ~_OTHERS)
