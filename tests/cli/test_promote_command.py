"""`promote` as people and scripts use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from command import here, tipbench
from promoting_world import won

if TYPE_CHECKING:
    from pathlib import Path


def test_promoting_shows_what_serves_and_rolls_back(fresh_home: Path) -> None:
    """Each command shows what holds afterwards."""
    assert here("promote", "--status").out == "egreedy serves everybody\n"
    ran = here("promote", "hybrid", "--gate", won("hybrid"), "--canary", "0.25")
    assert ran.code == 0
    assert ran.out.splitlines()[:2] == [
        "hybrid is a canary for 25 % of the users; egreedy serves the others",
        "wait: not decided yet: reward of 0 decisions against 0, too few to compare",
    ]
    back = here("promote", "--rollback")
    assert (back.code, back.out.splitlines()[0]) == (0, "egreedy serves everybody")
    assert "rolled back" in back.out


def test_a_script_gets_everything_as_json(fresh_home: Path) -> None:
    """What is active, how the canary stands by metric, and what was done."""
    gate = won("linucb")
    told = tipbench("promote", "linucb", "--gate", gate, "--json").json
    assert (told["active"]["policy"], told["active"]["replaced"]) == ("linucb", "egreedy")
    assert (told["active"]["share"], told["active"]["gate"]) == (0.1, gate)
    assert [one["metric"] for one in told["canary"]["findings"]] == ["reward", "dismissed", "slow", "failed"]
    assert told["history"][0]["what"] == "promoted"
    assert here("promote", "--status", "--json").json == told


def test_a_refusal_exits_4_with_its_sentence(fresh_home: Path) -> None:
    """A gate that was not passed; the service's state stays as it was."""
    gate = won("hybrid", passed=False, outcome="refused")
    ran = tipbench("promote", "hybrid", "--gate", gate)
    assert (ran.code, ran.out) == (4, "")
    assert ran.err.startswith(f"tipbench: hybrid is not promoted: gate {gate} was not passed but refused")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("hybrid",),
        ("--gate", "0123456789abcdef"),
        ("hybrid", "--rollback"),
        ("--rollback", "--status"),
        ("--rollback", "--gate", "0123456789abcdef"),
        ("hybrid", "--gate", "0123456789abcdef"),
    ],
)
def test_what_makes_no_sense_is_told(arguments: tuple[str, ...], fresh_home: Path) -> None:
    """One sentence and exit code 2."""
    ran = here("promote", *arguments)
    assert ran.code == 2
    assert ran.err.startswith("tipbench: ")
