"""What can go wrong, as one tree; the class decides the exit code, the message is one clear sentence.

TipbenchError
├── BadInput            2  something a person wrote: an option, a file, a name
│   ├── BadSetting         an option's value
│   ├── SuiteError         a suite's file, with its line
│   │   └── StaleBank      anchors that were judged under another text of the rubric
│   ├── FormulaError       a rubric's composite, with its column
│   ├── JudgeFileError     a judge's file, with the line of every mistake
│   ├── ModelRefused       a model that is missing, too large, or of unknown size
│   ├── PinConflict        a text changed under an id that an experiment is pinned to
│   ├── NotFound           a run, an experiment, a scenario that is not there
│   └── Conflict           another policy's decision, one too old to learn from, a change that came second
├── Unavailable         3  something needed cannot be reached or is busy
│   ├── EngineUnreachable
│   ├── HostBusy           another collection, or a stranger's model, occupies the host
│   ├── ModelStuck         a host that will not let go of a model
│   ├── LedgerUnreachable
│   │   └── LedgerMisconfigured  exit code 2: a server that refuses the Host header
│   ├── AirflowUnreachable  it is away, or what answers is no Airflow
│   ├── SpoolUnusable      the file that holds what is not yet recorded is damaged, or cannot be written
│   ├── StoreUnusable      the service's own file is damaged, somebody else's, or cannot be written
│   ├── BadState           what was learned, or is known of a user, cannot be read
│   ├── StateUnusable      the database of the serving half is damaged, somebody else's, or cannot be written
│   └── Busy               more is asked of the serving half than it can take on
├── Interrupted       130  somebody pressed Ctrl-C; what was done is kept
├── EngineFailure       1  one call to a model failed; `retryable` says whether asking again may help
│   └── PromptTooLong      the prompt does not fit the context
├── PolicyFailed        1  a policy raised, or gave what are no scores and no probabilities
├── DagRunFailed        1  a run on Airflow came to its end without success
├── CheckFailed         4  a check ran and said no
└── Inconclusive        5  a check could not be made
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tipbench.text import hide_logins

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class TipbenchError(Exception):
    """The root: `str(error)` is one sentence that names the thing, where it is and what to do.

    No message repeats a login, or the query of an address.
    """

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(hide_logins(message))


class BadInput(TipbenchError):
    exit_code = 2


class BadSetting(BadInput):
    """An option's value; `name` lets the API answer per field."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"--{name.replace('_', '-')}: {message}")
        self.name = name
        self.message = hide_logins(message)


class SuiteError(BadInput):
    """A suite's file; the message starts with `file:line:` so that editors can jump to it."""

    def __init__(self, path: Path, message: str, *, line: int | None = None) -> None:
        where = f"{path}:{line}" if line else str(path)
        super().__init__(f"{where}: {message}")
        self.path = path
        self.line = line
        self.message = hide_logins(message)


class StaleBank(SuiteError):
    pass


class FormulaError(BadInput):
    """A rubric's composite; line and column count from 1 within the formula's own text."""

    def __init__(self, message: str, *, column: int, line: int = 1) -> None:
        where = f"line {line}, column {column}" if line > 1 else f"column {column}"
        super().__init__(f"{message} (at {where})")
        self.column = column
        self.line = line


class JudgeFileError(BadInput):
    """A judge's file: a line `file:line: sentence` for each of the first `SHOWN` mistakes."""

    SHOWN = 100

    def __init__(self, path: Path | str, mistakes: Sequence[tuple[int, str]]) -> None:
        shown = [f"{path}:{line}: {message}" for line, message in mistakes[: self.SHOWN]]
        more = [f"and {len(mistakes) - self.SHOWN} more"] if len(mistakes) > self.SHOWN else []
        super().__init__("\n".join([*shown, *more]))
        self.path = path
        self.mistakes = tuple(mistakes)


class ModelRefused(BadInput):
    pass


class PinConflict(BadInput):
    pass


class NotFound(BadInput):
    pass


class Conflict(BadInput):
    pass


class Unavailable(TipbenchError):
    exit_code = 3


class EngineUnreachable(Unavailable):
    pass


class HostBusy(Unavailable):
    pass


class ModelStuck(Unavailable):
    pass


class LedgerUnreachable(Unavailable):
    pass


class LedgerMisconfigured(LedgerUnreachable):
    """A setting must change: to wait, or to try again, does not help."""

    exit_code = BadInput.exit_code


class AirflowUnreachable(Unavailable):
    pass


class SpoolUnusable(Unavailable):
    pass


class StoreUnusable(Unavailable):
    pass


class BadState(Unavailable):
    """What was learned, or is known of a user, cannot be read; `what` names it, and nothing starts empty."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what} cannot be read: {why}; restore it from a backup, or reset it")
        self.what = what


class StateUnusable(Unavailable):
    pass


class Busy(Unavailable):
    pass


class PolicyFailed(TipbenchError):
    exit_code = 1


class DagRunFailed(TipbenchError):
    exit_code = 1


class EngineFailure(TipbenchError):
    exit_code = 1

    def __init__(self, message: str, *, retryable: bool, unreachable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.unreachable = unreachable


class PromptTooLong(EngineFailure):
    """The host refused a prompt that does not fit the context. `by_model`: the model itself has the limit."""

    def __init__(self, message: str, *, by_model: bool) -> None:
        super().__init__(message, retryable=False)
        self.by_model = by_model


class Interrupted(TipbenchError):
    exit_code = 130


class CheckFailed(TipbenchError):
    exit_code = 4


class Inconclusive(TipbenchError):
    exit_code = 5
