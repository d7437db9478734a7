"""Other processes that use the same store: started together, or killed in the middle of it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_BEFORE = """
import sys, time
from pathlib import Path
from tipbench.errors import TipbenchError
from tipbench.store import Store
store = Store(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
"""


def started(path: Path, code: str) -> subprocess.Popen[str]:
    """A process that has loaded everything and waits for a line before it runs `code` on `store`."""
    process = subprocess.Popen(
        [sys.executable, "-c", _BEFORE + code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def let_go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def at_once(path: Path, code: str, *, count: int) -> list[str]:
    """What so many processes print that run the same code at the same time."""
    processes = [started(path, code) for _ in range(count)]
    for process in processes:
        let_go(process)
    printed = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * count
    return printed
