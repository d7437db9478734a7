"""Cells from several hosts: every row says its own, and no latency is held against another host's."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from compared_worlds import BIG, CLOSE, OTHER, SMALL, report, world
from tipbench.cli.compare import print_report
from tipbench.compare.html_charts import fronts
from tipbench.compare.html_leaderboard import leaderboard, picked
from tipbench.compare.recommendation import Preferences
from tipbench.compare.scores import Combination
from tipbench.compare.table import report_table
from tipbench.compare.text_reports import report_csv, report_md
from tipbench.records import Host
from tipbench.workflows.facts import combinations
from tipbench.workflows.places import by_place, comparable, costs, place_of
from verdict_planting import ANNA, by_scenario, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from compared_worlds import Given
    from tipbench.compare.recommendation import CostName
    from tipbench.compare.report import Report
    from tipbench.compare.table import Table
    from tipbench.ledger.memory import MemoryLedger
    from tipbench.records import CellResult, Run

BOX = Host(
    kind="ollama", url="http://localhost:11434", version="0.9", machine="box", hardware="A CPU, 4 cores"
)
GPU = Host(kind="ollama", url="http://gpu:11434", version="0.9")
TWINS: Given = {SMALL: CLOSE[BIG], OTHER: CLOSE[SMALL]}


def made_on(
    place: Callable[[CellResult], Host], took: Mapping[tuple[str, str], float] | None = None
) -> Callable[[CellResult], CellResult]:
    """Results with another host, and with a latency for each model and host."""

    def changed(one: CellResult) -> CellResult:
        host = place(one)
        known = (took or {}).get((one.cell.model.name, host.url))
        latency = one.completion.latency_ms if one.completion and known is None else known or 0.0
        return replace(
            one,
            host=host,
            completion=one.completion and replace(one.completion, latency_ms=latency),
            vram_share=0.5 if host is GPU else None,
        )

    return changed


def in_memory(changed: Callable[[CellResult], CellResult]) -> Callable[[CellResult], CellResult]:
    """The same results; the larger model takes more memory."""
    return lambda one: replace(
        changed(one), memory_bytes=3 * 10**9 if one.cell.model.name == BIG[0] else 10**9
    )


def judged_on(given: Given, changed: Callable[[CellResult], CellResult]) -> MemoryLedger:
    place = world(*given, changed=changed)
    judge(place, "x", ANNA, by_scenario(given))
    return place


def by_model(one: CellResult) -> Host:
    return GPU if one.cell.model.name == BIG[0] else BOX


def by_prompt(one: CellResult) -> Host:
    return GPU if one.cell.prompt_id == "v1" else BOX


def in_turn(one: CellResult) -> Host:
    """A host that dies after two cells of the big model, whose rest is made on another."""
    return BOX if one.cell.model.name != BIG[0] or one.started_ms % 10 < 2 else GPU


@pytest.fixture(scope="module")
def apart() -> Report:
    return report(judged_on(CLOSE, made_on(by_model)))


@pytest.fixture(scope="module")
def mixed() -> Report:
    took = {(BIG[0], BOX.url): 900.0, (BIG[0], GPU.url): 100.0, (SMALL[0], BOX.url): 300.0}
    return report(judged_on(CLOSE, made_on(in_turn, took)))


def column(table: Table, title: str) -> dict[str, str]:
    titles = [column.title for column in table.columns]
    return {row[1]: row[titles.index(title)] for row in table.rows}


def test_each_row_says_its_host_and_has_its_own_latency(apart: Report) -> None:
    """In the table, on the page, in Markdown, in CSV and in JSON; a note says that they are not compared."""
    table = report_table(apart)
    assert column(table, "host") == {BIG[0]: "gpu:11434", SMALL[0]: "box:11434"}
    assert column(table, "latency") == {BIG[0]: "500 ms", SMALL[0]: "400 ms"}
    assert {row.model: row.host for row in leaderboard(apart)} == column(table, "host")
    assert "| gpu:11434 |" in report_md(apart)
    lines = {line["model"]: line for line in csv.DictReader(io.StringIO(report_csv(apart)))}
    assert (lines[BIG[0]]["host"], lines[BIG[0]]["latency_ms.gpu:11434"]) == ("gpu:11434", "500.0")
    assert lines[BIG[0]]["latency_ms.box:11434"] == ""
    told = json.loads(json.dumps(apart.as_dict()))
    assert [row["host"] for row in told["rows"]] == ["gpu:11434", "box:11434"]
    assert told["rows"][0]["by_host"]["gpu:11434"]["vram_share"] == 0.5
    said = " ".join(apart.notes)
    assert "made on 2 hosts, and latencies of different hosts are not compared." in said
    assert "box:11434: 4 cells, Ollama 0.9, A CPU, 4 cores." in said


def test_the_report_has_what_is_known_of_each_host(apart: Report) -> None:
    """Its address, engine, machine and hardware, and how many cells it made."""
    box, gpu = apart.as_dict()["hosts"]
    assert (box["name"], box["machine"], box["hardware"]) == ("box:11434", "box", ("A CPU, 4 cores",))
    assert (gpu["name"], gpu["machine"], gpu["addresses"], gpu["n_cells"]) == (
        *("gpu:11434", ""),
        (GPU.url,),
        4,
    )


def test_a_row_that_two_hosts_made_has_no_one_latency(mixed: Report) -> None:
    """It is called mixed, its medians are told by host, and the pooled one (500 ms) is nowhere."""
    facts = mixed.facts[Combination(*BIG)]
    assert (facts.host, facts.latency_ms, facts.tokens_per_s) == ("mixed", None, None)
    assert {name: one.latency_ms for name, one in facts.by_host.items()} == {
        "box:11434": 900.0,
        "gpu:11434": 100.0,
    }
    table = report_table(mixed)
    assert column(table, "host") == {BIG[0]: "mixed", SMALL[0]: "box:11434"}
    assert column(table, "latency") == {BIG[0]: "–", SMALL[0]: "300 ms"}
    assert (
        "a-big:1b with v1 was made on several hosts: 2 cells on box:11434 (900 ms), 2 cells on gpu:11434 "
        "(100 ms)." in mixed.notes
    )
    lines = {line["model"]: line for line in csv.DictReader(io.StringIO(report_csv(mixed)))}
    big = lines[BIG[0]]
    assert (big["host"], big["latency_ms"], big["latency_ms.box:11434"]) == ("mixed", "", "900.0")


def test_each_host_has_a_chart_of_its_own(mixed: Report, apart: Report) -> None:
    """Only what a host made is in its chart; what two made is in both, at what it took on each."""
    found = fronts(mixed)
    assert found is not None
    box, gpu = found.charts
    assert (box.host, gpu.host, found.left_out) == ("box:11434", "gpu:11434", ())
    assert [name for _, name, _, _ in gpu.on_front] == ["a-big:1b with v1"]
    assert (">100 ms<" in str(gpu.svg), "in 900 ms" in str(gpu.svg)) == (True, False)
    assert ("in 900 ms" in str(box.svg), "in 300 ms" in str(box.svg)) == (True, True)
    assert ('id="front-title"' in str(box.svg), 'id="front-title-2"' in str(gpu.svg)) == (True, True)
    alone = fronts(apart)
    assert alone is not None
    assert [[name for _, name, _, _ in one.on_front] for one in alone.charts] == [
        ["b:500m with v1"],
        ["a-big:1b with v1"],
    ]


def test_a_tie_between_hosts_is_not_resolved_by_latency() -> None:
    """Of two equally small variants on two hosts the first row is recommended, however slow its host is."""
    took = {(SMALL[0], GPU.url): 900.0, (SMALL[0], BOX.url): 10.0}
    found = report(judged_on(TWINS, made_on(by_prompt, took)))
    assert found.board.rows[0].combination == SMALL
    assert (found.board.recommended, found.board.recommended_because) == (SMALL, "smallest")
    assert "it is one of the smallest variants that are close enough to the best" in found.sentences[0]
    assert found.sentences[0].endswith("probability (speeds of different hosts are not compared).")
    shown = picked(found)
    assert shown is not None
    assert ("host", "gpu:11434") in shown.numbers
    same = report(judged_on(TWINS, made_on(lambda _one: BOX)))
    assert same.board.recommended_because == "cheapest"


def test_fewer_parameters_decide_also_between_hosts(apart: Report) -> None:
    """A model's size is the same wherever it runs."""
    assert apart.board.rows[0].combination == BIG
    assert (apart.board.recommended, apart.board.recommended_because) == (SMALL, "cheapest")


