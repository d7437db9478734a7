"""Commands in processes of their own, with what they used: wall time, CPU time, memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HERE = Path(__file__).parent
ROOT = HERE.parent
TIPBENCH = (sys.executable, "-m", "tipbench")
_LOOK_EVERY_S = 0.05
_LOOKS_PER_SEARCH = 10
_LEFT_OUT = ("OLLAMA_HOST", "MLFLOW_TRACKING_URI", "TIPBENCH_MLFLOW_HOST_HEADER")


@dataclass(frozen=True, kw_only=True)
class Used:
    """What a command and its children used, as the kernel counted it; `started` is in seconds since 1970."""

    code: int
    out: str
    started: float
    wall_s: float
    cpu_s: float
    peak_bytes: int


@dataclass(kw_only=True)
class Seen:
    """What a process was last seen to have used. Looked at 20 times a second: short peaks may be missed."""

    command: str
    peak_bytes: int = 0
    cpu_s: float = 0.0


@dataclass(kw_only=True)
class Watch:
    """The processes of a command, by their pids; `root` is the command itself.

    `peak_together` counts memory that processes share once for each of them.
    """

    root: int = 0
    peak_together: int = 0
    seen: dict[int, Seen] = field(default_factory=dict)

    def child(self, word: str) -> Seen:
        """The child whose command line holds the word; zeros where none was seen."""
        found = (seen for pid, seen in self.seen.items() if pid != self.root and word in seen.command)
        return next(found, Seen(command=""))


def clean_env(home: Path, *, modules: Path | None = None) -> dict[str, str]:
    """An environment with a home of its own and none of the person's settings; `modules` can be imported.

    `PYTHONPATH` stays, so that another version's `src` can be measured with it.
    """
    env = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    home.mkdir(parents=True, exist_ok=True)
    env |= {"TIPBENCH_HOME": str(home / "state"), "TMPDIR": str(home)}
    if modules is not None:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (env.get("PYTHONPATH"), str(modules))))
    return env


def run(command: Sequence[str], *, env: Mapping[str, str] | None = None, watch: Watch | None = None) -> Used:
    """Run a command to its end. What goes wrong is raised with the last of what the command said."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started, clock = time.time(), time.perf_counter()
        child = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=ROOT)
        over = threading.Event()
        watcher = threading.Thread(target=_look_at, args=(child.pid, watch, over))
        if watch is not None:
            watcher.start()
        _, status, usage = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - clock
        child.returncode = os.waitstatus_to_exitcode(status)
        over.set()
        if watch is not None:
            watcher.join()
        out.seek(0)
        err.seek(0)
        if child.returncode:
            raise RuntimeError(f"{' '.join(command)}: exit {child.returncode}\n{err.read().decode()[-2000:]}")
        return Used(
            code=child.returncode,
            out=out.read().decode(),
            started=started,
            wall_s=wall_s,
            cpu_s=usage.ru_utime + usage.ru_stime,
            peak_bytes=usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        )


def _look_at(pid: int, watch: Watch, over: threading.Event) -> None:
    watch.root = pid
    known: list[psutil.Process] = []
    looks = 0
    while not over.wait(_LOOK_EVERY_S):
        try:
            if looks % _LOOKS_PER_SEARCH == 0:
                root = psutil.Process(pid)
                known = [root, *root.children(recursive=True)]
        except psutil.Error:
            return
        looks += 1
        watch.peak_together = max(watch.peak_together, sum(_noted(process, watch) for process in known))


def _noted(process: psutil.Process, watch: Watch) -> int:
    """Write down what a process has used so far; the memory it has now."""
    try:
        with process.oneshot():
            seen = watch.seen.setdefault(process.pid, Seen(command=" ".join(process.cmdline())))
            times, rss = process.cpu_times(), int(process.memory_info().rss)
    except psutil.Error:
        return 0
    seen.peak_bytes = max(seen.peak_bytes, rss)
    seen.cpu_s = max(seen.cpu_s, times.user + times.system)
    return rss
