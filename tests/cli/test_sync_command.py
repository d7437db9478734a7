"""`sync`: what waits for which address, recorded elsewhere, deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from command import here
from ledger_samples import sample_pin, sample_result
from tipbench import runs
from tipbench.ledger import Spool, open_ledger
from tipbench.ledger.locks import held_file
from tipbench.workflows.recording import collect_lock

if TYPE_CHECKING:
    from pathlib import Path

WRONG, OTHER = "http://127.0.0.1:9", "http://127.0.0.1:10"
PIN = sample_pin()


def put(home: Path, url: str, experiment: str, *numbers: int) -> None:
    with Spool(home / "spool.db") as spool:
        for number in numbers:
            spool.put(url, experiment, PIN, sample_result(number))


def waiting(home: Path) -> dict[tuple[str, str], int]:
    with Spool(home / "spool.db") as spool:
        return {(one.ledger, one.experiment): one.count for one in spool.pending()}


def test_the_list_shows_what_waits_for_which_address(home: Path) -> None:
    """By address and experiment, without logins, and without contact to any of them."""
    put(home, "http://anna:geheim@127.0.0.1:9", "bench", 1, 2)
    put(home, OTHER, "other", 1)
    listed = here("sync", "--list")
    assert listed.code == 0
    assert [line.split("\t")[:3] for line in listed.out.splitlines()[1:]] == [
        [WRONG, "bench", "2"],
        [OTHER, "other", "1"],
    ]
    assert "geheim" not in listed.out
    assert here("sync", "--list", "--json").json == [
        {"ledger": WRONG, "experiment": "bench", "count": 2, "marks": 0, "running": False},
        {"ledger": OTHER, "experiment": "other", "count": 1, "marks": 0, "running": False},
    ]


def test_an_empty_list_says_so(home: Path) -> None:
    """As a sentence, and as an empty list of JSON."""
    assert here("sync", "--list").out == "No cell waits to be recorded\n"
    assert here("sync", "--list", "--json").json == []
    assert home.is_dir()


def test_what_waits_for_a_mistyped_address_is_recorded_elsewhere(home: Path) -> None:
    """Here in the embedded store: its cells are there, nothing waits, and no cell is known at the old one."""
    put(home, WRONG, "bench", 1, 2)
    moved = here("sync", "--to", "", "--json")
    assert moved.code == 0, moved.err
    assert (moved.json["recorded"], moved.json["left"]) == (2, 0)
    assert len(runs("bench")) == 2
    assert waiting(home) == {}
    with Spool(home / "spool.db") as spool:
        assert len(spool.known_keys("", "bench")) == 2
        assert spool.known_keys(WRONG, "bench") == set()


def test_the_address_is_chosen_where_cells_wait_for_several(home: Path) -> None:
    """Without a choice nothing moves; with one, the cells of the other address wait on."""
    put(home, WRONG, "bench", 1)
    put(home, OTHER, "bench", 2)
    asked = here("sync", "--to", "")
    assert asked.code == 2
    assert "--from" in asked.err
    assert WRONG in asked.err
    assert OTHER in asked.err
    assert here("sync", "--to", "", "--from", "http://127.0.0.1:11").code == 2
    assert here("sync", "--to", "", "--from", f"{WRONG}/").code == 0
    assert waiting(home) == {(OTHER, "bench"): 1}


def test_an_experiment_with_other_texts_keeps_its_cells_waiting(home: Path) -> None:
    """One sentence of the conflict and exit code 3; the other experiment moves."""
    open_ledger("", home=home).pin("bench", replace(PIN, prompts={"v1": "another text"}))
    put(home, WRONG, "bench", 1, 2)
    put(home, WRONG, "fine", 1)
    moved = here("sync", "--to", "")
    assert moved.code == 3
    assert "'v1'" in moved.err
    assert "1 cell recorded, 2 still waiting" in moved.out
    assert waiting(home) == {(WRONG, "bench"): 2}


def test_an_address_that_is_away_too_loses_nothing(home: Path) -> None:
    """The cells wait where they waited."""
    put(home, WRONG, "bench", 1)
    assert here("sync", "--to", OTHER).code == 3
    assert waiting(home) == {(WRONG, "bench"): 1}


def test_moving_without_need_is_a_sentence(home: Path) -> None:
    """Where nothing waits, or only for the address that it would go to."""
    put(home, WRONG, "bench", 1)
    ran = here("sync", "--to", WRONG)
    assert ran.code == 2
    assert f"no cell waits for another address than {WRONG}" in ran.err


def test_discarding_deletes_what_waits_and_nothing_else(home: Path) -> None:
    """Recorded cells, other experiments and other addresses stay."""
    put(home, WRONG, "bench", 1, 2)
    put(home, WRONG, "other", 1)
    with Spool(home / "spool.db") as spool:
        spool.recorded(spool.take(WRONG, "bench", limit=1))
    gone = here("sync", "--discard", "bench", "--yes")
    assert gone.code == 0, gone.err
    assert gone.out.startswith("1 cell of 'bench' deleted")
    assert waiting(home) == {(WRONG, "other"): 1}
    with Spool(home / "spool.db") as spool:
        assert spool.known_keys(WRONG, "bench") == {sample_result(1).cell.key}


def test_discarding_needs_a_yes(home: Path) -> None:
    """Without a terminal to ask on, it is refused with the number of cells, and nothing is deleted."""
    put(home, WRONG, "bench", 1, 2)
    refused = here("sync", "--discard", "bench")
    assert refused.code == 2
    assert "2 cells of 'bench'" in refused.err
    assert "--yes" in refused.err
    assert waiting(home) == {(WRONG, "bench"): 2}


def test_discarding_names_what_waits_where_the_name_is_wrong(home: Path) -> None:
    """A mistyped experiment is one sentence with the right names; two addresses ask for a choice."""
    put(home, WRONG, "bench", 1)
    wrong = here("sync", "--discard", "bensh", "--yes")
    assert wrong.code == 2
    assert "'bench'" in wrong.err
    put(home, OTHER, "bench", 1)
    assert "--from" in here("sync", "--discard", "bench", "--yes").err
    assert here("sync", "--discard", "bench", "--yes", "--from", OTHER).code == 0
    assert waiting(home) == {(WRONG, "bench"): 1}


@pytest.mark.parametrize("command", [("--discard", "bench", "--yes"), ("--to", "")])
def test_cells_of_a_running_command_are_left_alone(home: Path, command: tuple[str, ...]) -> None:
    """They are neither moved nor deleted under its hands; the list says whose they are."""
    put(home, WRONG, "bench", 1)
    with held_file(collect_lock(WRONG, "bench"), patience_s=0, shared=True):
        refused = here("sync", *command)
        assert here("sync", "--list", "--json").json[0]["running"] is True
    assert refused.code == 3
    assert "a running command" in refused.err
    assert waiting(home) == {(WRONG, "bench"): 1}


@pytest.mark.parametrize(
    "options",
    [("--list", "--to", ""), ("--to", "", "--discard", "x"), ("--from", WRONG), ("--yes",)],
)
def test_options_that_do_not_go_together_are_refused(home: Path, options: tuple[str, ...]) -> None:
    """Exit code 2, and nothing happens."""
    put(home, WRONG, "bench", 1)
    assert here("sync", *options).code == 2
    assert waiting(home) == {(WRONG, "bench"): 1}


def mark(home: Path, url: str, experiment: str, *numbers: int) -> None:
    with Spool(home / "spool.db") as spool:
        marks = {sample_result(number).cell.key: ["digest-changed"] for number in numbers}
        spool.add_marks(url, experiment, marks)


def marks_of(experiment: str) -> list[tuple[str, ...]]:
    return [run.marks for run in runs(experiment)]


def test_marks_that_wait_for_recorded_cells_are_shown(home: Path) -> None:
    """By `sync --list` and `doctor` in plain words; marks of cells that wait are not counted apart."""
    put(home, WRONG, "bench", 1)
    mark(home, WRONG, "bench", 1, 2, 3)
    mark(home, OTHER, "other", 1)
    listed = here("sync", "--list")
    assert listed.out.splitlines()[1:] == [
        f"{WRONG}\tbench\t1\t",
        f"2 marks on recorded cells of 'bench' wait for {WRONG}",
        f"1 mark on recorded cells of 'other' waits for {OTHER}",
    ]
    assert [(one["count"], one["marks"]) for one in here("sync", "--list", "--json").json] == [(1, 2), (0, 1)]
    (found,) = [one for one in here("doctor", "--json").json if one["name"] == "spool"]
    assert (found["state"], found["detail"]) == (
        "warn",
        "1 cell and 3 marks on recorded cells waiting for a ledger",
    )


def test_sync_fails_while_marks_wait(home: Path) -> None:
    """Exit code 3 and their number, as for cells; 0 once they are added."""
    put(home, "", "bench", 1, 2)
    assert here("sync").code == 0
    mark(home, WRONG, "bench", 1, 2)
    mark(home, "", "bench", 1)
    ran = here("sync")
    assert ran.code == 3
    assert "1 mark added to recorded cells, 2 still waiting" in ran.out
    assert "2 marks on recorded cells safe on this disk" in ran.err
    assert marks_of("bench") == [("digest-changed",), ()]
    assert (here("sync", "--json").json["marks_left"]) == 2


def test_marks_are_added_elsewhere_or_deleted(home: Path) -> None:
    """`--to` adds those whose cells are there; `--discard` deletes the others and names them."""
    put(home, "", "bench", 1)
    here("sync")
    mark(home, WRONG, "bench", 1, 2)
    moved = here("sync", "--to", "")
    assert moved.code == 3
    assert f"has no run for 1 mark of 'bench'; they wait for {WRONG}" in moved.err
    assert marks_of("bench") == [("digest-changed",)]
    refused = here("sync", "--discard", "bench")
    assert "1 mark on recorded cells of 'bench'" in refused.err
    gone = here("sync", "--discard", "bench", "--yes")
    assert gone.out == "1 mark on recorded cells of 'bench' deleted; the cells stay, without these marks\n"
    assert here("sync", "--list").out == "No cell waits to be recorded\n"


def test_marks_of_a_deleted_run_do_not_wait_for_ever(home: Path) -> None:
    """One line says that they are discarded, also if a read finds them; the cache may still hold the run."""
    from mlflow import MlflowClient

    put(home, "", "bench", 1, 2)
    here("sync")
    first, second = runs("bench")
    client = MlflowClient(tracking_uri=f"sqlite:///{home / 'mlflow.db'}")
    client.delete_run(first.run_id)
    mark(home, "", "bench", 1)
    ran = here("sync")
    assert (ran.code, ran.err.count("discarded")) == (0, 1)
    assert "1 mark of 'bench' discarded: " in ran.err
    assert here("sync", "--list").out == "No cell waits to be recorded\n"
    client.delete_experiment(client.get_run(second.run_id).info.experiment_id)
    mark(home, "", "bench", 2)
    assert here("experiments").code == 0
    assert here("sync", "--list").out == "No cell waits to be recorded\n"
