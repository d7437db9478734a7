"""How a job ended, and why: from its exit code, what it printed and the last sentence of its log."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from tipbench.errors import Interrupted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tipbench.store import State
    from tipbench.workflows.job_process import JobFolder, Left

HEADING = "# "
_LOG_BYTES = 1 << 20


def end_state(left: Left | None, *, cancelled: bool) -> State:
    """The state of a job whose process is gone. One that left no exit code was killed, or the machine was."""
    if left is None or left.code == Interrupted.exit_code:
        return "cancelled" if cancelled else "interrupted"
    return "done" if left.code == 0 else "failed"


def reason(folder: JobFolder, exit_code: int | None) -> str:
    """Why it did not come to its end; `exit_code` is None for one that was killed."""
    if exit_code is None:
        return "it ended without a word, as if it was killed or the machine was switched off; resume it"
    if exit_code == Interrupted.exit_code:
        return "it was interrupted; what was done is kept: resume it"
    cells = (printed(folder.out) or {}).get("cells")
    failed = cells.get("failed") if isinstance(cells, dict) else None
    if exit_code == 1 and isinstance(cells, dict) and failed:
        return f"{failed} of {cells.get('planned')} cells failed; resume it to try them again"
    return _last_sentence(folder.log) or f"it ended with exit code {exit_code} and said nothing"


def printed(out: Path) -> Mapping[str, Any] | None:
    """The object that the command printed at its end, None where it printed none."""
    try:
        found = json.loads(out.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def last_lines(log: Path, count: int) -> list[str]:
    """The last lines of a log, however large it is."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LOG_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []
    return lines[-count:] if count > 0 else []


def _last_sentence(log: Path) -> str:
    """What was said last since the job was last started."""
    for line in reversed(last_lines(log, 1000)):
        if line.startswith(HEADING):
            break
        if line.strip():
            return line.strip().removeprefix("tipbench: ")
    return ""
