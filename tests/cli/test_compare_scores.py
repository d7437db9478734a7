"""`compare --scores` and `rank`: anyone's numbers ranked, without a ledger."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from command import TIPBENCH, tipbench
from on_terminal import on_terminal

SCORES = """\
model,prompt,scenario,composite
a,v1,s1,10
a,v1,s2,12
a,v1,s3,11
a,v1,s4,11
b,v1,s1,8
b,v1,s2,9.5
b,v1,s3,8
b,v1,s4,8.5
"""


@pytest.fixture
def scores(tmp_path: Path) -> str:
    path = tmp_path / "scores.csv"
    path.write_text(SCORES)
    return str(path)


def test_a_table_in_a_file_has_no_colour(
    scores: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where colours are forced on the terminal."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    file = tmp_path / "table.txt"
    assert tipbench("compare", "--scores", scores, "--out", str(file)).code == 0
    assert "\x1b" not in file.read_text()
    assert "a with v1 is the best of 2" in file.read_text()


def test_scores_need_no_ledger(scores: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is ranked in a process that never loads MLflow or scipy.stats, and makes no home."""
    home = tmp_path / "home"
    monkeypatch.setenv("TIPBENCH_HOME", str(home))
    code = (
        "import sys\nfrom tipbench.cli import app\n"
        f"app(['compare', '--scores', {scores!r}, '--format', 'json'], standalone_mode=False)\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(ran.stdout)["winner"] == {"model": "a", "prompt": "v1"}
    loaded = set(ran.stderr.split())
    assert {"numpy", "tipbench.compare.leaderboard"} <= loaded
    assert loaded.isdisjoint({"mlflow", "scipy.stats", "sqlalchemy"})
    assert not home.exists()


def test_scores_come_from_standard_input_too(scores: str) -> None:
    """`-` reads what is piped in; a mistake is named with its line; a closed input is no stack trace."""
    command = [*TIPBENCH, "compare", "--scores", "-", "--format", "json"]

    def piped(text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)

    assert json.loads(piped(SCORES).stdout)["title"] == "standard input"
    wrong = piped(SCORES.replace("9.5", "good"))
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("tipbench: -:7: the composite is 'good'")
    closed = subprocess.run(
        ["/bin/sh", "-c", '"$@" <&-', "sh", *command], capture_output=True, text=True, check=False
    )
    assert closed.returncode == 2
    assert closed.stderr.startswith("tipbench: - cannot be read")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", ": is empty"),
        (b"model,prompt,scenario,score\na,v1,s,1\n", ":1: there is no column 'composite'"),
        (b"model,prompt,scenario,composite\na,v1,s1,1\n,v1,s,1\n", ":3: the model is empty"),
        (b"model,prompt,scenario,composite\n\xff\xfe\n", "is not UTF-8 text"),
    ],
)
def test_a_bad_table_is_named_with_its_line(tmp_path: Path, text: bytes, words: str) -> None:
    """Exit 2 and the place of the mistake."""
    path = tmp_path / "bad.csv"
    path.write_bytes(text)
    told = tipbench("compare", "--scores", str(path))
    assert told.code == 2
    assert words in told.err


def test_a_table_that_is_too_large_is_refused_whole(tmp_path: Path) -> None:
    """Half of a table would be ranked without a word."""
    path = tmp_path / "large.csv"
    with path.open("wb") as file:
        file.truncate(300_000_000)
    told = tipbench("compare", "--scores", str(path))
    assert told.code == 2
    assert "larger than 200 MB" in told.err


def test_a_pipe_gets_tabs_and_everything(scores: str) -> None:
    """Nothing is cut off, nothing coloured, one line for each sentence."""
    told = tipbench("compare", "--scores", scores)
    assert (told.code, told.err) == (0, "")
    lines = told.out.splitlines()
    assert lines[0].split("\t")[:4] == ["", "model", "prompt", "composite"]
    assert lines[1].split("\t")[:4] == ["1", "a", "v1", "11.0"]
    assert lines[4] == "Winner: a × v1 (composite 11.0)"
    assert "a with v1 is the best of 2" in lines[5]
    assert "\x1b" not in told.out


def test_data_on_a_terminal_is_data(scores: str) -> None:
    """JSON and HTML are neither wrapped nor coloured, however narrow the terminal is."""
    code, text = on_terminal("compare", "--scores", scores, "--format", "json", columns=30)
    assert code == 0
    assert json.loads(text)["winner"] == {"model": "a", "prompt": "v1"}
    _, page = on_terminal("compare", "--scores", scores, "--format", "html", columns=30)
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "\x1b" not in page


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
def test_output_that_cannot_be_written_is_said(scores: str) -> None:
    """A full disk is one sentence and exit 3; a reader who has gone is none."""
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [*TIPBENCH, "compare", "--scores", scores, "--format", "md"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    assert ran.returncode == 3
    assert ran.stderr == "tipbench: standard output cannot be written (No space left on device)\n"


def test_rank_is_a_function_for_everybody() -> None:
    """`from tipbench import rank` ranks plain tuples, and loads neither MLflow nor scipy.stats for it."""
    code = """
import sys
from tipbench import rank
rows = [(m, "v1", f"s{n}", 10 + 2 * (m == "a") + n % 2) for m in "ab" for n in range(4)]
board = rank(rows + [("c", "v1", "s0", None)])
assert [row.model for row in board.rows] == ["a", "b", "c"], board
assert board.winner is None and board.rows[2].mean is None
points = {"a": (15, 16, 15, 17), "b": (9, 11, 10, 9)}
board = rank((name, "v1", at, one) for name, some in points.items() for at, one in enumerate(some))
assert board.winner == ("a", "v1") == board.recommended
print(*sys.modules)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    assert {"mlflow", "scipy.stats", "typer", "rich"}.isdisjoint(ran.stdout.split())


def test_a_self_check_says_how_often_equals_have_a_winner(scores: str, tmp_path: Path) -> None:
    """With two candidates a cell it prints a rate, with one it says that it cannot tell."""
    one = tipbench("compare", "--scores", scores, "--self-check")
    assert (one.code, "Self-check: cannot tell." in one.out) == (0, True)
    twice = tmp_path / "twice.csv"
    rows = SCORES.splitlines()
    twice.write_text(
        "\n".join([rows[0], *rows[1:], *(f"{row}.5".replace(".5.5", ".9") for row in rows[1:])]) + "\n"
    )
    two = tipbench("compare", "--scores", str(twice), "--self-check", "--format", "json")
    assert two.code == 0, two.err
    found = json.loads(two.out)
    assert found["self_check"]["splits"] == 200
    assert 0 <= found["self_check"]["rate"] <= 0.1
    assert found["notes"][0].startswith("Self-check: a board like this named a winner")
