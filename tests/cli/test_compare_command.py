"""`compare` as it is typed: every format, on a terminal, in a pipe and in a file; every exit code."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import pytest

from command import TIPBENCH, Ran
from compared_worlds import BIG, CLOSE, SMALL
from judged_world import plant
from on_terminal import on_terminal
from tipbench.cli import app
from tipbench.compare.leaderboard import Leaderboard, LeaderboardRow
from tipbench.compare.report import Facts
from tipbench.errors import TipbenchError
from tipbench.ledger import open_ledger
from verdict_planting import ANNA, PROXY, anchor, by_scenario, judge

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tipbench.records import CellResult

    Run = Callable[..., Ran]

FORMS = ("table", "json", "csv", "md", "html")
ROW_NAMES = (
    "model", "prompt", "n_scenarios", "n_judged", "mean", "low", "high", "estimate", "behind", "behind_low",
    "behind_high", "p_value", "level", "tied_for_first", "p_best", "p_loss", "clusters_ahead", "n_clusters",
)  # fmt: skip


def measured(one: CellResult) -> CellResult:
    """The larger model is the faster one."""
    latency_ms = 100.0 if one.cell.model.name == BIG[0] else 900.0
    return replace(one, completion=one.completion and replace(one.completion, latency_ms=latency_ms))


@pytest.fixture(scope="module")
def planted(made_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a winner, a better one before it, one by the proxy, an unjudged one, a tie, and two
    experiments with a small drop between them.
    """
    home = tmp_path_factory.mktemp("planted") / "home"
    shutil.copytree(made_home, home)
    ledger = open_ledger("", home=home)
    for name in ("may", "april", "rules", "raw", "tied"):
        plant(name, quality={BIG: 3.0, SMALL: 3.0}, n_tips=1, ledger=ledger, changed=measured)
    for name in ("new", "old"):
        plant(name, quality={BIG: 3.0, SMALL: 3.0}, n_scenarios=8, n_tips=1, ledger=ledger)
    old = {BIG: (15, 14, 15, 14, 13, 14, 15, 14), SMALL: (13, 14, 13, 13, 14, 13, 13, 13)}
    judge(ledger, "old", ANNA, by_scenario(old), batch_id="o")
    new = {BIG: old[BIG], SMALL: (12, 12, 13, 12, 13, 12, 12, 12)}
    judge(ledger, "new", ANNA, by_scenario(new), batch_id="e")
    judge(ledger, "tied", ANNA, by_scenario(CLOSE), batch_id="t")
    ahead = by_scenario({BIG: (15, 14, 15, 14), SMALL: (11, 10, 10, 11)})
    judge(ledger, "may", ANNA, ahead, batch_id="m")
    before = by_scenario({BIG: (15, 15, 15, 14), SMALL: (14, 14, 13, 14)})
    judge(ledger, "april", ANNA, before, batch_id="a", anchors=[anchor(1, by_people=False)], drift_z=0.2)
    judge(ledger, "rules", PROXY, ahead, batch_id="r")
    return home


