"""The suite that an experiment remembers: its folder while the texts there are unchanged, or stored texts."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tipbench.errors import BadInput, PinConflict, TipbenchError
from tipbench.suite import load_suite, suite_from_texts
from tipbench.suite.load import find_suite
from tipbench.suite.rubric_file import rubric_from_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tipbench.records import Ledger, Pin
    from tipbench.suite import Rubric, Suite

_MOST_FILES = 10_000

# No message in this file names the place of a suite: judges read some of them.


def remembered_suite(
    ledger: Ledger, experiment: str, pin: Pin, rubric: Rubric, *, new_rubric: bool = False
) -> Suite:
    """The suite of an experiment that remembers one. With `new_rubric`, as its folder is now.

    BadInput where neither a folder nor the stored texts have all that the experiment was collected with.
    """
    if new_rubric:
        return _with_new_rubric(experiment, pin)
    unchanged = unchanged_suite(pin)
    if unchanged is not None:
        return unchanged
    stored = stored_suite(ledger, experiment, pin, rubric)
    if stored is None:
        raise BadInput(
            f"experiment {experiment!r} stores too little of its suite {pin.suite_id!r}, whose folder is "
            "gone or has changed; give the folder with its texts as they were with --suite"
        )
    return stored


def is_remembered(ledger: Ledger, experiment: str, pin: Pin) -> bool:
    """Whether the folder or the stored texts have all that the experiment was collected with."""
    rubric = rubric_from_text(pin.rubric_text, name=f"the rubric of experiment {experiment!r}")
    return unchanged_suite(pin) is not None or stored_suite(ledger, experiment, pin, rubric) is not None


def is_of_suite(place: str, pin: Pin) -> bool:
    """Whether the suite at this place has the id of the suite that the experiment was collected with."""
    try:
        return load_suite(place).id == pin.suite_id
    except (TipbenchError, OSError):
        return False


def _with_new_rubric(experiment: str, pin: Pin) -> Suite:
    at_hand = list(suites_at_hand(pin))
    if not at_hand:
        raise BadInput(
            f"experiment {experiment!r}: --new-rubric takes the rubric from the folder of the suite "
            f"{pin.suite_id!r}, which is not where it was; give that folder with --suite"
        )
    for suite in at_hand:
        if not changed_scenarios(suite, pin):
            return suite
    name = changed_scenarios(at_hand[0], pin)[0]
    raise PinConflict(
        f"experiment {experiment!r}: the scenario {name!r} of its suite has changed since it was collected; "
        "restore its text, or collect under a new experiment"
    )


def unchanged_suite(pin: Pin) -> Suite | None:
    """The suite at a remembered place that still has every text that the experiment is pinned to."""
    for suite in suites_at_hand(pin):
        prompts = {one.id: one.hash for one in suite.prompts}
        same = suite.rubric.hash == pin.rubric_hash and prompts.items() >= pin.prompts.items()
        if same and not changed_scenarios(suite, pin):
            return suite
    return None


def suites_at_hand(pin: Pin) -> Iterator[Suite]:
    """The suites of this id that can be read at the remembered places, whatever their texts are now."""
    for one in pin.places:
        try:
            suite = _loaded(one.place, _state_of_files(one.place))
        except (TipbenchError, OSError):
            continue
        if suite.id == pin.suite_id:
            yield suite


@lru_cache(maxsize=8)
def _loaded(place: str, _state: tuple[tuple[str, int, int], ...]) -> Suite:
    """The suite at a place. Reading 250 scenarios takes 55 ms, so an unchanged suite is read once."""
    return load_suite(place)


def _state_of_files(place: str) -> tuple[tuple[str, int, int], ...]:
    """The files of a suite with their times and sizes. Other values mean that it must be read again."""
    folder = find_suite(place).path
    files = sorted([*folder.glob("*"), *folder.glob("prompts/*")])[:_MOST_FILES]
    stats = [(path, path.stat()) for path in files]
    return tuple((str(path), stat.st_mtime_ns, stat.st_size) for path, stat in stats)


def stored_suite(ledger: Ledger, experiment: str, pin: Pin, rubric: Rubric) -> Suite | None:
    """The suite from the texts that the experiment stores; None where they lack a pinned scenario."""
    return suite_from_texts(ledger.suite_texts(experiment), pin=pin, rubric=rubric)


def changed_scenarios(suite: Suite, pin: Pin) -> list[str]:
    """The ids of the pinned scenarios that the suite lacks or has with another text."""
    hashes = {one.id: one.hash for one in suite.scenarios}
    return [name for name, pinned in pin.scenarios.items() if hashes.get(name) != pinned]
