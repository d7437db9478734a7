"""What a model needs and what this machine has free. Estimates: the host's own word comes from `/api/ps`."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from tipbench.records import Model

_BUFFERS = 64 << 20
# Key and value cache per token, as a share of the parameter count. Small models with grouped heads take
# about 25 to 40 bytes per token for every million parameters.
_CACHE_BYTES_PER_TOKEN_AND_PARAMETER = 4e-5


def needed_bytes(model: Model, *, num_ctx: int) -> int:
    """About what the model takes once loaded: its weights, its context's cache and some working room."""
    cache = (model.parameters or 0) * _CACHE_BYTES_PER_TOKEN_AND_PARAMETER * num_ctx
    return round(model.size_bytes + cache) + _BUFFERS


def free_bytes() -> int:
    """RAM that can be had without swapping, plus the free memory of NVIDIA cards."""
    return psutil.virtual_memory().available + _free_vram()


def _free_vram() -> int:
    """None of it is known where `nvidia-smi` is not; on a Mac it is the same memory as the RAM."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return 0
    query = [tool, "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=5, check=True)  # noqa: S603
        return sum(int(line) << 20 for line in done.stdout.split())
    except (OSError, subprocess.SubprocessError, ValueError):
        return 0


def readable(count: float) -> str:
    """Bytes as people write them: `2.0 GB`."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"
