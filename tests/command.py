"""The real command in a process of its own."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

from tipbench.cli import app
from tipbench.errors import TipbenchError

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


def here(*arguments: str) -> Ran:
    """Run a command in this process, where nothing has to be imported; it ends as the real one does."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            app(list(arguments))
        except TipbenchError as error:
            return Ran(code=error.exit_code, out=out.getvalue(), err=f"{err.getvalue()}tipbench: {error}")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
    return Ran(code=code, out=out.getvalue(), err=err.getvalue())


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
