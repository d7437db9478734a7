"""Which suite the learned state belongs to. Each shipped suite has its own, under keys of its own.

Two values under `choices` decide: the suite that is served now, and the first one that was ever served. The
first suite owns the plain keys, which also hold what was learned before anything was shipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tipbench.bandit.books import Changes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tipbench.bandit.books import Books

CURRENT, FIRST = "suite", "first_suite"


def owner_of_state(choices: Mapping[str, str]) -> str:
    """Return the suite whose state is in use: empty for the first suite, and before anything is shipped."""
    current = choices.get(CURRENT, "")
    return "" if current == choices.get(FIRST, "") else current


def state_key(policy: str, owner: str) -> str:
    """Return the name under which a policy's state is stored for a suite. No suite id contains an @."""
    return f"{policy}@{owner}" if owner else policy


def use_suite(books: Books, suite_id: str) -> None:
    """Use this suite's state from now on, in every process. Does nothing if it is in use already."""
    with books.reading() as reading:
        if reading.choices().get(CURRENT) == suite_id:
            return
    with books.transaction() as tx:
        first = {} if FIRST in tx.choices() else {FIRST: suite_id}
        tx.write(Changes(choices={CURRENT: suite_id, **first}))
