"""One collection at a time per host: a lock file that names its holder and the model it has loaded.

The lock itself is the operating system's (`flock`), so a killed holder never leaves it behind. What the
file says outlives the holder on purpose: the next one recognises a leftover model as ours.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tipbench.errors import HostBusy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EMBEDDED = "embedded"
_LOOPBACK = {"localhost", "127.0.0.1", "::1", "0.0.0.0"}  # noqa: S104 - compared with, never bound


def is_loopback(url: str) -> bool:
    return (urlsplit(url).hostname or "") in _LOOPBACK


def host_name(url: str) -> str:
    """The host as one name, however its address was written: `localhost` and `127.0.0.1` are one."""
    parts = urlsplit(url)
    name = "localhost" if is_loopback(url) else (parts.hostname or "unknown")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{name}-{port}".replace(":", "_")


def lock_folder() -> Path:
    """One place per user and machine, whatever `TIPBENCH_HOME` is: memory is shared by all homes."""
    return Path(tempfile.gettempdir()) / f"tipbench-locks-{os.getuid()}"


@dataclass(frozen=True, kw_only=True)
class Holder:
    """What the lock file says: who holds the host, since when, and the model it loaded last.

    `leaving` is true where the holder was interrupted before it saw the model gone.
    """

    pid: int
    started: str
    experiment: str
    model: str | None = None
    digest: str | None = None
    leaving: bool = False


class HostLock:
    """A held lock. `leftover` is what its last holder wrote; `note` tells the next one about our model."""

    def __init__(self, file: int, *, mine: Holder, leftover: Holder | None) -> None:
        self._file = file
        self._mine = mine
        self.leftover = leftover

    def note(self, *, model: str | None, digest: str | None, leaving: bool = False) -> None:
        """Write down the model about to be loaded, or None once it is seen gone."""
        holder = asdict(self._mine) | {"model": model, "digest": digest, "leaving": leaving}
        text = json.dumps(holder).encode()
        os.pwrite(self._file, text.ljust(512), 0)
        os.ftruncate(self._file, max(len(text), 512))


@contextmanager
def hold_host(
    name: str, *, folder: Path, experiment: str, wait: bool, waiting: Callable[[str], None]
) -> Iterator[HostLock]:
    """Hold the host's lock; when it is taken, wait for it or refuse with who has it and since when."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{name}.lock"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _acquire(file, name=name, wait=wait, waiting=waiting)
        started = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
        mine = Holder(pid=os.getpid(), started=started, experiment=experiment)
        leftover = _read(file)
        lock = HostLock(file, mine=mine, leftover=leftover)
        if leftover is None:
            lock.note(model=None, digest=None)
        else:
            lock.note(model=leftover.model, digest=leftover.digest, leaving=leftover.leaving)
        yield lock
    finally:
        os.close(file)


def _acquire(file: int, *, name: str, wait: bool, waiting: Callable[[str], None]) -> None:
    told = False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sentence = _busy(name, _read(file))
            if not wait:
                raise HostBusy(f"{sentence}; wait for it to end, or pass --wait") from None
            if not told:
                waiting(f"{sentence}; waiting for it to end")
                told = True
            time.sleep(0.5)
        else:
            return


def _busy(name: str, holder: Holder | None) -> str:
    if holder is None:
        return f"another collection is running on {name}"
    return f"pid {holder.pid} has been collecting {holder.experiment!r} on {name} since {holder.started}"


def _read(file: int) -> Holder | None:
    """What the file says; a torn or foreign text says nothing, and that is no error."""
    try:
        return Holder(**json.loads(os.pread(file, 4096, 0)))
    except (ValueError, TypeError):
        return None
