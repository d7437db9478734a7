"""Commands in messages work as printed, for another experiment and another ledger than the usual ones."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from typing import TYPE_CHECKING

import pytest

from command import here
from compared_worlds import flat
from judged_world import plant
from tipbench.ledger import open_ledger
from tipbench.settings import home
from tipbench.suite import load_suite
from verdict_planting import ANNA, BEN, PROXY, judge

if TYPE_CHECKING:
    from pathlib import Path

    from command import Ran
    from tipbench.ledger import MlflowLedger

NAME = "tips of may"
GOOD, POOR = ("big:1b", "v1"), ("small:500m", "v1")


@pytest.fixture
def url(tmp_path: Path, made_home: Path, fresh_home: Path) -> str:
    assert fresh_home
    shutil.copyfile(made_home / "mlflow.db", tmp_path / "other.db")
    return f"sqlite:///{tmp_path / 'other.db'}"


@pytest.fixture
def ledger(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MlflowLedger:
    """An experiment that nobody has judged, in a ledger of its own; commands run in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    place = open_ledger(url, home=home())
    plant(NAME, quality={GOOD: 4.0, POOR: 2.0}, ledger=place)
    return place


def run_printed(text: str, *words: str) -> Ran:
    """Run the command in the text that begins with these words."""
    found = re.search(rf"tipbench ({' '.join(words)} [^`)\n;]*)", text)
    assert found, text
    return here(*shlex.split(found[1]))


def test_a_ranking_by_the_proxy_names_the_export(ledger: MlflowLedger, url: str) -> None:
    """`compare` and `ship` refuse it, and the command that they print exports the candidates."""
    judge(ledger, NAME, PROXY, flat(9))
    refused = here("compare", NAME, "--mlflow-url", url)
    assert refused.code == 4
    ran = run_printed(refused.err, "judge", "export")
    assert ran.code == 0, ran.err
    refused = here("ship", "--experiment", NAME, "--mlflow-url", url)
    assert f"--experiment '{NAME}' --mlflow-url {url}" in refused.err


@pytest.mark.parametrize(
    ("typed", "options"),
    [
        (("--experiment", NAME, "--export"), ()),
        (("export", NAME, "--all", "--out"), ("--judge", "ann o'hara", "--tips-per-cell", "1")),
        (("export", NAME, "--out"), ("--size", "40")),
    ],
)
@pytest.mark.usefixtures("ledger")
def test_batches_are_handed_out_again(
    url: str, tmp_path: Path, typed: tuple[str, ...], options: tuple[str, ...]
) -> None:
    """An export with nothing left prints a command that writes the open batches again, for the same judge."""
    where = (*options, "--mlflow-url", url)
    first = here("judge", *typed, "first.json", *where)
    assert first.code == 0, first.err
    refused = here("judge", *typed, "second.json", *where)
    assert refused.code == 2, refused.out
    again = run_printed(refused.err, "judge", "export")
    assert again.code == 0, again.err
    before, after = (json.loads((tmp_path / name).read_text()) for name in ("first.json", "open.json"))
    assert before == after


def test_accepted_drift_names_the_status(ledger: MlflowLedger, url: str) -> None:
    """The first line of `compare` prints the command that shows the accepted drift."""
    judge(ledger, NAME, ANNA, flat(9), drift_z=4.0, drift_accepted=True)
    shown = here("compare", NAME, "--mlflow-url", url)
    ran = run_printed(shown.out, "judge", "status")
    assert ran.code == 0, ran.err
    assert "accepted in 1 application" in ran.out


def test_the_status_names_what_to_do_next(ledger: MlflowLedger, url: str, tmp_path: Path) -> None:
    """The commands for people, for a second judge, for an adjudication and for the anchors work."""
    judge(ledger, NAME, PROXY, flat(9))
    status = here("judge", "status", NAME, "--mlflow-url", url).out
    assert "16 different texts judged by a model or the proxy alone" in status
    assert run_printed(status, "judge", "export").code == 0
    judge(ledger, NAME, ANNA, flat(5))
    status = here("judge", "status", NAME, "--mlflow-url", url).out
    assert run_printed(status, "judge", "anchors", "export").code == 0
    (tmp_path / "batch.json").unlink()
    assert run_printed(status.replace("NAME", "ben"), "judge", "export", "--second").code == 0
    judge(ledger, NAME, BEN, flat(13))
    status = here("judge", "status", NAME, "--mlflow-url", url).out
    assert "16 texts to adjudicate" in status
    (tmp_path / "batch.json").unlink()
    assert run_printed(status, "judge", "export", "--adjudicate").code == 0


@pytest.mark.parametrize("newer", ["now", "then"])
def test_a_baseline_of_another_rubric_names_the_experiment_to_judge_anew(
    ledger: MlflowLedger, url: str, tmp_path: Path, newer: str
) -> None:
    """It is the one that the suite has a newer rubric for; once it is judged anew, the two are compared."""
    folder = tmp_path / "suite"
    shutil.copytree(load_suite("tip").path, folder)
    older = "then" if newer == "now" else "now"
    judge_planted(ledger, older, folder)
    rubric = folder / "rubric.md"
    rubric.write_text(f"{rubric.read_text()}\nOne more line.\n")
    judge_planted(ledger, newer, folder)
    asked = ("compare", "now", "--baseline", "then", "--mlflow-url", url)
    refused = here(*asked)
    assert refused.code == 2
    assert f"or judge {older!r} anew: " in refused.err
    assert f"--experiment {newer}" not in refused.err
    ran = run_printed(refused.err, "judge", "export")
    assert ran.code == 0, ran.err
    judge(ledger, older, ANNA, flat(9))
    compared = here(*asked)
    assert (compared.code, "4 shared scenarios, 8 are needed" in compared.out) == (5, True)


def test_two_experiments_under_older_rubrics_are_both_judged_anew(
    ledger: MlflowLedger, url: str, tmp_path: Path
) -> None:
    """Both commands work one after the other; without the folder of the suite no command is printed."""
    folder = tmp_path / "suite"
    shutil.copytree(load_suite("tip").path, folder)
    rubric = folder / "rubric.md"
    for name in ("then", "now"):
        judge_planted(ledger, name, folder)
        rubric.write_text(f"{rubric.read_text()}\nOne more line.\n")
    refused = here("compare", "now", "--baseline", "then", "--mlflow-url", url).err
    commands = re.findall(r"`tipbench (judge export [^`]*)`", refused)
    assert [shlex.split(one)[6] for one in commands] == ["then", "now"]
    assert [here(*shlex.split(one)).code for one in commands] == [0, 0]
    judge_planted(ledger, "other", folder)
    shutil.rmtree(folder)
    plant("built-in", quality={GOOD: 4.0}, ledger=ledger)
    judge(ledger, "built-in", ANNA, flat(9))
    refused = here("compare", "other", "--baseline", "built-in", "--mlflow-url", url).err
    assert refused.endswith("give a --baseline judged under the same rubric")


def judge_planted(ledger: MlflowLedger, name: str, folder: Path) -> None:
    plant(name, quality={GOOD: 4.0, POOR: 2.0}, ledger=ledger, suite=str(folder))
    judge(ledger, name, ANNA, flat(9), batch_id=f"b-{name}")
