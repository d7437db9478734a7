"""How a job ended, and why: from its exit code, what it printed and the last sentence of its log."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

from tipbench.errors import CheckFailed, Interrupted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tipbench.store import Kind, State
    from tipbench.workflows.job_process import JobFolder, Left

HEADING = "# "
_LOG_BYTES = 1 << 20
_REASON_BYTES, _LONGEST_REASON = 1 << 14, 1000
# What moves a terminal's cursor, colours its text or names its window; then every other control character.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_]|[ -/]+[0-~])")
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069]")


def end_state(left: Left | None, *, cancelled: bool, kind: Kind = "collect") -> State:
    """The state of a job whose process is gone. One that left no exit code was killed, or the machine was.

    A gate that refuses has come to its end as well as one that lets pass.
    """
    if left is None or left.code == Interrupted.exit_code:
        return "cancelled" if cancelled else "interrupted"
    held = kind == "gate" and left.code == CheckFailed.exit_code
    return "done" if left.code == 0 or held else "failed"


def reason(folder: JobFolder, exit_code: int | None) -> str:
    """Why it did not come to its end; `exit_code` is None for one that was killed."""
    if exit_code is None:
        return "it ended without a word, as if it was killed or the machine was switched off; resume it"
    if exit_code == Interrupted.exit_code:
        return "it was interrupted; what was done is kept: resume it"
    cells = (printed(folder.out) or {}).get("cells")
    failed = cells.get("failed") if isinstance(cells, dict) else None
    if exit_code == 1 and isinstance(cells, dict) and failed:
        planned = cells.get("planned")
        which = "its only cell" if planned == 1 else f"{failed} of {planned} cells"
        return f"{which} failed; resume it to try again"
    return _last_sentence(folder.log) or f"it ended with exit code {exit_code} and said nothing"


def printed(out: Path) -> Mapping[str, Any] | None:
    """The object that the command printed at its end, None where it printed none."""
    try:
        found = json.loads(out.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def last_lines(log: Path, count: int, *, within: int = _LOG_BYTES) -> list[str]:
    """The last lines of a log, of at most so many bytes, without what would steer a terminal."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - within))
            text = file.read(within).decode("utf-8", "replace")
    except OSError:
        return []
    lines = _CONTROLS.sub("", _ESCAPES.sub("", text)).splitlines()
    return lines[-count:] if count > 0 else []


def _last_sentence(log: Path) -> str:
    """What was said last since the job was last started."""
    for line in reversed(last_lines(log, 1000, within=_REASON_BYTES)):
        if line.startswith(HEADING):
            break
        if line.strip():
            return line.strip().removeprefix("tipbench: ")[:_LONGEST_REASON]
    return ""
