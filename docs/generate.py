"""Writes the reference pages that are derived from the code; a test holds that they are up to date."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.main import get_command

from tipbench.cli import EXIT_CODES, app
from tipbench.cli.options import shown_default
from tipbench.settings import table

if TYPE_CHECKING:
    from collections.abc import Iterator

REFERENCE = Path(__file__).parent / "reference"
NOTE = "<!-- made by docs/generate.py: change the code, then run `make docs` -->\n"


def commands_page() -> str:
    """Every command with its help and options."""
    parts = [NOTE, "# Commands\n", f"{' '.join(EXIT_CODES.split())}\n"]
    for name, command in _walk("tipbench", get_command(app)):
        parts += _section(name, command)
    return "\n".join(parts)


def _walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - Typer does not export the type
    subcommands = getattr(command, "commands", None)
    if subcommands is None:
        yield name, command
        return
    for child, inner in sorted(subcommands.items()):
        yield from _walk(f"{name} {child}", inner)


def _section(name: str, command: Any) -> Iterator[str]:  # noqa: ANN401 - as above
    yield f"## {name}\n"
    yield f"{command.help}\n"
    rows = [param for param in command.params if not getattr(param, "hidden", False) and param.name != "help"]
    if rows:
        yield "| option | meaning |\n| --- | --- |"
        yield "\n".join(f"| {_flags(param)} | {_help(param)} |" for param in rows) + "\n"


def _help(param: Any) -> str:  # noqa: ANN401 - as above
    return (param.help or "").replace("|", "\\|")


def _flags(param: Any) -> str:  # noqa: ANN401 - as above
    if param.param_type_name == "argument":
        return f"`{param.name.upper()}`"
    return ", ".join(f"`{flag}`" for flag in param.opts)


def settings_page() -> str:
    """The settings table: what the command line, the API and a DAG all read."""
    head = f"{NOTE}\n# Settings\n\nOne table; `--n-tips` on the command line is `n_tips` here.\n"
    lines = ["| setting | default | environment | meaning |", "| --- | --- | --- | --- |"]
    for row in table():
        env = f"`{row.metadata['env']}`" if row.metadata["env"] else ""
        shown = shown_default(row)
        lines.append(f"| `{row.name}` | {f'`{shown}`' if shown else ''} | {env} | {row.metadata['help']} |")
    return f"{head}\n" + "\n".join(lines) + "\n"


PAGES = {"commands.md": commands_page, "settings.md": settings_page}

if __name__ == "__main__":
    REFERENCE.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")
