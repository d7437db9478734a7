"""`ship` as it is typed: what it says, where, and every exit code."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from command import here, tipbench
from compared_worlds import BIG, SMALL
from judged_world import plant
from shipped_world import plant_judged
from tipbench.ledger import open_ledger
from tipbench.suite import load_suite
from verdict_planting import ANNA, judge

if TYPE_CHECKING:
    from pathlib import Path

    from tipbench.records import CellResult


@pytest.fixture(scope="module")
def planted(made_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("planted") / "home"
    shutil.copytree(made_home, home)
    plant_judged("won", "tied", "unsure", "rules", "raw", ledger=open_ledger("", home=home))
    return home


@pytest.fixture(autouse=True)
def home(fresh_home: Path, planted: Path) -> Path:
    shutil.copytree(planted, fresh_home)
    return fresh_home


def test_from_shipping_to_rolling_back() -> None:
    """Ship, see, ship another, see both, go back, and be told where the road ends."""
    assert "nothing is shipped yet" in here("ship").out
    assert here("ship", "--history").out == "nothing is shipped yet\n"
    first = here("ship", "--experiment", "won")
    assert first.code == 0, first.err
    assert first.out.startswith("shipped a-big:1b with v1, 16.50 (")
    assert "version 1 of tipbench-tip" in first.out
    assert "Next: " in first.out
    assert first.err.startswith("Judge drift not checked")
    second = here("ship", "--experiment", "tied", "--json")
    assert (second.json["model"], second.json["because"], second.json["replaces"]) == (
        *("b:500m", "recommended"),
        1,
    )
    assert second.err.splitlines()[-1].startswith("replaces a-big:1b with v1, 16.50 (")
    status = here("ship", "--status")
    assert status.out.startswith("b:500m with v1, ")
    assert "(recommended), of experiment tied" in status.out
    assert here("ship", "--status", "--json").json == here("ship", "--json").json == second.json
    back = here("ship", "--rollback")
    assert back.out.startswith("back to a-big:1b with v1, 16.50")
    header, one, two = here("ship", "--history").out.splitlines()
    assert header.split("\t")[:3] == ["version", "state", "model"]
    assert one.split("\t")[:4] == ["1", "shipped", "a-big:1b", "v1"]
    assert two.split("\t")[:4] == ["2", "not in use", "b:500m", "v1"]
    assert [row["state"] for row in here("ship", "--history", "--json").json] == ["shipped", "not in use"]
    end = here("ship", "--rollback")
    assert (end.code, end.out) == (2, "")
    assert "there is nothing before it to go back to" in end.err


def test_a_best_guess_exits_4_with_the_tie_group() -> None:
    """Standard output stays empty; standard error lists the tied variants and the next options."""
    refused = here("ship", "--experiment", "unsure")
    assert (refused.code, refused.out) == (4, "")
    assert "  a-big:1b/v1" in refused.err
    assert "  b:500m/v1" in refused.err
    assert "--recommended to ship the best guess a-big:1b with v1" in refused.err
    assert here("ship", "--json").json is None
    guess = here("ship", "--experiment", "unsure", "--recommended")
    assert (guess.code, guess.out.startswith("shipped a-big:1b with v1")) == (0, True)
    assert "is the best guess" in guess.err
    named = here("ship", "--experiment", "unsure", "--cell", "b:500m/v1")
    assert (named.code, named.out.startswith("shipped b:500m with v1")) == (0, True)


def test_accept_loss_and_cost_decide_what_is_shipped() -> None:
    """`ship` recommends with the same two options as `compare`, and names the winner beside what it ships."""
    large = here("ship", "--experiment", "won", "--accept-loss", "6")
    assert (large.code, large.out.startswith("shipped b:500m with v1, ")) == (0, True)
    assert "a-big:1b with v1 is the best of 2" in large.err
    assert "at most 6 points worse than the best with" in large.err
    small = here("ship", "--experiment", "tied", "--accept-loss", "0.2")
    assert (small.code, small.out.startswith("shipped a-big:1b with v1, ")) == (0, True)
    assert "at most 0.2 points worse" in small.err
    unmeasured = here("ship", "--experiment", "tied", "--cost", "memory")
    assert (unmeasured.code, unmeasured.out.startswith("shipped a-big:1b with v1, ")) == (0, True)
    quick = here("ship", "--experiment", "tied", "--cost", "seconds")
    assert (quick.code, quick.out.startswith("shipped b:500m with v1, ")) == (0, True)


@pytest.mark.parametrize(
    ("typed", "code", "words"),
    [
        (("--experiment", "raw"), 4, "nothing of experiment 'raw' is judged yet"),
        (("--experiment", "rules"), 4, "would stand on proxy alone"),
        (("--experiment", "rules"), 4, "--insist with --cell MODEL/PROMPT to ship one all the same"),
        (("--experiment", "none"), 2, "there is no experiment 'none'"),
        (("--experiment", "won", "--cell", "x/v1"), 2, "there is no combination 'x/v1'"),
        (("--experiment", "won", "--cell", "b:500m/v1", "--recommended"), 2, "give one of them"),
        (("--experiment", ""), 2, "--experiment is empty"),
        (("--experiment", "won", "--cell", ""), 2, "--cell is empty"),
        (("--experiment", "won", "--rollback"), 2, "exclude each other"),
        (("--status", "--history"), 2, "exclude each other"),
        (("--recommended",), 2, "of an --experiment; name it"),
        (("--accept-loss", "1"), 2, "of an --experiment; name it"),
        (("--cost", "memory"), 2, "of an --experiment; name it"),
        (("--experiment", "won", "--accept-loss", "nan"), 2, "--accept-loss must be a number of points"),
        (("--experiment", "won", "--accept-loss", "inf"), 2, "--accept-loss must be a number of points"),
        (("--experiment", "won", "--insist"), 2, "name with --cell"),
        (("--rollback",), 2, "nothing is shipped for the suite 'tip'"),
        (("--rollback", "--mlflow-url", "http://127.0.0.1:9"), 3, "cannot be reached"),
    ],
)
def test_every_refusal_has_its_exit_code(typed: tuple[str, ...], code: int, words: str) -> None:
    """One sentence on standard error, nothing on standard output, nothing shipped."""
    refused = here("ship", *typed)
    assert (refused.code, refused.out) == (code, "")
    assert words in refused.err
    assert here("ship", "--json").json is None


def test_what_was_insisted_on_says_so() -> None:
    """A named combination that only the proxy judged is shipped with that as its first word."""
    told = here("ship", "--experiment", "rules", "--cell", "a-big:1b/v1", "--insist")
    assert told.code == 0
    assert told.err.startswith("Scores come from simple word rules (the proxy judge). Do not ship on them.")


def test_the_status_is_known_while_mlflow_is_away(home: Path) -> None:
    """From the file, with a word that the server cannot be reached; a damaged file is exit 3 and named."""
    here("ship", "--experiment", "won")
    path = home / "shipped.json"
    path.write_text(path.read_text().replace(str(open_ledger("", home=home).uri), "http://127.0.0.1:9"))
    away = here("ship", "--status", "--mlflow-url", "http://127.0.0.1:9")
    assert (away.code, away.out.startswith("a-big:1b with v1")) == (0, True)
    assert "this is what this machine serves meanwhile" in away.err
    path.write_text("{")
    refused = here("ship", "--status")
    assert (refused.code, refused.out) == (3, "")
    assert str(path) in refused.err


def test_help_teaches() -> None:
    """What it does, what on a tie, where it is recorded, and an example."""
    told = tipbench("ship", "--help").out
    for words in ("exits 4", "--recommended", "registered model", "Example: tipbench ship", "--rollback"):
        assert words in told


def test_ship_names_what_it_replaces_of_whatever_suite(home: Path, tmp_path: Path) -> None:
    """A first release replaces nothing; one of another suite names the model, prompt, version and suite."""
    folder = tmp_path / "mine"
    shutil.copytree(load_suite("tip").path, folder)
    main = folder / "suite.yaml"
    main.write_text(main.read_text().replace("id: tip", "id: mine"))
    plant("mine", quality={BIG: 3.0, SMALL: 3.0}, suite=str(folder))
    judge(open_ledger("", home=home), "mine", ANNA, lambda _run, _slot: 9)
    assert "replaces" not in here("ship", "--experiment", "won").out
    assert "replaces" not in here("ship", "--experiment", "won").out
    own = here("ship", "--experiment", "mine", "--cell", "b:500m/v1", "--suite", str(folder))
    assert own.code == 0, own.err
    (line,) = (line for line in own.out.splitlines() if "replaces" in line)
    assert line.startswith("  replaces a-big:1b with v1, 16.50 (")
    assert line.endswith("version 1 of tipbench-tip")


def test_a_variant_is_named_with_the_option_that_tells_it_apart(home: Path) -> None:
    """`ship`, its status, its history and "replaces …" name the temperature of a variant; an old release and
    one without another variant have the model and the prompt alone.
    """

    def colder(one: CellResult) -> CellResult:
        cold = replace(one.cell.sampling, temperature=0.2)
        return replace(one, cell=replace(one.cell, sampling=cold, repeat=0)) if one.cell.repeat else one

    ledger = open_ledger("", home=home)
    plant("mixed", quality={BIG: 3.0}, repeats=2, changed=colder, ledger=ledger)
    judge(ledger, "mixed", ANNA, lambda _run, _slot: 12)
    cold, warm = "a-big:1b · v1 · t=0.2", "a-big:1b · v1 · t=0.7"
    assert here("ship", "--experiment", "won").out.startswith("shipped a-big:1b with v1, ")
    first = here("ship", "--experiment", "mixed", "--cell", cold)
    assert first.code == 0, first.err
    assert first.out.startswith(f"shipped {cold}, 14.00")
    second = here("ship", "--experiment", "mixed", "--cell", warm)
    assert f"  replaces {cold}, 14.00" in second.out
    assert here("ship", "--status").out.startswith(f"{warm}, 14.00")
    assert here("ship", "--status", "--json").json["label"] == warm
    rows = [line.split("\t")[2:4] for line in here("ship", "--history").out.splitlines()[1:]]
    assert rows == [["a-big:1b", "v1"], ["a-big:1b", "v1 · t=0.2"], ["a-big:1b", "v1 · t=0.7"]]
    assert here("ship", "--rollback").out.startswith(f"back to {cold}, ")
    again = here("ship", "--experiment", "mixed", "--cell", cold)
    assert "version 2 of tipbench-tip" in again.out
    assert "replaces" not in again.out