@pytest.mark.parametrize("by", ["seconds", "memory"])
def test_seconds_and_memory_are_compared_only_within_a_host(by: CostName) -> None:
    """Within a host the lower number is cheaper; across hosts the first row is recommended."""
    took = {(BIG[0], GPU.url): 900.0, (BIG[0], BOX.url): 900.0, (SMALL[0], BOX.url): 10.0}
    for place, recommended, because in [(by_model, BIG, "smallest"), (lambda _: BOX, SMALL, "cheapest")]:
        found = report(judged_on(CLOSE, in_memory(made_on(place, took))), preferences=Preferences(cost=by))
        assert (found.board.recommended, found.board.recommended_because) == (recommended, because)


def test_costs_name_one_measured_number_for_seconds_and_memory() -> None:
    """The number stands second, as only numbers of one host are compared; an unknown one is the dearest."""
    took = {(BIG[0], GPU.url): 900.0, (SMALL[0], BOX.url): 10.0}
    groups = combinations(judged_on(CLOSE, in_memory(made_on(by_model, took))).runs("x"))
    assert costs(groups, by="seconds") == {BIG: (0.0, 900.0), SMALL: (0.0, 10.0)}
    assert costs(groups, by="memory") == {BIG: (0.0, 3e9), SMALL: (0.0, 1e9)}
    mixed = combinations(judged_on(CLOSE, made_on(in_turn, took)).runs("x"))
    assert costs(mixed, by="seconds") == {BIG: (None, None), SMALL: (0.0, 10.0)}
    assert costs(mixed, by="memory") == {BIG: (None, None), SMALL: (None, None)}