@pytest.fixture
def home_of_all(planted: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIPBENCH_HOME", str(planted))
    for name in ("MLFLOW_TRACKING_URI", "TIPBENCH_MLFLOW_HOST_HEADER"):
        monkeypatch.delenv(name, raising=False)
    return planted


@pytest.fixture
def run(home_of_all: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command within this process, as importing MLflow anew takes seconds."""

    def command(*arguments: str) -> Ran:
        code = 0
        try:
            app(["compare", *arguments], standalone_mode=False)
        except TipbenchError as error:
            code = error.exit_code
            print(f"tipbench: {error}", file=sys.stderr)  # noqa: T201 - as `main` does
        out, err = capsys.readouterr()
        return Ran(code=code, out=out, err=err)

    return command


@pytest.fixture
def scores(tmp_path: Path) -> str:
    path = tmp_path / "scores.csv"
    path.write_text("model,prompt,scenario,composite\na,v1,s1,10\nb,v1,s1,8\n")
    return str(path)


def test_json_has_the_names_of_rank(run: Run) -> None:
    """Exactly the names of the leaderboard and its rows, the facts beside them, and what must be known."""
    told = run("--experiment", "may", "--format", "json").json
    board = {field.name for field in fields(Leaderboard)}
    beside = {
        "title",
        "made_ms",
        "rubric",
        "ground",
        "first",
        "sentences",
        "notes",
        "exploration",
        "baseline",
        "self_check",
        "hosts",
    }
    assert set(told) == board | beside
    rows = {field.name for field in fields(LeaderboardRow)}
    facts = {field.name for field in fields(Facts)} - {"candidates", "by_host"} | {"label"}
    assert all(set(row) == rows | facts for row in told["rows"])
    assert rows == {*ROW_NAMES, "n_unjudged", "p_values"}
    assert board >= {"rows", "winner", "recommended", "recommended_because", "detectable", "scenarios_needed"}
    assert board >= {"margin", "margin_from", "accepted_p_loss", "level", "exploratory", "n_clusters"}
    assert (told["margin"], told["margin_from"], told["recommended_because"]) == (0.75, "scale", "winner")
    assert told["winner"] == told["recommended"] == {"model": BIG[0], "prompt": BIG[1]}
    assert (told["ground"], told["rubric"], told["rows"][0]["mean"]) == ("human", "tip-v1", 16.5)
    assert told["rows"][0]["scales"] == {"relevance": 5.0, "actionability": 5.0, "tone": 4.5}


@pytest.mark.parametrize("form", ["table", "md", "html", "json"])
def test_every_format_says_first_what_must_be_known(run: Run, form: str, tmp_path: Path) -> None:
    """Unchecked drift and a provisional check are in what is printed and in what is written to a file."""
    for name, words in (("may", "Judge drift not checked"), ("april", "The drift check is provisional")):
        printed = run("--experiment", name, "--format", form)
        assert printed.code == 0, printed.err
        assert words in printed.out
        file = tmp_path / "report"
        told = run("--experiment", name, "--format", form, "--out", str(file))
        assert (told.code, told.out) == (0, "")
        assert "written to" in told.err
        assert words in file.read_text()
        assert "a-big:1b" in file.read_text()


def test_csv_has_a_line_for_each_combination(run: Run) -> None:
    """The names of JSON, scales and scenarios as columns of their own, whole numbers in full."""
    told = run("--experiment", "may", "--format", "csv")
    first, second = csv.DictReader(io.StringIO(told.out))
    assert set(ROW_NAMES) < set(first)
    assert (first["model"], first["mean"], first["scales.tone"]) == (BIG[0], "16.5", "4.5")
    assert second["tied_for_first"] == "false"
    assert float(second["p_values.paired"]) == float(second["p_value"])
    assert told.err.startswith("Judge drift not checked")


def test_html_is_one_file_with_nothing_from_elsewhere(run: Run) -> None:
    """The page loads nothing, and what each cell wrote unfolds in it."""
    page = run("--experiment", "may", "--format", "html").out
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", page)
    assert "breaths." in page


@pytest.mark.parametrize("form", ["table", "json", "csv", "md", "html"])
def test_nothing_judged_is_no_error_in_any_format(run: Run, form: str) -> None:
    """Exit 0, winner null, and a sentence that says so wherever sentences are."""
    told = run("--experiment", "raw", "--format", form)
    assert (told.code, told.err) == (0, "")
    if form == "json":
        assert (told.json["winner"], told.json["recommended"], told.json["ground"]) == (None, None, None)
    if form == "csv":
        assert [row["mean"] for row in csv.DictReader(io.StringIO(told.out))] == ["", ""]
    else:
        assert "Nothing is judged yet, so nothing can be said." in told.out


def test_the_proxy_alone_fails_the_check_unless_insisted_on(run: Run) -> None:
    """Exit 4 and one sentence; with --insist the first line says on what it stands, in every format."""
    refused = run("--experiment", "rules")
    assert (refused.code, refused.out) == (4, "")
    assert "would stand on proxy alone" in refused.err
    assert run("--experiment", "rules", "--insist").out.startswith(
        "Scores come from simple word rules (the proxy judge). Do not ship on them."
    )
    told = run("--experiment", "rules", "--insist", "--format", "json").json
    assert told["first"][0].startswith("Scores come from simple word rules")
    assert (told["winner"], told["recommended"]) == ({"model": BIG[0], "prompt": BIG[1]}, None)
    page = run("--experiment", "rules", "--insist", "--format", "md").out
    assert page.splitlines()[2].startswith("> **Scores come from simple word rules")


def test_a_drop_from_the_baseline_exits_4_after_the_report(run: Run, tmp_path: Path) -> None:
    """The command prints the whole report, then exits 4 with the drop."""
    dropped = run("--experiment", "may", "--baseline", "april")
    assert dropped.code == 4
    assert "BLOCK: dropped by more than the margin of 0.5 beyond chance: b:500m with v1" in dropped.err
    assert "would block four times in five" in dropped.out
    assert "Scenarios that became worse: b:500m with v1: " in dropped.out
    file = tmp_path / "report.json"
    assert run("--experiment", "may", "--baseline", "april", "--format", "json", "--out", str(file)).code == 4
    told = json.loads(file.read_text())["baseline"]
    assert (told["passed"], told["result"]) == (False, "BLOCK")
    assert {row["model"]: row["result"] for row in told["rows"]}[SMALL[0]] == "BLOCK"


def test_a_baseline_that_cannot_be_compared_exits_5_after_the_report(run: Run) -> None:
    """Fewer than 8 shared scenarios without a certain drop, or nothing judged, is not the code of a drop."""
    few = run("--experiment", "april", "--baseline", "may")
    assert few.code == 5
    assert "a-big:1b" in few.out
    assert few.err.startswith("tipbench: INCONCLUSIVE: no drop is certain")
    assert "(4 shared scenarios, 8 are needed)" in few.err
    assert run("--experiment", "may", "--baseline", "april", "--margin", "4").code == 5
    unjudged = run("--experiment", "raw", "--baseline", "may")
    assert unjudged.code == 5
    assert "INCONCLUSIVE: nothing can be compared with the baseline." in unjudged.err


def test_a_warning_and_a_pass_exit_0(run: Run) -> None:
    """A certain drop within the margin is named and exits 0; a larger score passes."""
    warned = run("--experiment", "new", "--baseline", "old", "--margin", "2")
    assert (warned.code, warned.err) == (0, "")
    assert "WARN: None of the 2 rows has dropped by more than the margin of 2" in warned.out
    assert "Look at b:500m with v1 (-1.0 points, p .001)" in warned.out
    told = run("--experiment", "new", "--baseline", "old", "--margin", "2", "--format", "json").json
    assert (told["baseline"]["result"], told["baseline"]["passed"]) == ("WARN", True)
    passed = run("--experiment", "old", "--baseline", "new")
    assert passed.code == 0
    assert "PASS: None of the 2 rows has dropped" in passed.out


def test_accept_loss_and_cost_decide_what_is_recommended(run: Run, scores: str) -> None:
    """The margin is in the sentence and in JSON; seconds and memory replace the number of parameters."""

    def recommended(*options: str) -> str:
        return str(run("--experiment", "tied", "--format", "json", *options).json["recommended"]["model"])

    assert recommended() == recommended("--cost", "parameters") == SMALL[0]
    assert recommended("--cost", "seconds") == BIG[0]
    assert recommended("--accept-loss", "0.2") == BIG[0]
    both = run("--experiment", "may", "--accept-loss", "6")
    assert "a-big:1b with v1 is the best of 2" in both.out
    assert "Ship b:500m with v1: it is the cheapest variant" in both.out
    assert "at most 6 points worse than the best" in both.out
    told = run("--experiment", "may", "--accept-loss", "0", "--format", "json").json
    assert (told["margin"], told["margin_from"]) == (0.0, "given")
    told = run("--scores", scores, "--accept-loss", "3", "--format", "json").json
    assert (told["margin"], told["margin_from"]) == (3.0, "given")
    assert run("--scores", scores, "--format", "json").json["margin_from"] == "observed"


def test_weights_are_an_exploration(run: Run) -> None:
    """Labelled as no result, in a table, in Markdown and in JSON."""
    weighed = ("--experiment", "may", "--weights", "relevance=2, tone=0.5")
    assert (
        "Exploration, no result (relevance=2, tone=0.5): With these weights nothing changes"
        in run(*weighed).out
    )
    assert "**Exploration, not a result**" in run(*weighed, "--format", "md").out
    told = run(*weighed, "--format", "json").json["exploration"]
    assert told["weights"] == {"relevance": 2.0, "tone": 0.5}
    assert told["rows"][0]["mean"] != 16.5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--experiment", "june"), "there is no experiment 'june'"),
        (("--experiment", "may", "--baseline", "june"), "there is no experiment 'june'"),
        (("--experiment", "mya"), "; did you mean 'may'?"),
        (("--experiment", "may", "--baseline", "May"), "; did you mean 'may'?"),
        (("--experiment", "may", "--baseline", ""), "--baseline is empty"),
        (("--experiment", "may", "--weights", "relevnce=2"), "did you mean 'relevance'?"),
        (("--experiment", "may", "--weights", "tone=much"), "'tone' is 'much'"),
        (("--experiment", "may", "--weights", "tone"), "'tone' is not SCALE=NUMBER"),
        (("--experiment", "may", "--weights", ""), "is not SCALE=NUMBER"),
        (("--experiment", "may", "--ground", "people"), "there is no kind of judge 'people'"),
        (("--experiment", "may", "--ground", ""), "there is no kind of judge ''"),
        (("--experiment", "may", "--margin", "inf"), "--margin must be a number"),
        (("--scores", ""), "--scores is empty"),
        (("--scores", "x.csv", "--baseline", "may"), "need an experiment"),
        (("--scores", "x.csv", "--cost", "memory"), "need an experiment"),
        (("--experiment", "may", "--accept-loss", "nan"), "--accept-loss must be a number of points"),
        (("--experiment", "may", "--accept-loss", "inf"), "--accept-loss must be a number of points"),
        (("--experiment", "may", "--accept-loss", "-1"), "--accept-loss must be a number of points"),
        (("--scores", "no-such-file.csv"), "no-such-file.csv cannot be read (No such file or directory)"),
        (("--scores", "."), ". cannot be read (Is a directory)"),
    ],
)
def test_what_cannot_be_is_one_sentence(run: Run, arguments: tuple[str, ...], words: str) -> None:
    """Exit 2, the thing named, nothing printed as a result."""
    told = run(*arguments)
    assert (told.code, told.out) == (2, "")
    assert words in told.err
    assert told.err.count("\n") == 1


def test_a_place_that_cannot_be_written_is_said(run: Run, scores: str, tmp_path: Path) -> None:
    """A folder, a folder that is not there, the working folder itself: exit 2, and nothing left behind."""
    for place in (str(tmp_path), ".", "/", str(tmp_path / "no" / "report.html")):
        told = run("--scores", scores, "--format", "html", "--out", place)
        assert told.code == 2, place
        assert f"{place} " in told.err
        assert "--out" in told.err
    assert [path.name for path in tmp_path.iterdir()] == ["scores.csv"]


@pytest.mark.parametrize("form", FORMS)
def test_a_report_replaces_the_one_before(run: Run, scores: str, tmp_path: Path, form: str) -> None:
    """Written whole: the old one or the new one, and no spare file stays. A retry needs no --force."""
    file = tmp_path / "report"
    out = ("--format", form, "--out", str(file))
    assert run("--experiment", "may", *out).code == 0
    first = file.read_text()
    assert run("--scores", scores, *out).code == 0
    assert file.read_text() != first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report", "scores.csv"]


OTHERS = {
    "a note": b"old " * 10_000,
    "one line": b"mine",
    "an object": b'{"rows": [], "title": "x"}',
    "a list": b"[]",
    "deep": b"[" * 100_000,
    "scores": b"model,prompt,scenario,composite\na,v1,s,3\n",
    "a heading": b"# may\n\nMy notes.\n",
    "a page": b"<!doctype html>\n<html><head><title>may</title></head></html>\n",
    "bytes": bytes(range(256)),
    "a judge file": b'{"schema": "tipbench-judge-1", "items": []}',
    "a space": b" ",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("content", OTHERS.values(), ids=OTHERS)
def test_another_file_is_not_overwritten(
    run: Run, scores: str, tmp_path: Path, form: str, content: bytes
) -> None:
    """Exit 2 before anything is ranked, and the file as it was; --force overwrites it."""
    file = tmp_path / "mine"
    file.write_bytes(content)
    out = ("--format", form, "--out", str(file))
    told = run("--experiment", "no such experiment", *out)
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith(f"tipbench: {file} exists and is not a report of this format by tipbench")
    assert "--force" in told.err
    assert file.read_bytes() == content
    assert run("--scores", scores, *out, "--force").code == 0
    assert file.read_bytes() != content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "scores.csv"]


@pytest.mark.parametrize(("before", "after"), list(itertools.pairwise([*FORMS, FORMS[0]])))
def test_a_report_of_another_format_is_not_overwritten(
    run: Run, scores: str, tmp_path: Path, before: str, after: str
) -> None:
    """A name given by mistake does not cost the other report."""
    file = tmp_path / "report"
    assert run("--scores", scores, "--format", before, "--out", str(file)).code == 0
    kept = file.read_text()
    assert run("--scores", scores, "--format", after, "--out", str(file)).code == 2
    assert file.read_text() == kept


def test_a_page_of_an_earlier_version_is_recognised(run: Run, scores: str, tmp_path: Path) -> None:
    """Such a page names no generator."""
    file = tmp_path / "page.html"
    out = ("--scores", scores, "--format", "html", "--out", str(file))
    assert run(*out).code == 0
    generator = '<meta name="generator" content="tipbench">\n'
    assert generator in file.read_text()
    file.write_text(file.read_text().replace(generator, ""))
    assert run(*out).code == 0
    assert generator in file.read_text()


def test_an_empty_file_and_standard_output_may_be_written(scores: str, tmp_path: Path) -> None:
    """An empty file holds nothing to lose; a redirection of the shell keeps what stands before it."""
    empty, log = tmp_path / "empty.json", tmp_path / "log"
    empty.touch()
    log.write_text("before\n")
    command = [*TIPBENCH, "compare", "--scores", scores, "--format", "json", "--out"]
    subprocess.run([*command, str(empty)], check=True, timeout=60)
    assert json.loads(empty.read_text())["rows"]
    with log.open("a") as file:
        subprocess.run([*command, "/dev/stdout"], stdout=file, check=True, timeout=60)
    assert json.loads(log.read_text().removeprefix("before\n"))["rows"]
    piped = subprocess.run([*command, "/dev/stdout"], stdout=subprocess.PIPE, check=True, timeout=60)
    assert json.loads(piped.stdout)["rows"]
    subprocess.run([*command, "/dev/null"], check=True, timeout=60)


def test_a_link_is_followed_and_stays_a_link(run: Run, scores: str, tmp_path: Path) -> None:
    """The report is where the link points to, also where no file is there yet; another file is kept."""
    target, link = tmp_path / "kept" / "report.md", tmp_path / "link.md"
    target.parent.mkdir()
    link.symlink_to(target)
    for _ in range(2):
        assert run("--scores", scores, "--format", "md", "--out", str(link)).code == 0
        assert target.read_text().startswith("# scores.csv")
        assert link.is_symlink()
    target.write_text("mine")
    assert run("--scores", scores, "--format", "md", "--out", str(link)).code == 2
    assert target.read_text() == "mine"
    link.unlink()
    link.symlink_to(link)
    assert "cannot be written" in run("--scores", scores, "--format", "md", "--out", str(link)).err


def test_a_pipe_is_written_to_and_stays_a_pipe(run: Run, scores: str, tmp_path: Path) -> None:
    """What is no file is not replaced by one: a device would be lost for everybody."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard: list[str] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_text()), daemon=True)
    reader.start()
    assert run("--scores", scores, "--format", "md", "--out", str(pipe)).code == 0
    reader.join(timeout=10)
    assert heard[0].startswith("# scores.csv")
    assert pipe.is_fifo()


def test_ranking_an_experiment_loads_no_statistics_package(home_of_all: Path) -> None:
    """The whole command leaves scipy.stats alone, which takes more than a second to load."""
    code = (
        "import sys\nfrom tipbench.cli import app\n"
        "app(['compare', '--experiment', 'may', '--format', 'json'], standalone_mode=False)\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(ran.stdout)["title"] == "may"
    assert "mlflow" in ran.stderr.split()
    assert "scipy.stats" not in ran.stderr.split()


def test_a_terminal_gets_what_fits_and_is_told_what_does_not(home_of_all: Path) -> None:
    """Wide: every column. Narrow: no line is longer than the terminal, and what was left out is named."""
    code, wide = on_terminal("compare", "--experiment", "may", columns=160)
    assert code == 0
    assert "relevance" in wide
    assert "\x1b[1m" in wide
    _, narrow = on_terminal("compare", "--experiment", "may", columns=60)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", narrow)
    assert max(map(len, plain.splitlines())) <= 60
    assert "no room for" in " ".join(plain.split())
