"""The process of an errand: `python -m tipbench.workflows.tip_errand ledger|engine`, told by lines of JSON.

Nothing it does is waited for by anybody who wants a tip, so it is nice to those who serve.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from tipbench.errors import TipbenchError
from tipbench.settings import Settings
from tipbench.workflows.fresh_tips import FreshTips
from tipbench.workflows.shipped_file import decode_filed
from tipbench.workflows.shipping import refreshed
from tipbench.workflows.tip_errands import DONE, EVENT, FAILED, KEEP, LEDGER, WANT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NICE = 10


def main(what: str) -> None:
    os.nice(_NICE)
    say = _voice()
    task = json.loads(sys.stdin.buffer.readline() or b"null")
    if task is None:
        return
    try:
        (_ask_ledger if what == LEDGER else _ask_engine)(task, say)
    except (TipbenchError, OSError) as error:
        say(say=FAILED, error=str(error))
    else:
        say(say=DONE)


def _voice() -> Callable[..., None]:
    """How to say something to the service. What others print here goes where errors go."""
    mine = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def say(**said: Any) -> None:  # noqa: ANN401 - whatever JSON can hold
        line = json.dumps(said, default=str).encode() + b"\n"
        with suppress(BrokenPipeError):  # nobody listens any more; this ends soon
            while line:
                line = line[os.write(mine, line) :]

    return say


def _ask_ledger(task: dict[str, Any], say: Callable[..., None]) -> None:  # noqa: ARG001 - as the other
    threading.Thread(target=_end_with_the_service, daemon=True).start()
    refreshed(Settings.of(task["settings"]), Path(task["folder"]))


def _end_with_the_service() -> None:
    sys.stdin.buffer.read()
    # Whatever hangs in a library, nothing of ours is left behind: files are written whole.
    os._exit(1)


def _ask_engine(task: dict[str, Any], say: Callable[..., None]) -> None:
    tips = FreshTips(Settings.of(task["settings"]), emit=lambda event: say(say=EVENT, event=event))
    answers: SimpleQueue[str | None] = SimpleQueue()

    def listen() -> None:
        for line in sys.stdin.buffer:
            answers.put(json.loads(line)["scenario"])
        answers.put(None)
        tips.end()

    def wanted() -> Iterator[str]:
        say(say=WANT)
        while (scenario := answers.get()) is not None:
            yield scenario
            say(say=WANT)

    def keep(scenario: str, texts: tuple[str, ...], error: str | None) -> None:
        say(say=KEEP, scenario=scenario, texts=texts, error=error)

    threading.Thread(target=listen, daemon=True).start()
    tips.generate(decode_filed(task["filed"]), wanted=wanted(), keep=keep)


if __name__ == "__main__":
    main(sys.argv[1])
