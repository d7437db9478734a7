"""What people see: results on standard output, all else on standard error, colour only on a terminal.

Texts from models, hosts and files are shown as they are: nothing in them is taken for markup, and what would
steer a terminal is made visible.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tipbench.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console

_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@cache
def out() -> Console:
    return _console(stderr=False)


@cache
def err() -> Console:
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    class Screen(Console):
        def on_broken_pipe(self) -> None:
            """Rich would end the process, and with it the work: whoever prints decides what it means."""
            raise BrokenPipeError

    return Screen(stderr=stderr, highlight=False)


def say(text: str, *, style: str | None = None) -> None:
    """A line of results, however long."""
    with written():
        out().print(visible(with_program(text)), markup=False, soft_wrap=True, style=style)


def tell(text: str) -> None:
    """A line beside the results; where nobody can be told, the work goes on."""
    with suppress(OSError):
        err().print(visible(with_program(text)), markup=False, soft_wrap=True)


def heading(text: str) -> None:
    with written():
        out().rule(_plain(text), style="dim")


@contextmanager
def written() -> Iterator[None]:
    """Results reach standard output, or a sentence says why not. A reader that has gone is no error."""
    try:
        yield
        if sys.stdout is not None:  # as it is where it was closed before the start
            sys.stdout.flush()
    except OSError as error:
        # What is still buffered would fail once more when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError):
            raise Unavailable(f"standard output cannot be written ({error.strerror})") from None


def visible(text: str) -> str:
    """The text with control characters written out, so that a reply cannot clear the screen."""
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


def _plain(text: str) -> Any:  # noqa: ANN401 - Rich's Text, which is slow to import
    from rich.text import Text

    return Text(visible(text))


def print_rows(titles: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[str] = ()) -> None:
    """A table on a terminal; elsewhere one line a row with tabs between, nothing cut off."""
    if not out().is_terminal:
        with written():
            for row in [titles, *rows]:
                print("\t".join(visible(cell).replace("\t", " ").replace("\n", " ") for cell in row))  # noqa: T201
        return
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in titles:
        table.add_column(title, justify="right" if title in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_plain(cell) for cell in row))
    with written():
        out().print(table)


def count(number: int, noun: str) -> str:
    """`1 cell`, `2 cells`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def typed(*arguments: str) -> str:
    """A command as one would type it here: by name, or by path where the name would not be found."""
    return shlex.join([*_program(), *arguments])


def _program() -> list[str]:
    if shutil.which("tipbench"):
        return ["tipbench"]
    if Path(sys.argv[0]).name == "__main__.py":  # it was run as a module, and is no program by itself
        return [os.path.relpath(sys.executable), "-m", "tipbench"]
    return [os.path.relpath(sys.argv[0])]


_COMMAND = re.compile(r"(?:(?<=[`('])|(?<=: )|(?<=→ )|(?<=&& )|(?<=run ))tipbench(?= [a-z-])")


def with_program(text: str) -> str:
    """The text with each command, such as `tipbench doctor`, as one types it here."""
    return _COMMAND.sub(lambda _found: shlex.join(_program()), text)


def print_json(value: Any) -> None:  # noqa: ANN401 - whatever JSON can hold
    """One object on standard output, as is: no colour, no wrapping."""
    with written():
        print(json.dumps(value, ensure_ascii=False, indent=2))  # noqa: T201
