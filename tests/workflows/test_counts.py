"""The same counts everywhere: judged candidates, failed replies, scale means and the composite."""

from __future__ import annotations

import csv
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from command import here
from compared_worlds import AHEAD, BIG, CLOSE, SMALL, cut_off, flat, judged, report, world
from judged_world import plant
from tipbench.compare.html import report_html
from tipbench.compare.table import report_table
from tipbench.ledger import MemoryLedger, open_ledger
from tipbench.records import Reading
from tipbench.settings import Settings, home
from tipbench.suite import load_suite
from tipbench.workflows.applying import rebuild
from tipbench.workflows.browse import experiments
from tipbench.workflows.comparing import NOT_CHECKED, compare
from tipbench.workflows.judge_status import judge_status
from verdict_planting import ANNA, BEN, PROXY, ROBOT, judge

if TYPE_CHECKING:
    from tipbench.records import CellResult, Cut, Judge


def unreadable(one: CellResult) -> CellResult:
    """The cells of the small model's first scenario, with a reply that could not be read."""
    if one.cell.model.name != SMALL[0] or one.reading is None or one.started_ms % 4:
        return one
    return replace(one, reading=replace(one.reading, how="none", candidates=()), candidates=())


@pytest.mark.usefixtures("fresh_home")
def test_judged_is_the_same_number_everywhere(made_home: Path) -> None:
    """`compare`, `judge status`, `experiments` and the runs' metrics count the same candidates."""
    assert made_home
    ledger = open_ledger("", home=home())
    plant("x", quality={BIG: 4.0, SMALL: 2.0}, changed=cut_off(SMALL), ledger=ledger)
    judge(ledger, "x", ANNA, flat(9))
    settings = Settings.of({"experiment": "x"})
    rebuild(settings)
    board = compare(settings).board
    found = judge_status(settings)
    (entry,) = experiments(settings)
    metrics = sum(int(run.metrics.get("n_judged", 0)) for run in ledger.runs("x"))
    assert board.n_judged == sum(row.n_judged for row in board.rows) == found.judged == metrics == 8
    assert (found.wanted, found.pending) == (8, 0)
    listed = here("experiments", "--json").json
    assert entry.judged == listed[0]["judged"]


@pytest.mark.usefixtures("fresh_home")
def test_engine_failures_and_unusable_replies_have_different_names(made_home: Path) -> None:
    """`experiments` counts cells that failed in the engine; a report's column counts all unusable ones."""
    assert made_home
    ledger = open_ledger("", home=home())
    plant("x", quality={BIG: 4.0, SMALL: 2.0}, changed=cut_off(SMALL), ledger=ledger)
    judge(ledger, "x", ANNA, flat(9))
    header, row = here("experiments").out.splitlines()
    named = dict(zip(header.split("\t"), row.split("\t"), strict=True))
    assert named["failed in the engine"] == "0"
    assert "failed" not in named
    page = report_html(compare(Settings.of({"experiment": "x"})))
    assert "unusable" in page
    assert ">failed<" not in page


def test_n_failed_counts_unusable_replies_of_its_row() -> None:
    """Truncated and unreadable replies count in the row that they belong to, beside cells that failed."""
    place = world(BIG, SMALL, changed=cut_off(SMALL))
    judge(place, "x", ANNA, flat(9))
    facts = report(place).facts
    assert {name.model: one.n_failed for name, one in facts.items()} == {BIG[0]: 0, SMALL[0]: 4}
    place = world(BIG, SMALL, changed=unreadable)
    judge(place, "x", ANNA, flat(9))
    assert 0 < next(one.n_failed for name, one in report(place).facts.items() if name.model == SMALL[0]) < 4


