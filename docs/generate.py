"""Writes the reference pages that are derived from the code; a test holds that they are up to date."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.main import get_command

from tipbench.cli import EXIT_CODES, app
from tipbench.cli.options import shown_default
from tipbench.settings import RUN_SETTINGS, Bounds, default_of, table

if TYPE_CHECKING:
    from collections.abc import Iterator

REFERENCE = Path(__file__).parent / "reference"
DAGS = Path(__file__).parent.parent / "dags"
_TYPES = {tuple: ["string", "array"], bool: ["boolean"], int: ["integer"], float: ["number"], str: ["string"]}
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
    if getattr(command, "invoke_without_command", False):
        yield name, command
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
        return f"`{(param.metavar or param.name).upper()}`"
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


def dag_params() -> str:
    """What a DAG run may be told: the settings that a request may set, then what Airflow alone knows of."""
    rows = {row.name: _param(row) for row in table() if row.name in RUN_SETTINGS}
    hosts = {
        "default": [],
        "description": "Ollama addresses; the models take turns on them. Empty: the one in ollama_url",
        "type": ["array", "string", "null"],
        "items": {"type": "string"},
    }
    wait = {
        "default": "off",
        "description": "whether to wait for the judge before comparing: off; sensor, until nothing is "
        "pending; approval, until somebody approves",
        "type": ["string", "boolean", "null"],
        "enum": ["off", "sensor", "approval", False, True, None],
    }
    return json.dumps(rows | {"hosts": hosts, "wait_for_judge": wait}, indent=2) + "\n"


def _param(row: Any) -> dict[str, Any]:  # noqa: ANN401 - a row of the table
    """A setting as a schema; null, like leaving it out, is the default."""
    default, check = default_of(row), row.metadata["check"]
    is_list = isinstance(default, tuple)
    schema = {
        "default": ",".join(default) if is_list else default,
        "description": row.metadata["help"],
        "type": [*_TYPES[type(default)], "null"],
    }
    if is_list:
        least = min(1, len(default))  # a list that is empty by default may be empty
        schema |= {"items": {"type": "string"}, "minItems": least, "minLength": least}
    if isinstance(check, Bounds):
        schema["minimum"] = check.least
        schema |= {"maximum": check.most} if math.isfinite(check.most) else {}
    return schema


PAGES = {
    REFERENCE / "commands.md": commands_page,
    REFERENCE / "settings.md": settings_page,
    DAGS / "bench_collect_params.json": dag_params,
}

if __name__ == "__main__":
    REFERENCE.mkdir(exist_ok=True)
    for path, page in PAGES.items():
        path.write_text(page(), encoding="utf-8")
