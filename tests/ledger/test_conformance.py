"""What every ledger promises, shown on every ledger."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from ledger_samples import TIPS, sample_pin, sample_result
from tipbench.errors import LedgerUnreachable, NotFound, PinConflict
from tipbench.ledger.chunks import sha256
from tipbench.records import Candidate, Host, Mark, RubricText, SuitePlace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tipbench.ledger import MemoryLedger, MlflowLedger
    from tipbench.records import CellResult, Pin

    from .conftest import Place

    AnyLedger = MlflowLedger | MemoryLedger

LONG = "Zeile – línea – 行 😀\r\n" * 900


def test_a_pin_is_read_back_whole(place: Place, experiment: str) -> None:
    """Another opening of the ledger finds the pin with every word of a long rubric."""
    pin = sample_pin(rubric=LONG, prompts=[f"prompt {n}" for n in range(200)])
    assert place.open().pin(experiment, pin) == pin
    assert place.open().pinned(experiment) == pin


def test_what_is_not_there_is_empty(ledger: AnyLedger, experiment: str) -> None:
    """An experiment that nobody began has no pin and no runs."""
    assert ledger.pinned(experiment) is None
    assert ledger.runs(experiment) == []


def test_a_pin_grows_by_new_ids(place: Place, experiment: str) -> None:
    """A later collection may bring more prompts and scenarios; the earlier ones stay pinned."""
    place.open().pin(experiment, sample_pin(prompts=["v1"], scenarios=["a"]))
    grown = place.open().pin(experiment, sample_pin(prompts=["v2"], scenarios=["b", "a"]))
    assert grown == sample_pin(prompts=["v1", "v2"], scenarios=["a", "b"])
    assert place.open().pinned(experiment) == grown


def test_a_pin_keeps_the_places_of_its_suite(place: Place, experiment: str) -> None:
    """Each place comes once with its latest hash, the newest first, however long; the old ones stay."""
    long = f"/{'ü/' * 2400}"
    first, moved = SuitePlace(place="/a", hash="1" * 64), SuitePlace(place=long, hash="2" * 64)
    changed = replace(first, hash="3" * 64)
    for places, expected in [
        ((first,), (first,)),
        ((moved,), (moved, first)),
        ((first,), (moved, first)),
        ((), (moved, first)),
        ((changed,), (changed, moved)),
    ]:
        place.open().pin(experiment, replace(sample_pin(), places=places))
        pin = place.open().pinned(experiment)
        assert pin is not None
        assert pin.places == expected


def test_the_texts_of_suites_are_kept_once_each(place: Place, experiment: str) -> None:
    """A pin may bring texts of any length; each is kept once, and the newest is read first."""
    texts = [LONG * 3, "", '{"a": "ü\\ud800"}']
    pins = [replace(sample_pin(), suites={sha256(text): text}) for text in texts]
    for pin in (pins[0], pins[0], pins[2]):
        place.open().pin(experiment, pin)
    assert place.open().suite_texts(experiment) == [texts[2], texts[0]]
    assert place.open().suite_texts(f"{experiment} x") == []
    assert place.open().runs(experiment) == []


CHANGES: dict[str, Callable[[Pin], Pin]] = {
    "prompt 'v1'": lambda pin: replace(pin, prompts={"v1": "another hash"}),
    "scenario 's0'": lambda pin: replace(pin, scenarios={"s0": "another hash", "new": "x"}),
    "the rubric 'tip-v1' has changed": lambda pin: replace(pin, rubric_hash="q" * 64, rubric_text="else"),
    "pinned to the rubric 'tip-v1', and this is 'tip-v2'": lambda pin: replace(pin, rubric_id="tip-v2"),
    "pinned to the suite 'tip', and this is 'mine'": lambda pin: replace(pin, suite_id="mine"),
}


@pytest.mark.parametrize("named", CHANGES)
def test_a_changed_text_is_refused(ledger: AnyLedger, experiment: str, named: str) -> None:
    """A text that changed under its id is refused by name, with the way out, and nothing is altered."""
    pin = sample_pin()
    ledger.pin(experiment, pin)
    with pytest.raises(PinConflict) as refusal:
        ledger.pin(experiment, CHANGES[named](pin))
    assert named in str(refusal.value)
    assert "give what changed a new version, or use a new experiment" in str(refusal.value)
    assert ledger.pinned(experiment) == pin


def test_a_success_is_recorded_with_all_that_is_known(place: Place, experiment: str) -> None:
    """A run tells its cell, where it ran, how it was read, its metrics and its candidates."""
    result = sample_result(3)
    ledger = place.open()
    ledger.pin(experiment, sample_pin())
    ledger.record(experiment, [result])
    (run,) = place.open().runs(experiment)
    cell = result.cell
    assert (run.key, run.status, run.error, run.judge_pending) == (cell.key, "done", None, True)
    assert (run.model, run.digest, run.parameters) == ("tiny:1b", "d" * 64, 1_000_000)
    assert (run.prompt_id, run.prompt_hash, run.scenario_id, run.scenario_hash) == (
        *(cell.prompt_id, cell.prompt_hash),
        *(cell.scenario_id, cell.scenario_hash),
    )
    assert (run.repeat, run.n_tips, run.suite_id, run.rubric_id) == (0, 2, "tip", "tip-v1")
    assert (run.rubric_hash, run.host, run.how, run.cut) == (
        "r" * 64,
        "http://localhost:11434",
        "strict",
        None,
    )
    assert (run.experiment, run.started_ms) == (experiment, result.started_ms)
    assert run.metrics == result.metrics
    assert run.candidates == result.candidates


def test_a_run_says_where_it_was_made(place: Place, experiment: str) -> None:
    """The engine with its version, the machine, its hardware and the share in VRAM; unknown is empty."""
    host = Host(kind="embedded", url="http://127.0.0.1:4", version="7", machine="böx", hardware="A CPU ☕")
    ledger = place.open()
    ledger.pin(experiment, sample_pin())
    ledger.record(experiment, [replace(sample_result(1), host=host, vram_share=1 / 3), sample_result(2)])
    made, old = place.open().runs(experiment)
    assert (made.host, made.host_kind, made.host_version) == ("http://127.0.0.1:4", "embedded", "7")
    assert (made.machine, made.hardware, made.vram_share) == ("böx", "A CPU ☕", 0.3333)
    assert (old.host_kind, old.machine, old.hardware, old.vram_share) == ("ollama", "", "", None)


def test_a_cell_that_another_host_made_says_nothing_of_the_first(place: Place, experiment: str) -> None:
    """A host dies on a cell and another makes it: only the second is told, also where less is known of it."""
    first = Host(kind="ollama", url="http://localhost:1", version="1", machine="one", hardware="much")
    second = Host(kind="ollama", url="http://two:1", version="2")
    ledger = place.open()
    ledger.pin(experiment, sample_pin())
    ledger.record(experiment, [replace(sample_result(error="gone"), host=first, vram_share=0.5)])
    place.open().record(experiment, [replace(sample_result(), host=second)])
    (run,) = place.open().runs(experiment)
    assert (run.host, run.host_version, run.machine, run.hardware) == ("http://two:1", "2", "", "")
    assert run.vram_share is None


def test_a_failure_is_recorded_with_its_reason(ledger: AnyLedger, experiment: str) -> None:
    """A failed cell says why, has no candidates and does not wait for a judge."""
    ledger.pin(experiment, sample_pin())
    ledger.record(experiment, [sample_result(error="the engine answered 500")])
    (run,) = ledger.runs(experiment)
    assert (run.status, run.error, run.judge_pending) == ("failed", "the engine answered 500", False)
    assert (run.candidates, run.metrics, run.how) == ((), {}, "none")


def test_recording_again_changes_nothing(place: Place, experiment: str) -> None:
    """A result that comes a second time, or a failure after a success, leaves the run as it was."""
    ledger = place.open()
    ledger.pin(experiment, sample_pin())
    ledger.record(experiment, [sample_result(1), sample_result(2)])
    before = ledger.runs(experiment)
    place.open().record(experiment, [sample_result(2), sample_result(1, error="late"), sample_result(2)])
    assert place.open().runs(experiment) == before


def record_all(ledger: AnyLedger, experiment: str, results: Sequence[CellResult], start: Barrier) -> None:
    """Record as a drain does: what another home is writing comes again."""
    start.wait(timeout=30)
    for _ in range(30):
        try:
            ledger.record(experiment, results)
        except LedgerUnreachable as error:
            assert "recorded by another tipbench" in str(error)  # noqa: PT017 - nothing else may be refused
            time.sleep(0.2)
        else:
            return
    raise AssertionError("the cells were still being recorded by another tipbench")


def test_two_homes_that_record_the_same_cells_leave_one_run_each(place: Place, experiment: str) -> None:
    """Whatever both do at the same moment, each cell is there once, from one of them, and neither fails."""
    ledgers = [place.open(), place.elsewhere()]
    ledgers[0].pin(experiment, sample_pin())
    ledgers[0].record(experiment, [sample_result(n, error="x") for n in range(3)])
    batches = [[sample_result(n, text=name, tips=[name]) for n in range(10)] for name in ("one", "other")]
    start = Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        tries = [
            pool.submit(record_all, ledger, experiment, batch, start)
            for ledger, batch in zip(ledgers, batches, strict=True)
        ]
        for each in tries:
            each.result(timeout=120)
    runs = place.open().runs(experiment)
    assert [run.key for run in runs] == [result.cell.key for result in batches[0]]
    assert {run.status for run in runs} == {"done"}
    for run in runs:
        assert place.open().run(run.run_id)[1].raw == run.candidates[0].text


def test_a_success_takes_the_failed_runs_place(place: Place, experiment: str) -> None:
    """The run keeps its id, becomes done, and no longer speaks of the error."""
    ledger = place.open()
    ledger.pin(experiment, sample_pin())
    ledger.record(experiment, [sample_result(error="timeout", started_ms=5)])
    (failed,) = ledger.runs(experiment)
    success = sample_result(text=LONG, started_ms=9, name="other-name:1b")
    place.open().record(experiment, [success])
    (done,) = place.open().runs(experiment)
    assert (done.run_id, done.status, done.error) == (failed.run_id, "done", None)
    assert (done.judge_pending, done.started_ms, done.metrics) == (True, 9, success.metrics)
    assert done.candidates == success.candidates
    assert place.open().run(done.run_id)[1].raw == LONG


def test_a_second_failure_refreshes_the_first(ledger: AnyLedger, experiment: str) -> None:
    """Of a cell that fails again, the latest reason is told, in one run."""
    ledger.pin(experiment, sample_pin())
    ledger.record(experiment, [sample_result(error="first", started_ms=5)])
    (first,) = ledger.runs(experiment)
    ledger.record(experiment, [sample_result(error="second", started_ms=9)])
    (second,) = ledger.runs(experiment)
    assert (second.run_id, second.error, second.started_ms) == (first.run_id, "second", 9)


def test_within_one_batch_a_success_counts_before_failures(ledger: AnyLedger, experiment: str) -> None:
    """A batch that holds several results of one cell leaves one run, done if any of them succeeded."""
    ledger.pin(experiment, sample_pin())
    ledger.record(experiment, [sample_result(error="a"), sample_result(), sample_result(error="b")])
    (run,) = ledger.runs(experiment)
    assert (run.status, run.error) == ("done", None)


def test_every_run_holds_the_rubric(place: Place, experiment: str) -> None:
    """The whole text is with each run, a failed one too, at any length and word for word."""
    ledger = place.open()
    ledger.pin(experiment, sample_pin(rubric=LONG))
    ledger.record(experiment, [sample_result(1), sample_result(2, error="x")])
    for run in place.open().runs(experiment):
        assert place.open().run(run.run_id)[1].rubric == LONG
        assert (run.rubric_id, run.rubric_hash) == ("tip-v1", "r" * 64)


def test_a_cell_recorded_after_the_rubric_changed_holds_the_new_one(place: Place, experiment: str) -> None:
    """A cell that waited on disk meanwhile shows the rubric that its scores will count under."""
    ledger = place.open()
    ledger.pin(experiment, sample_pin())
    ledger.change_rubric(experiment, rubric_id="tip-v2", rubric_hash="q" * 64, rubric_text="New.")
    ledger.record(experiment, [sample_result(1)])
    (run,) = place.open().runs(experiment)
    assert (run.rubric_id, run.rubric_hash) == ("tip-v2", "q" * 64)
    assert place.open().run(run.run_id)[1].rubric == "New."


def test_a_mark_brings_the_rubric_that_its_numbers_count_under(place: Place, experiment: str) -> None:
    """A run that is marked under another rubric shows that rubric, and marking it again changes nothing."""
    ledger = place.open()
    ledger.pin(experiment, sample_pin())
    ledger.record(experiment, [sample_result(1), sample_result(2)])
    first, second = ledger.runs(experiment)
    rubric = RubricText(id="tip-v2", hash="q" * 64, text=LONG)
    mark = Mark(metrics={"composite": 3.0}, judge_pending=False, rubric=rubric)
    for _ in range(2):
        ledger.mark(experiment, {first.run_id: mark})
        run, other = place.open().runs(experiment)
        assert (run.rubric_id, run.rubric_hash, run.metrics["composite"]) == ("tip-v2", "q" * 64, 3.0)
        assert place.open().run(run.run_id)[1].rubric == LONG
        assert other == second


def test_runs_come_oldest_first(ledger: AnyLedger, experiment: str) -> None:
    """The order is that of generation, not of recording."""
    ledger.pin(experiment, sample_pin())
    ledger.record(experiment, [sample_result(2)])
    ledger.record(experiment, [sample_result(3), sample_result(1)])
    assert [run.scenario_id for run in ledger.runs(experiment)] == ["s1", "s2", "s3"]


def test_long_texts_come_back_word_for_word(place: Place, experiment: str) -> None:
    """Prompt, reply and candidates survive at any length, in any script, line ends and all."""
    result = sample_result(text=LONG, tips=[LONG, "", "short"])
    ledger = place.open()
    ledger.pin(experiment, sample_pin())
    ledger.record(experiment, [result])
    (listed,) = place.open().runs(experiment)
    run, texts = place.open().run(listed.run_id)
    assert run == listed
    assert run.candidates == result.candidates
    assert texts.raw == LONG
    assert texts.prompt == "[system]\nYou help.\n\n[user]\nScene 0\r\n"


def test_what_no_store_can_hold_is_replaced(ledger: AnyLedger, experiment: str) -> None:
    """NUL and lone surrogates, which models do emit, become U+FFFD instead of failing the cell."""
    ledger.pin(experiment, sample_pin())
    ledger.record(experiment, [sample_result(text="a\x00b\ud800c", tips=["x\udfffy\x00"])])
    (listed,) = ledger.runs(experiment)
    run, texts = ledger.run(listed.run_id)
    assert texts.raw == "a\ufffdb\ufffdc"
    assert run.candidates == (Candidate(text="x\ufffdy\ufffd", overlong=False),)


def test_an_empty_reply_is_a_reply(ledger: AnyLedger, experiment: str) -> None:
    """A model that said nothing is recorded as done, with no candidates."""
    ledger.pin(experiment, sample_pin())
    ledger.record(experiment, [sample_result(text="", tips=[])])
    (listed,) = ledger.runs(experiment)
    run, texts = ledger.run(listed.run_id)
    assert (run.status, run.candidates, texts.raw, texts.candidates) == ("done", (), "", "[]")


def test_a_run_is_found_by_the_beginning_of_its_id(ledger: AnyLedger, experiment: str) -> None:
    """Eight characters of the id, in either case, or the cell's key, name a run."""
    ledger.pin(experiment, sample_pin())
    ledger.record(experiment, [sample_result(777)])
    (run,) = ledger.runs(experiment)
    assert ledger.run(run.run_id[:12].upper())[0] == run


