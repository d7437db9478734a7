"""What is wrong with a suite, gathered while it is read, so that one look shows all of it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from tipbench.errors import SuiteError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong, and where; a warning does not keep the suite from being used."""

    path: Path
    message: str
    line: int | None = None
    warning: bool = False

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line else str(self.path)
        return f"{where}: {'warning: ' if self.warning else ''}{self.message}"


class Problems:
    """Problems in the order in which they were met."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def add(self, path: Path, message: str, *, line: int | None = None) -> None:
        self.found.append(Problem(path=path, message=message, line=line))

    def warn(self, path: Path, message: str, *, line: int | None = None) -> None:
        self.found.append(Problem(path=path, message=message, line=line, warning=True))

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.found if not problem.warning]

    @contextmanager
    def gather(self) -> Iterator[None]:
        """Turn a SuiteError raised inside into a problem, so that the rest is looked at too."""
        try:
            yield
        except SuiteError as error:
            self.add(error.path, error.message, line=error.line)

    def raise_first(self) -> None:
        """A SuiteError for the first error, which also says how many more there are."""
        errors = self.errors
        if errors:
            more = f" (the first of {len(errors)} problems)" if len(errors) > 1 else ""
            raise SuiteError(errors[0].path, errors[0].message + more, line=errors[0].line)


def did_you_mean(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """`; did you mean 'x'?` where a known name is near, else nothing."""
    by_folded = {other.casefold(): other for other in known}
    typed = name.casefold()
    longer = [other for other in by_folded if typed and other.startswith(typed)]
    # Of a name that was cut short there is no doubt, however far its length is from the whole.
    near = longer if len(longer) == 1 else get_close_matches(typed, by_folded, n=1, cutoff=cutoff)
    return f"; did you mean '{by_folded[near[0]]}'?" if near else ""


def listed(names: Iterable[str], *, most: int = 12) -> str:
    """The names for a sentence, cut to a length that a person reads."""
    names = list(names)
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
