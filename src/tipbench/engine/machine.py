"""The machine that this process runs on, as far as it can be told quickly. Nothing here ever fails."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from tipbench.engine.memory import readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LONGEST = 200
_AMD = "0x1002"
# Beside what the modules themselves raise: psutil reads /proc, where a line may be missing in a sandbox.
_UNKNOWN = (OSError, ValueError, KeyError, IndexError, RuntimeError, subprocess.SubprocessError, psutil.Error)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine by its name, and its hardware in words; what is not known is left out."""

    name: str = ""
    hardware: str = ""


@cache
def this_machine() -> Machine:
    """Read once: a machine does not change under a process."""
    return Machine(name=_line(platform.node()), hardware=hardware())


def hardware(root: Path = Path("/")) -> str:
    """Processor, cores, RAM and graphics cards: `AMD Ryzen 7 5800X, 8 cores, 33.6 GB of RAM`."""
    parts = [_processor(root), _cores(), _ram(), *_counted(_cards(root))]
    return ", ".join(part for part in parts if part)


def _processor(root: Path) -> str:
    named = _fields(root / "proc/cpuinfo")
    for name in ("model name", "Model", "Hardware", "cpu model"):
        if named.get(name):
            return named[name]
    return _said("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()


def _cores() -> str:
    try:
        count = psutil.cpu_count(logical=False) or psutil.cpu_count() or 0
    except _UNKNOWN:
        return ""
    return f"{count} core{'' if count == 1 else 's'}" if count else ""


def _ram() -> str:
    try:
        return f"{readable(psutil.virtual_memory().total)} of RAM"
    except _UNKNOWN:
        return ""


def _cards(root: Path) -> list[str]:
    """Where the drivers list them; NVIDIA's own tool is asked only where its driver lists nothing."""
    nvidia = [
        _fields(file).get("Model", "") for file in _found(root, "proc/driver/nvidia/gpus/*/information")
    ]
    if not any(nvidia):
        nvidia = _said("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines()
    amd = [_amd(card) for card in _found(root, "sys/class/drm/card*/device")]
    return [_line(card) for card in (*nvidia, *amd) if card.strip()]


def _amd(device: Path) -> str:
    memory = _text(device / "mem_info_vram_total").strip()
    if _text(device / "vendor").strip() != _AMD or not memory.isdigit():
        return ""
    name = _line(_text(device / "product_name")) or "AMD graphics"
    return f"{name} with {readable(int(memory))}"


def _counted(cards: Iterable[str]) -> Iterator[str]:
    for card, count in Counter(cards).items():
        yield card if count == 1 else f"{count} × {card}"


def _fields(path: Path) -> dict[str, str]:
    """A file of lines `name : value`; of several values the first."""
    found: dict[str, str] = {}
    for line in _text(path).splitlines():
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), _line(value))
    return found


def _found(root: Path, pattern: str) -> list[Path]:
    try:
        return sorted(root.glob(pattern))
    except _UNKNOWN:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except _UNKNOWN:
        return ""


def _said(command: str, *arguments: str) -> str:
    """What a tool of the machine says; nothing where there is no such tool or it fails."""
    tool = shutil.which(command)
    if tool is None:
        return ""
    try:
        done = subprocess.run([tool, *arguments], capture_output=True, timeout=5, check=True)  # noqa: S603
    except _UNKNOWN:
        return ""
    return done.stdout.decode(errors="replace").strip()


def _line(text: str) -> str:
    """One line without what does not print, not too long for a tag."""
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())[:_LONGEST]