def test_unusable_replies_are_counted_by_their_reason(tmp_path: Path) -> None:
    """The note has the number of all replies, of each kind of fault, and the value that the rubric gives."""

    def faulty(one: CellResult) -> CellResult | None:
        at = one.started_ms % 100
        if at == 0:
            return replace(one, error="no answer", completion=None, reading=None, candidates=())
        if at < 3 or one.reading is None:
            return replace(one, reading=Reading(candidates=(), how="none", format_ok=False), candidates=())
        cut: Cut | None = "reply" if at == 3 else "prompt" if at == 4 else None
        return replace(one, completion=one.completion and replace(one.completion, cut=cut))

    def notes(suite: str = "tip") -> list[str]:
        place = MemoryLedger()
        plant("x", quality={BIG: 3.0, SMALL: 3.0}, changed=faulty, suite=suite, ledger=place)
        return [note for note in report(place).notes if "could not be used" in note]

    reasons = "2 unreadable, 1 truncated, 1 with a truncated prompt"
    counted = f"4 of 7 replies could not be used: {reasons}. Each counts"
    assert notes() == [f"{counted} as the lowest score on every scale: 3 points."]
    folder = tmp_path / "mine"
    shutil.copytree(load_suite("tip").path, folder)
    rubric = folder / "rubric.md"
    rubric.write_text(rubric.read_text().replace("failure: 3", "failure: 1"))
    assert notes(str(folder)) == [f"{counted} 1 point."]


def test_a_truncated_reply_keeps_its_text_and_has_its_label() -> None:
    """The page shows what was written and the word truncated, and never that nothing was written."""
    place = world(BIG, SMALL, changed=cut_off(SMALL))
    judge(place, "x", ANNA, flat(9))
    found = report(place)
    shown = [one for name, facts in found.facts.items() if name.model == SMALL[0] for one in facts.candidates]
    assert shown
    assert all(one.problem == "truncated" and one.text for one in shown)
    page = report_html(found)
    assert page.count('<span class="tag">truncated</span>') == len(shown)
    assert "nothing was written" not in page


def test_scale_means_say_what_they_are_of() -> None:
    """Beside unusable replies the table says that scale means leave them out; without any it does not."""
    place = world(BIG, SMALL, changed=unreadable)
    judge(place, "x", ANNA, flat(9))
    assert "scale means are of the judged candidates alone" in report_table(report(place)).caption
    clean = world(BIG, SMALL)
    judge(clean, "x", ANNA, flat(9))
    assert "scale means" not in report_table(report(clean)).caption


def test_scale_means_weigh_scenarios_like_the_composite() -> None:
    """With all candidates judged, the means of the scales add up to the composite less the format point."""
    place = world(BIG, SMALL)
    judge(place, "x", ANNA, lambda run, slot: 3 + len(run.scenario_id) % 7 + slot)
    found = report(place)
    for row in found.board.rows:
        assert row.mean is not None
        assert sum(found.facts[row.combination].scales.values()) == pytest.approx(row.mean - 2)


def test_accepted_drift_is_shown_with_one_batch_too() -> None:
    """`judge status` has the number that the note of `compare` refers to."""
    place = world(BIG, SMALL)
    judge(place, "x", BEN, flat(9), drift_z=4.0, drift_accepted=True)
    from tipbench.workflows.judge_status import status_of
    from tipbench.workflows.judged import read_judged

    (one,) = status_of(read_judged(place, "x")).judges
    assert one.drift_accepted == 1


def test_the_headline_names_a_winner_only_if_there_is_one() -> None:
    """`Winner:` for a winner, `Leading:` for a first row that ties, nothing before anything is judged."""
    assert report(judged(AHEAD)).headline == "Winner: a-big:1b × v1 (composite 16.5)"
    assert report(judged(CLOSE)).headline.startswith("Leading: ")
    assert not report(world(BIG, SMALL)).headline


def test_the_composite_has_the_rubrics_range() -> None:
    """The column's title has the lowest and the highest value of the formula."""
    place = world(BIG, SMALL)
    judge(place, "x", ANNA, flat(9))
    assert "composite (2–17)" in [column.title for column in report_table(report(place)).columns]


