"""The real command on a terminal of a given size."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios

from command import TIPBENCH


def on_terminal(*arguments: str, columns: int = 120) -> tuple[int, str]:
    """The exit code and all that the terminal was sent, line ends as they are elsewhere."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    left_out = {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"}
    env = {name: value for name, value in os.environ.items() if name not in left_out}
    child = subprocess.Popen(
        [*TIPBENCH, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=env | {"TERM": "xterm-256color"},
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            some = os.read(ours, 65536)
        except OSError:  # Linux says that the other side is gone in this way
            break
        if not some:
            break
        seen += some
    os.close(ours)
    return child.wait(timeout=60), seen.decode().replace("\r\n", "\n")
