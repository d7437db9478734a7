"""Which small local model and which prompt should I ship? An answer with proof, on your own machine.

The public API: `runs(experiment)` reads what a collection recorded; `rank(rows)` ranks anyone's scores.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tipbench.compare.leaderboard import rank
    from tipbench.workflows.browse import runs

__all__ = ["rank", "runs"]

_HOMES = {"rank": "tipbench.compare.leaderboard", "runs": "tipbench.workflows.browse"}


def __getattr__(name: str) -> object:
    """Public names are loaded when asked for: the engine's own process needs none of them."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tipbench' has no attribute {name!r}")