def test_an_unknown_cost_is_the_dearest() -> None:
    """A variant that two hosts made has no one latency, so the measured variant is recommended."""
    took = {(SMALL[0], BOX.url): 5000.0}
    found = report(judged_on(CLOSE, made_on(in_turn, took)), preferences=Preferences(cost="seconds"))
    assert found.board.rows[0].combination == BIG
    assert (found.board.recommended, found.board.recommended_because) == (SMALL, "cheapest")


def test_an_absolute_limit_is_held_against_each_host_by_itself(mixed: Report) -> None:
    """What is quick enough on one of its hosts stays; what is too slow on all is left out."""
    took = {(BIG[0], BOX.url): 900.0, (BIG[0], GPU.url): 100.0, (SMALL[0], BOX.url): 300.0}
    place = judged_on(CLOSE, made_on(in_turn, took))
    assert len(report(place, max_latency_ms=400).board.rows) == 2
    slower = report(place, max_latency_ms=99)
    assert slower.board.rows == ()
    said = " ".join(slower.notes)
    assert "a-big:1b with v1 (900 ms on box:11434, 100 ms on gpu:11434)" in said
    assert "The limit of 99 ms is held against the median on each host by itself" in said
    assert [row.model for row in report(place, max_latency_ms=200).board.rows] == [BIG[0]]
    assert "limit" not in " ".join(mixed.notes)


