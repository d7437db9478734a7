"""`demo`: the whole path on a real model, in minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer


def add_to(app: typer.Typer) -> None:
    pass
