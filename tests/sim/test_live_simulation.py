"""`sim run --url` against the real `tipbench serve --only tips`: the same numbers as in process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from command import here
from tip_service import ONLY_TIPS, SEED, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tip_service import TipService

SMALL = ("--users", "6", "--rounds", "25", "--no-record", "--json")
EACH_USER = ("egreedy", "egreedy-v2", "linucb", "thompson", "random")


@pytest.fixture
def service(fresh_home: Path) -> Iterator[TipService]:
    with serving(fresh_home, *ONLY_TIPS) as service:
        yield service


def ran(*arguments: str) -> dict[str, Any]:
    done = here("sim", "run", *SMALL, *arguments)
    assert done.code == 0, done.err
    return dict(done.json)


def numbers(report: dict[str, Any]) -> list[dict[str, Any]]:
    """All that was found, but for how long it took."""
    return [{name: value for name, value in row.items() if name != "seconds"} for row in report["rows"]]


def test_policies_that_learn_of_each_user_alone_give_the_same_numbers(service: TipService) -> None:
    """Regret, its interval, reward, personas and curves are equal over two seeds, and so is every choice."""
    asked = ("--policies", ",".join(EACH_USER), "--seeds", "2", "--serve-seed", SEED)
    over_http = ran(*asked, "--url", service.url)
    assert numbers(over_http) == numbers(ran(*asked))
    assert over_http["notes"] == [
        f"{name}: the service chose as in process in 100 % of the decisions" for name in EACH_USER
    ]


def test_a_policy_that_learns_of_all_users_gives_the_same_numbers_in_a_fresh_service(
    service: TipService,
) -> None:
    """With one seed, rewards are told in the order in which they are learned in process."""
    asked = ("--policies", "hybrid", "--seeds", "1", "--world", "drift", "--serve-seed", SEED)
    over_http = ran(*asked, "--url", service.url)
    assert numbers(over_http) == numbers(ran(*asked))
    assert "100 % of the decisions" in over_http["notes"][-1]


def test_another_seed_explores_otherwise(service: TipService) -> None:
    """The comparison can fail: with a seed that is not the service's, choices differ."""
    said = ran("--policies", "random", "--seeds", "1", "--serve-seed", "other", "--url", service.url)["notes"]
    assert "100 %" not in said[-1]
    assert "was it started with this seed" in said[-1]
