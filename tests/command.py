"""The real command in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

TIPBENCH = (sys.executable, "-m", "tipbench")


@dataclass(frozen=True, kw_only=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever the command printed
        return json.loads(self.out)


def tipbench(*arguments: str, timeout_s: float = 120) -> Ran:
    """Run a command to its end."""
    done = subprocess.run(
        [*TIPBENCH, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return Ran(code=done.returncode, out=done.stdout, err=done.stderr)


def start(*arguments: str) -> subprocess.Popen[str]:
    """Start a command and let it run."""
    return subprocess.Popen(
        [*TIPBENCH, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
