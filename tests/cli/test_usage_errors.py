"""Usage errors have the form of all other messages: one sentence, exit code 2, and a suggestion."""

from __future__ import annotations

import pytest

from command import here, tipbench


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (("colect",), "there is no command 'colect'; did you mean 'collect'?"),
        (("judge", "exprt"), "there is no command 'judge exprt'; did you mean 'export'?"),
        (("collect", "--model", "x"), "there is no option --model; did you mean '--models'?"),
        (("compare", "--format", "htm"), "did you mean 'html'?"),
        (("compare", "--format", "pdf"), "--format: 'pdf' is not one of table, json, csv, md, html; see `"),
        (("compare", "--max-latency-ms", "abc"), "--max-latency-ms: takes a number; see `"),
        (("serve", "--port", "abc"), "--port: takes a whole number; see `"),
        (("ship", "--cell"), "--cell needs a value; see `"),
        (("show",), "RUN is missing; see `"),
        (("show", "a", "b"), "unexpected argument: b; see `"),
        (("token", "create"), "--name is missing; see `"),
        (("--bogus",), "there is no option --bogus; see `"),
        (("suite",), "suite needs a command: new, import, check, list; see `"),
        (("judge", "anchors"), "judge anchors needs a command: list, add, export; see `"),
        (("bandit",), "bandit needs a command: "),
        (("token",), "token needs a command: "),
    ],
)
def test_a_usage_error_is_one_sentence(typed: tuple[str, ...], sentence: str) -> None:
    """It names the mistake and what to type or where to look; there is no box and no usage block."""
    ran = here(*typed)
    assert (ran.code, ran.out) == (2, "")
    assert sentence in ran.err
    assert len(ran.err.splitlines()) == 1
    for odd in ("Value error", "Usage:", "╭", "Traceback"):
        assert odd not in ran.err


def test_the_real_command_prints_the_sentence_once() -> None:
    """Standard error has one line that begins with the program's name."""
    ran = tipbench("colect")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "tipbench: there is no command 'colect'; did you mean 'collect'?\n"


def test_without_arguments_the_help_is_printed() -> None:
    """The help is what a newcomer needs; the exit code is that of a usage error."""
    ran = tipbench()
    assert ran.code == 2
    assert "Usage: " in ran.out
    assert "collect" in ran.out


def test_help_and_version_succeed() -> None:
    """Exit code 0 for both, in the root and in a command."""
    assert [here(*typed).code for typed in (("--help",), ("judge", "--help"), ("--version",))] == [0, 0, 0]


def test_hints_name_the_command_as_it_is_typed_here() -> None:
    """A command in a message is written like the one that was run, so that it can be copied."""
    ran = tipbench("show")
    assert "-m tipbench show --help`" in ran.err