def test_a_run_is_found_by_its_cells_key(ledger: AnyLedger, experiment: str) -> None:
    """A key names the run of its cell, and several runs of one cell in several experiments are told apart."""
    cell = sample_result(abs(hash(experiment)) % 10**9)
    ledger.pin(experiment, sample_pin())
    ledger.record(experiment, [cell])
    assert ledger.run(cell.cell.key)[0].experiment == experiment
    ledger.pin(f"{experiment} b", sample_pin())
    ledger.record(f"{experiment} b", [cell])
    with pytest.raises(NotFound, match=r"2 runs begin with .* give more of the id"):
        ledger.run(cell.cell.key)


@pytest.mark.parametrize("text", ["", "aBc", "F" * 32, "No'Such`Run ", "é" * 8])
def test_a_run_that_is_not_there_is_named(ledger: AnyLedger, text: str) -> None:
    """What names no run is repeated in the refusal as it was typed, with the place where ids are listed."""
    with pytest.raises(NotFound) as refusal:
        ledger.run(text)
    assert repr(text) in str(refusal.value)
    assert "`tipbench experiments NAME`" in str(refusal.value)


def test_experiments_are_counted_newest_first(ledger: AnyLedger, experiment: str) -> None:
    """Each experiment tells how many cells are done, failed and waiting for a judge."""
    late = 10**15 + abs(hash(experiment)) % 10**9
    for name, started in (
        (experiment, late),
        (f"{experiment} newer", late + 1),
        (f"{experiment} empty", None),
    ):
        ledger.pin(name, sample_pin())
        if started is not None:
            failed = sample_result(2, error="x", started_ms=started)
            ledger.record(name, [sample_result(1, started_ms=started), failed])
    ours = [entry for entry in ledger.experiments() if entry.name.startswith(experiment)]
    assert [entry.name for entry in ours] == [f"{experiment} newer", experiment, f"{experiment} empty"]
    assert [(entry.done, entry.failed, entry.pending) for entry in ours] == [(1, 1, 1), (1, 1, 1), (0, 0, 0)]
    assert [entry.newest_ms for entry in ours] == [late + 1, late, None]
    assert {(entry.suite_id, entry.rubric_id) for entry in ours} == {("tip", "tip-v1")}


