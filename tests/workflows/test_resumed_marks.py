"""Marks that all cells of a model together show, where an interrupted or offline collection made some."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from stand_in import FakeModel, StandIn, running
from tipbench import runs
from tipbench.errors import Interrupted
from tipbench.settings import Settings
from tipbench.workflows.collect import Summary, collect
from tipbench.workflows.interrupt import SIGNALS
from tipbench.workflows.recording import sync, the_spool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.usefixtures("home", "recorded_at_the_end", "signals_as_before")


@pytest.fixture
def signals_as_before() -> Iterator[None]:
    """An interrupted collection ignores signals until the process ends, and this process goes on."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


Body = dict[str, Any]
CUT, CHANGED = "possibly-truncated", "digest-changed"


def cutting(body: Body, last: Body) -> Body:
    """A host that cuts prompts of more than 300 tokens to 150, without a word."""
    tokens = sum(len(message["content"]) for message in body["messages"]) // 4 + 13
    return {**last, "prompt_eval_count": 150 if tokens > 300 else tokens}


def a_host(*names: str) -> StandIn:
    return StandIn([FakeModel(name) for name in names or ("a:1b",)], limits=False, amend=cutting)


def run(host: StandIn, *, stop_after: int = 0, **changes: Any) -> Summary | None:  # noqa: ANN401 - any setting
    """Collect. Ctrl-C comes after so many cells; None is returned then."""
    base = {"models": ",".join(model.name for model in host.models), "prompts": "v1", "ollama_url": host.url}
    settings = Settings.of(base | {"engine": "ollama", "experiment": "bench", "n_scenarios": 4} | changes)
    cells: list[str] = []

    def listen(event: Any) -> None:  # noqa: ANN401 - an event
        cells.extend(["cell"] if event["event"] == "cell" else [])
        if stop_after and len(cells) == stop_after and event["event"] == "cell":
            raise Interrupted("Ctrl-C")

    with suppress(Interrupted):
        return collect(settings, emit=listen)
    return None


def marked(mark: str) -> list[tuple[str, str]]:
    """Model and prompt of each cell with this mark."""
    return sorted((entry.model, entry.prompt_id) for entry in runs("bench") if mark in entry.marks)


LONG = [("a:1b", "v3-few-shot")] * 4


@pytest.mark.parametrize("recorded", [True, False])
def test_cells_of_an_interrupted_run_take_part(recorded: bool) -> None:  # noqa: FBT001 - a parameter
    """The short prompts that show what the model needs were generated before Ctrl-C, recorded or not."""
    with running(a_host()) as host:
        assert run(host, prompts="v1,v3-few-shot", stop_after=5) is None
        if recorded:
            sync(Settings.of({}))
        summary = run(host, prompts="v1,v3-few-shot")
    assert summary is not None
    assert (summary.cells.done, summary.cells.skipped) == (3, 5)
    assert marked(CUT) == LONG


def test_an_interrupted_run_marks_what_it_has() -> None:
    """No later collection is needed for the cells that are stored."""
    with running(a_host()) as host:
        run(host, prompts="v1,v3-few-shot", stop_after=7)
        assert len(host.chats) == 7
    sync(Settings.of({}))
    assert marked(CUT) == LONG[:3]


def test_a_model_without_a_cell_left_is_checked_too() -> None:
    """Its long prompts came from a run of their own, its short ones from another; nothing is generated."""
    with running(a_host("a:1b", "b:1b")) as host:
        run(host, models="a:1b", prompts="v3-few-shot")
        run(host, models="a:1b", prompts="v1")
        assert marked(CUT) == []
        summary = run(host, prompts="v1,v3-few-shot")
    assert summary is not None
    assert summary.marks["a:1b"] == {CUT: 4}
    assert [fault for fault in summary.faults if fault.startswith("a:1b: 4 prompts")]
    assert marked(CUT) == [*LONG, *(("b:1b", prompt) for _, prompt in LONG)]


def test_offline_cells_and_recorded_cells_take_part_together() -> None:
    """Long prompts were recorded, short ones wait on this disk: the next collection sees both."""
    with running(a_host()) as host:
        run(host, prompts="v3-few-shot")
        run(host, prompts="v1", offline=True)
        summary = run(host, prompts="v1,v3-few-shot")
    assert summary is not None
    assert (summary.calls, summary.unrecorded, summary.unrecorded_marks) == (0, 0, 0)
    assert marked(CUT) == LONG


def test_two_offline_collections_take_part_together() -> None:
    """Nothing is recorded yet, and the second one still sees the cells of the first."""
    with running(a_host()) as host:
        run(host, prompts="v1", offline=True)
        run(host, prompts="v1,v3-few-shot", offline=True)
    sync(Settings.of({}))
    assert marked(CUT) == LONG


def test_a_prompt_is_marked_once() -> None:
    """Later collections neither count nor write the mark again."""
    with running(a_host()) as host:
        run(host, prompts="v1,v3-few-shot", offline=True)
        for offline in (True, False, False):
            summary = run(host, prompts="v1,v3-few-shot", offline=offline)
            assert summary is not None
            assert (summary.marks, summary.faults) == ({}, ())
    assert marked(CUT) == LONG


def change_at(host: StandIn, number: int) -> Callable[[int, Body], None]:
    """Weights that are pulled in another window during this call."""

    def fault(now: int, _body: Body) -> None:
        if now == number:
            host.models[0].weights = f"pulled at {number}"

    return fault


def test_weights_that_change_after_a_resume_mark_the_cells_before_it_too() -> None:
    """Nothing has shown which weights made the cells of the interrupted run."""
    with running(a_host("a:1b", "b:1b")) as host:
        run(host, stop_after=2)
        host.fault = change_at(host, 4)
        summary = run(host)
    assert summary is not None
    assert marked(CHANGED) == [("a:1b", "v1")] * 4
    assert summary.faults[0].startswith(
        "a:1b was replaced on the host while its cells were generated: 4 cells"
    )


def test_weights_that_changed_before_a_resume_mark_the_interrupted_cells() -> None:
    """The model was pulled again during the interrupted run; the cells of the resumed run have no mark."""
    with running(a_host()) as host:
        host.fault = change_at(host, 2)
        run(host, stop_after=3)
        summary = run(host)
    assert summary is not None
    assert summary.cells.done == 4
    assert [CHANGED in entry.marks for entry in runs("bench")] == [
        True,
        True,
        True,
        False,
        False,
        False,
        False,
    ]
    (fault,) = summary.faults
    assert fault == (
        f"a:1b was replaced on the host since an interrupted collection: 3 cells have the mark {CHANGED}; "
        "collect again into a new experiment"
    )


@pytest.mark.parametrize("offline", [True, False])
def test_cells_that_were_checked_keep_their_good_name(offline: bool) -> None:  # noqa: FBT001 - a parameter
    """A collection that came to its end has read the digest again, offline too."""
    with running(a_host()) as host:
        run(host, n_scenarios=2, offline=offline)
        with the_spool() as spool:
            assert spool.unchecked("", "bench") == []
        host.models[0].weights = "pulled later"
        summary = run(host, n_scenarios=2)
    assert summary is not None
    assert summary.faults == ()
    assert marked(CHANGED) == []


def test_an_interrupted_run_whose_model_did_not_change_is_checked_by_the_next() -> None:
    """All cells were there; the next command reads the digest and no later change marks them."""
    with running(a_host()) as host:
        run(host, stop_after=4)
        assert run(host) is not None
        host.models[0].weights = "pulled later"
        run(host)
    assert marked(CHANGED) == []
