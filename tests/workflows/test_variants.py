"""Cells with different sampling options are different rows, in every output and in `ship`."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from command import here
from compared_worlds import BIG, SMALL, flat, report, world
from stand_in import FakeModel, StandIn, running
from tipbench.compare.text_reports import report_csv
from tipbench.errors import NotFound
from tipbench.records import Sampling
from tipbench.settings import Settings
from tipbench.workflows.collect import collect
from tipbench.workflows.shipping_choice import choose
from verdict_planting import ANNA, judge

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tipbench.ledger.memory import MemoryLedger
    from tipbench.records import CellResult, Run

COLD = ("a-big:1b", "v1 · t=0.2")
WARM = ("a-big:1b", "v1 · t=0.7")


def second_repeat(**options: Any) -> Callable[[CellResult], CellResult]:  # noqa: ANN401 - any sampling option
    """The cells of the second repeat, generated with other options."""

    def changed(one: CellResult) -> CellResult:
        if one.cell.repeat == 0:
            return one
        return replace(one, cell=replace(one.cell, sampling=replace(one.cell.sampling, **options), repeat=0))

    return changed


def judged_at_two_temperatures() -> MemoryLedger:
    place = world(BIG, SMALL, repeats=2, changed=second_repeat(temperature=0.2))

    def points(run: Run, _slot: int) -> int:
        assert run.sampling is not None
        return 14 if run.sampling.temperature == 0.2 else 9

    judge(place, "x", ANNA, points)
    return place


def test_two_temperatures_are_two_rows() -> None:
    """Each variant has its own row, named by the option that differs, with its own mean."""
    found = report(judged_at_two_temperatures())
    assert {row.combination for row in found.board.rows} >= {COLD, WARM}
    means = {(row.model, row.prompt): row.mean or 0.0 for row in found.board.rows}
    assert means[COLD] > means[WARM] > 0
    assert len(found.board.rows) == 4


@pytest.mark.parametrize(
    ("options", "label"),
    [({"num_ctx": 4096}, "ctx=4096"), ({"num_predict": 200}, "predict=200"), ({"think": True}, "think=true")],
)
def test_other_options_separate_rows_too(options: dict[str, float], label: str) -> None:
    """Context, reply length and thinking make another variant; the label names that option alone."""
    place = world(BIG, repeats=2, changed=second_repeat(**options))
    judge(place, "x", ANNA, flat(10))
    prompts = {row.prompt for row in report(place).board.rows}
    assert f"v1 · {label}" in prompts
    assert len(prompts) == 2
    assert all(" t=" not in prompt for prompt in prompts)


def test_repeats_and_seeds_do_not_separate() -> None:
    """Two repeats with the same options are one row without a label."""
    place = world(BIG, repeats=2)
    judge(place, "x", ANNA, flat(10))
    assert [row.combination for row in report(place).board.rows] == [BIG]


def test_data_has_the_options_in_a_field() -> None:
    """JSON and CSV keep the prompt's own name, and have `sampling` and the printed label beside it."""
    found = report(judged_at_two_temperatures())
    told = json.loads(json.dumps(found.as_dict()))
    assert {row["prompt"] for row in told["rows"]} == {"v1"}
    cold = next(row for row in told["rows"] if row["label"] == "a-big:1b · v1 · t=0.2")
    assert cold["sampling"] == {"temperature": 0.2, "num_ctx": 2048, "num_predict": 400, "think": False}
    rows = list(csv.DictReader(io.StringIO(report_csv(found))))
    assert {row["sampling"] for row in rows} == {
        f"temperature={t} num_ctx=2048 num_predict=400 think=false" for t in (0.2, 0.7)
    }
    for name in ("winner", "recommended"):
        if told[name]:
            assert told[name]["prompt"] == "v1"
            assert "sampling" in told[name]


@pytest.mark.parametrize(
    "typed",
    ["a-big:1b · v1 · t=0.2", "a-big:1b/v1 · t=0.2", "a-big:1b with v1 · t=0.2", "a-big:1b × v1 · t=0.2"],
)
def test_ship_accepts_the_printed_label(typed: str) -> None:
    """Every form in which a row is printed names it."""
    choice = choose(report(judged_at_two_temperatures()), recommended=False, cell=typed, insist=False)
    assert choice.row.combination == COLD


def test_a_name_without_options_is_refused_where_there_are_several() -> None:
    """The sentence lists the names to choose from."""
    with pytest.raises(NotFound, match=r"several sampling options; give one of a-big:1b/v1 · t=0.2, a-big"):
        choose(report(judged_at_two_temperatures()), recommended=False, cell="a-big:1b/v1", insist=False)


def test_a_baseline_with_one_temperature_is_compared_with_the_same_one() -> None:
    """Rows are named alike in both experiments, so that only the row with other options is new."""
    place = judged_at_two_temperatures()
    world(BIG, SMALL, name="before", into=place)
    judge(place, "before", ANNA, flat(9), batch_id="b-before")
    from tipbench.workflows.judged import read_judged

    found = report(place, before=read_judged(place, "before"))
    assert found.baseline is not None
    assert not found.baseline.missing
    assert {one.combination for one in found.baseline.rows} == {WARM, ("b:500m", "v1 · t=0.7")}


def notices(settings: Settings) -> list[str]:
    """What a collection says about separate rows."""
    heard: list[str] = []
    collect(settings, emit=lambda event: heard.append(str(event.get("message", ""))))
    return [one for one in heard if "separate rows" in one]


def test_collect_says_that_other_options_make_other_rows(home: object, tmp_path: Path) -> None:
    """A second collection at another temperature prints one notice, at the same one none. The command in it
    works as printed, for another experiment and another ledger than the usual ones.
    """
    assert home
    with running(StandIn(models=[FakeModel("a:1b")])) as host:
        base = {
            "models": "a:1b", "prompts": "v1", "n_scenarios": 1, "ollama_url": host.url, "engine": "ollama",
            "experiment": "two words", "mlflow_url": f"sqlite:///{tmp_path / 'other.db'}",
        }  # fmt: skip
        later: tuple[dict[str, float], ...] = ({}, {"repeats": 2}, {"temperature": 0.2})
        said = [notices(Settings.of({**base, **options})) for options in later]
    assert (said[0], said[1]) == ([], [])
    assert len(said[2]) == 1
    assert "t=0.7" in said[2][0]
    (command,) = re.findall(r"`tipbench (compare [^`]*)`", said[2][0])
    shown = here(*shlex.split(command))
    assert shown.code == 0, shown.err
    assert "v1 · t=0.2" in shown.out


def test_sampling_is_read_back(home: object) -> None:
    """A recorded run has its options, also out of the cache."""
    assert home
    from judged_world import plant
    from tipbench.ledger import open_ledger
    from tipbench.settings import home as folder

    ledger = open_ledger("", home=folder())
    plant("x", quality={BIG: 3.0}, n_scenarios=1, ledger=ledger)
    expected = Sampling(temperature=0.7, num_ctx=2048, num_predict=400)
    assert [[run.sampling for run in ledger.runs("x")] for _ in range(2)] == [[expected]] * 2