def test_recording_needs_a_pinned_experiment(ledger: AnyLedger, experiment: str) -> None:
    """A run must never be there before what it is held to."""
    with pytest.raises(NotFound, match="it is made by being pinned"):
        ledger.record(experiment, [sample_result()])


def test_a_pin_may_bring_its_prompts_again(ledger: AnyLedger, experiment: str) -> None:
    """Pinning with the prompts' texts is harmless, whatever the ledger has by way of a registry."""
    pin = replace(sample_pin(), prompts={"v1": "h1"}, templates={"v1": "Give {{ n }} tips."})
    for _ in range(2):
        assert ledger.pin(experiment, pin) == pin


def test_credentials_are_never_shown(ledger: AnyLedger) -> None:
    """The address by which a ledger is known holds neither user nor password."""
    assert "@" not in ledger.uri
    assert "horse" not in ledger.uri


def test_the_samples_are_of_different_kinds() -> None:
    """The tips of the samples cover an overlong one and one outside ASCII."""
    assert any(len(tip) > 40 for tip in TIPS)
    assert not all(tip.isascii() for tip in TIPS)


def test_marks_are_recorded_and_more_can_be_added(place: Place, experiment: str) -> None:
    """A cell keeps the marks that it came with; later ones join them, once, and every reader sees them."""
    ledger = place.open()
    ledger.pin(experiment, sample_pin())
    cold = replace(sample_result(0), marks=("first-call",))
    model = replace(sample_result(1).cell.model, size_assumed="option")
    assumed = replace(sample_result(1), cell=replace(sample_result(1).cell, model=model))
    ledger.record(experiment, [cold, assumed])
    keys = [cold.cell.key, assumed.cell.key]
    assert [(run.marks, run.size_assumed) for run in ledger.runs(experiment)] == [
        (("first-call",), ""),
        ((), "option"),
    ]
    before = ledger.revision(experiment)
    assert ledger.add_marks(f"{experiment}-absent", {"a": ["digest-changed"]}) == {"a"}
    late = {key: ["digest-changed"] for key in [*keys, "never recorded"]}
    assert ledger.add_marks(experiment, late) == {"never recorded"}
    assert ledger.add_marks(experiment, late) == {"never recorded"}
    for reader in (ledger, place.open()):
        found = [run.marks for run in reader.runs(experiment)]
        assert found == [("digest-changed", "first-call"), ("digest-changed",)]
    assert ledger.revision(experiment) != before
