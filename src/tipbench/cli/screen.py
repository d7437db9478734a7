"""What people see: results on standard output, all else on standard error, colour only on a terminal.

Text from models, hosts and files is printed as it is. Rich reads no markup and no emoji codes in it, and
control characters are printed as escapes: `_console` and `write` do this for every command.
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
from tipbench.text import visible, visible_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.text import Text


@cache
def out() -> Console:
    return _console(stderr=False)


@cache
def err() -> Console:
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    return screen_class()(stderr=stderr, highlight=False, markup=False, emoji=False)


@cache
def screen_class() -> type[Console]:
    """Return the class of every console. Rich is slow to import, so the class is made on first use."""
    from rich.console import Console
    from rich.segment import Segment

    class Screen(Console):
        def on_broken_pipe(self) -> None:
            """Raise to the caller. Rich would end the process, and with it the work."""
            raise BrokenPipeError

        def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401 - Rich's own options
            return super().render_str(visible(text), **options)

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            """Escape text that came as a Rich object. Rich's own control codes are marked, and pass."""
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else visible(text), style, control)

    return Screen


def say(text: str, *, style: str | None = None) -> None:
    """A line of results, however long."""
    with written():
        out().print(with_program(text), soft_wrap=True, style=style)


def tell(text: str) -> None:
    """A line beside the results; where nobody can be told, the work goes on."""
    with suppress(OSError):
        err().print(with_program(text), soft_wrap=True)


def heading(text: str) -> None:
    with written():
        out().rule(plain_text(text), style="dim")


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


def write(text: str) -> None:
    """Print a text on standard output without colour and without wrapping."""
    with written():
        print(visible(text), end="" if text.endswith("\n") else "\n")  # noqa: T201


def plain_text(text: str) -> Text:
    from rich.text import Text

    return Text(visible(text))


def print_rows(titles: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[str] = ()) -> None:
    """A table on a terminal; elsewhere one line a row with tabs between, nothing cut off."""
    if not out().is_terminal:
        flat = str.maketrans("\t\n", "  ")
        write("\n".join("\t".join(cell.translate(flat) for cell in row) for row in [titles, *rows]))
        return
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in titles:
        table.add_column(title, justify="right" if title in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(plain_text(cell) for cell in row))
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
    if Path(sys.argv[0]).name in {"__main__.py", "-c"}:  # a module or a text, and no program by itself
        return [os.path.relpath(sys.executable), "-m", "tipbench"]
    return [os.path.relpath(sys.argv[0])]


_COMMAND = re.compile(r"(?:(?<=[`('])|(?<=: )|(?<=→ )|(?<=&& )|(?<=run ))tipbench(?= [a-z-])")


def with_program(text: str) -> str:
    """The text with each command, such as `tipbench doctor`, as one types it here."""
    return _COMMAND.sub(lambda _found: shlex.join(_program()), text)


def print_json(value: Any) -> None:  # noqa: ANN401 - any value that JSON has
    """Print a value as JSON on standard output, without colour and without wrapping."""
    write(json_text(value))


def json_text(value: Any) -> str:  # noqa: ANN401 - as above
    return visible_json(json.dumps(value, ensure_ascii=False, indent=2))