def test_diversity_is_shown_where_it_was_measured() -> None:
    """A column appears for an experiment that was collected with it."""
    place = world(BIG, SMALL, changed=lambda one: replace(one, diversity=0.5))
    judge(place, "x", ANNA, flat(9))
    assert "diversity" in [column.title for column in report_table(report(place)).columns]
    plain = world(BIG, SMALL)
    judge(plain, "x", ANNA, flat(9))
    assert "diversity" not in [column.title for column in report_table(report(plain)).columns]


@pytest.mark.usefixtures("fresh_home")
def test_compare_reads_its_own_csv(tmp_path: Path) -> None:
    """The leaderboard of `--format csv` goes in by `--scores` and gives the same means."""
    ledger = open_ledger("", home=home())
    plant("x", quality={BIG: 4.0, SMALL: 2.0}, ledger=ledger)
    judge(ledger, "x", ANNA, lambda run, _slot: 14 if run.model == BIG[0] else 7)
    file = tmp_path / "board.csv"
    assert here("compare", "x", "--format", "csv", "--out", str(file)).code == 0
    first = here("compare", "x", "--format", "json").json
    again = here("compare", "--scores", str(file), "--format", "json")
    assert again.code == 0, again.err
    names = ("model", "prompt", "mean")
    assert [[row[name] for name in names] for row in again.json["rows"]] == [
        [row[name] for name in names] for row in first["rows"]
    ]


@pytest.mark.usefixtures("fresh_home")
@pytest.mark.parametrize("who", [PROXY, ROBOT])
def test_the_csv_of_a_judge_who_is_not_trusted_recommends_nothing(tmp_path: Path, who: Judge) -> None:
    """The CSV carries the warning, also through a second export; a CSV of an earlier version, and one of
    people's scores, is ranked with a recommendation.
    """
    ledger = open_ledger("", home=home())
    plant("x", quality={BIG: 4.0, SMALL: 2.0}, ledger=ledger)
    judge(ledger, "x", who, lambda run, _slot: 14 if run.model == BIG[0] else 7)
    insisted = ("--insist", "--format", "json")
    first = here("compare", "x", *insisted).json
    files = [str(tmp_path / f"{n}.csv") for n in range(3)]
    assert here("compare", "x", "--insist", "--format", "csv", "--out", files[0]).code == 0
    assert here("compare", "--scores", files[0], "--format", "csv", "--out", files[1]).code == 0
    for file in files[:2]:
        told = here("compare", "--scores", file, "--format", "json").json
        assert (told["first"], told["recommended"]) == ([" ".join(first["first"])], None)
        assert told["first"][0].startswith(
            ("Scores come from simple word rules", "Ranked by ollama:judge alone")
        )
        assert "ship" not in " ".join(told["sentences"])
        assert told["first"][0] in here("compare", "--scores", file).out
    with Path(files[0]).open(encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table))
    with Path(files[2]).open("w", encoding="utf-8", newline="") as table:
        earlier = csv.DictWriter(table, [name for name in rows[0] if name not in {"warning", "advise"}])
        earlier.writeheader()
        earlier.writerows({name: row[name] for name in earlier.fieldnames} for row in rows)
    told = here("compare", "--scores", files[2], "--format", "json").json
    assert told["first"] == []
    assert told["recommended"]["model"] == BIG[0]
    judge(ledger, "x", ANNA, lambda run, _slot: 14 if run.model == BIG[0] else 7)
    people = str(tmp_path / "people.csv")
    assert here("compare", "x", "--format", "csv", "--out", people).code == 0
    told = here("compare", "--scores", people, "--format", "json").json
    assert told["first"] == [NOT_CHECKED]
    assert told["recommended"]["model"] == BIG[0]


@pytest.mark.usefixtures("fresh_home")
def test_compare_without_an_experiment_lists_them() -> None:
    """Nobody typed the default name, so the experiments are listed and none is suggested as near."""
    plant("tip-bench-may", quality={BIG: 4.0}, n_scenarios=1, ledger=open_ledger("", home=home()))
    ran = here("compare")
    assert ran.code == 2
    assert "there are: tip-bench-may; name one with --experiment" in ran.err
    assert "did you mean 'tip-bench-may'?" in here("compare", "tip-bench-mai").err