def test_old_cells_are_of_one_host_until_a_machine_is_known() -> None:
    """Cells without a machine are told apart by address alone, and are not taken for a known machine's."""
    old = replace(BOX, machine="", hardware="")
    alone = report(judged_on(CLOSE, made_on(lambda one: old if one.started_ms % 2 else _spelled(old))))
    assert ([host.name for host in alone.hosts], alone.on_several_hosts) == (["localhost:11434"], False)
    half = report(judged_on(CLOSE, made_on(lambda one: old if one.cell.model.name == BIG[0] else BOX)))
    assert [host.name for host in half.hosts] == ["box:11434", "localhost:11434"]
    assert "localhost:11434: 4 cells, Ollama 0.9, its machine was not recorded." in half.notes


def _spelled(host: Host) -> Host:
    return replace(host, url="http://127.0.0.1:11434")


def test_with_one_host_nothing_is_said_of_it() -> None:
    """No column, no note, no word in CSV, one chart; not even where a failed cell names another host."""

    def failing(one: CellResult) -> CellResult:
        away = one.cell.model.name == BIG[0] and one.started_ms % 10 == 0
        lost = replace(one, host=GPU, error="gone", completion=None, reading=None, candidates=())
        return lost if away else replace(one, host=BOX)

    found = report(judged_on(CLOSE, failing))
    assert ([host.name for host in found.hosts], found.on_several_hosts) == (["box:11434"], False)
    assert "host" not in [column.title for column in report_table(found).columns]
    assert "host" not in report_csv(found).splitlines()[0]
    assert not [note for note in found.notes if "host" in note]
    assert not {"host", "by_host"} & set(found.as_dict()["rows"][0])
    assert {row.host for row in leaderboard(found)} == {""}
    chart = fronts(found)
    assert chart is not None
    assert [one.host for one in chart.charts] == [""]


def test_engines_of_one_machine_are_told_apart_and_the_embedded_is_one(apart: Report) -> None:
    """Two ports are two hosts; the embedded engine, whose port is another each time, is one."""
    one, two = replace(BOX, url="http://localhost:1"), replace(BOX, url="http://localhost:2")
    embedded = [replace(host, kind="embedded") for host in (one, two)]
    hosts = (one, two, *embedded)
    place = world(BIG, changed=lambda cell: replace(cell, host=hosts[cell.started_ms % 4]))
    assert list(by_place(place.runs("x"))) == ["box (embedded)", "box:1", "box:2"]


def test_what_two_hosts_made_is_comparable_with_nothing() -> None:
    """Not even with another that the same two made: how many cells each made need not be the same."""
    place = world(SMALL, OTHER, changed=lambda one: replace(one, host=BOX if one.started_ms % 2 else GPU))
    words = comparable(combinations(place.runs("x")))
    assert len(set(words.values())) == 2
    runs: list[Run] = place.runs("x")
    assert {place_of(run) for run in runs} == {"box:11434", "gpu:11434"}


def test_the_terminal_has_the_host_for_as_long_as_it_has_a_speed(mixed: Report) -> None:
    """Where there is no room, latency goes first, then the host together with the last speed."""
    wide, narrow = report_table(mixed), report_table(mixed, width=60)
    titles = [column.title for column in wide.columns]
    assert titles[titles.index("host") :][:3] == ["host", "tok/s", "latency"]
    for width in range(40, 140, 4):
        left = {column.title for column in report_table(mixed, width=width).columns}
        assert "host" in left or not {"tok/s", "latency"} & left
    assert "host" in narrow.hidden


def test_the_whole_is_printed(mixed: Report, capsys: pytest.CaptureFixture[str]) -> None:
    """The table and the notes, as `compare` prints them."""
    print_report(mixed)
    said = capsys.readouterr().out
    assert "mixed" in said
    assert "latencies of different hosts are not compared" in said
