"""What people see: results on standard output, all else on standard error, colour only on a terminal."""

from __future__ import annotations

import json
import os
import shutil
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


@cache
def out() -> Console:
    from rich.console import Console

    return Console(highlight=False)


@cache
def err() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def command() -> str:
    """What to type for this command: its name, or its path where the name would not be found."""
    return "tipbench" if shutil.which("tipbench") else os.path.relpath(sys.argv[0])


def print_json(value: Any) -> None:  # noqa: ANN401 - whatever JSON can hold
    """One object on standard output, as is: no colour, no wrapping."""
    print(json.dumps(value, ensure_ascii=False, indent=2))  # noqa: T201
