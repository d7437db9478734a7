"""Collecting on a host that can be made to misbehave: every cell once, one model in memory, nothing lost."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from stand_in import FakeModel, StandIn, running
from tipbench import runs
from tipbench.engine.lock import hold_host, host_name, lock_folder
from tipbench.errors import (
    BadSetting,
    EngineUnreachable,
    HostBusy,
    ModelRefused,
    ModelStuck,
    PinConflict,
)
from tipbench.settings import Settings
from tipbench.suite import new_suite
from tipbench.workflows.collect import Summary, collect
from tipbench.workflows.estimate import estimate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("home", "recorded_at_the_end")

MODELS = ("a:1b", "b:1b", "c:1b")
EVENTS = list[dict[str, Any]]


def a_host(*names: str, **how: Any) -> StandIn:  # noqa: ANN401 - any of the stand-in's fields
    return StandIn([FakeModel(name) for name in names or MODELS], **how)


def settings_for(host: StandIn, **changes: Any) -> Settings:  # noqa: ANN401 - any setting
    names = ",".join(model.name for model in host.models)
    base = {
        "models": names,
        "prompts": "v1,v2-mentor",
        "n_scenarios": 4,
        "ollama_url": host.url,
        "engine": "ollama",
        "experiment": "bench",
        "retries": 0,
        "unload_timeout": 0.5,
    }
    return Settings.of(base | changes)


def run(host: StandIn, events: EVENTS | None = None, **changes: Any) -> Summary:  # noqa: ANN401 - any setting
    heard: EVENTS = [] if events is None else events
    return collect(settings_for(host, **changes), emit=lambda event: heard.append(dict(event)))


def keys(experiment: str = "bench") -> Counter[str]:
    return Counter(entry.key for entry in runs(experiment) if entry.status == "done")


def test_every_cell_once_model_by_model() -> None:
    """3 models × 2 prompts × 4 scenarios: 24 runs, 2 switches, one model in memory; a rerun asks nothing."""
    with running(a_host()) as host:
        summary = run(host)
        assert summary.cells.planned == summary.cells.done == 24
        assert (host.switches, host.most_resident, host.most_models_in_flight) == (2, 1, 1)
        assert (summary.model_loads, summary.max_resident, summary.calls) == (3, 1, 24)
        assert [model.loads for model in summary.models] == [1, 1, 1]
        assert host.resident == []
        assert set(keys().values()) == {1}
        again = run(host)
        assert (again.cells.skipped, again.cells.done, again.calls) == (24, 0, 0)
        assert len(host.chats) == 24


def test_more_cells_go_on_where_the_first_stopped() -> None:
    """A wider grid in the same experiment generates only what is new; another experiment generates anew."""
    with running(a_host("a:1b")) as host:
        run(host, n_scenarios=2)
        assert run(host, n_scenarios=4).cells.skipped == 4
        assert run(host, n_scenarios=2, experiment="other").cells.done == 4


def test_each_repeat_and_seed_is_a_cell_of_its_own() -> None:
    """Repeats and base seeds have keys, and so sampling seeds, of their own."""
    with running(a_host("a:1b")) as host:
        assert run(host, prompts="v1", n_scenarios=1, repeats=3).cells.done == 3
        assert run(host, prompts="v1", n_scenarios=1, seed=7).cells.done == 1
        assert len({chat["options"]["seed"] for chat in host.chats}) == 4


def test_the_memory_a_model_takes_is_with_its_cells() -> None:
    """What `/api/ps` said of the model; another model's cells have their own, failed ones none."""
    models = [FakeModel("a:1b", size=3_000_000), FakeModel("b:1b", size=5_000_000)]
    fault = {3: "500"}
    with running(StandIn(models, fault=lambda n, _body: fault.get(n))) as host:
        run(host, prompts="v1", n_scenarios=2)
    found = [(entry.model, entry.metrics.get("memory_bytes")) for entry in runs("bench")]
    assert found == [("a:1b", 3e6), ("a:1b", 3e6), ("b:1b", None), ("b:1b", 5e6)]


def test_a_model_that_is_unloaded_after_every_reply_has_its_memory_too() -> None:
    """It is seen in memory before the reply is made."""
    with running(StandIn([FakeModel("a:1b", size=3_000_000)])) as host:
        run(host, prompts="v1", n_scenarios=2, keep_alive="0")
    assert [entry.metrics["memory_bytes"] for entry in runs("bench")] == [3e6, 3e6]


def test_failed_cells_are_recorded_retried_and_replaced() -> None:
    """A cell that fails is recorded once with its reason and tried again; its run is taken over."""
    with running(a_host("a:1b", fault=lambda n, _body: "500" if n == 3 else None)) as host:
        first = run(host)
        assert (first.cells.done, first.cells.failed) == (7, 1)
        (failed,) = [entry for entry in runs("bench") if entry.status == "failed"]
        assert "out of luck" in (failed.error or "")
        second = run(host)
        assert (second.cells.done, second.cells.skipped, second.cells.failed) == (1, 7, 0)
    (now,) = [entry for entry in runs("bench") if entry.key == failed.key]
    assert (now.run_id, now.status, now.error) == (failed.run_id, "done", None)


@pytest.mark.parametrize("fault", ["500", "drop", "torn", "garbage", "error-line"])
def test_passing_faults_are_retried(fault: str) -> None:
    """A fault that goes away costs a retry, not a cell."""
    events: EVENTS = []
    with running(a_host("a:1b", fault=lambda n, _body: fault if n == 2 else None)) as host:
        summary = run(host, events, prompts="v1", n_scenarios=3, retries=2)
    assert (summary.cells.done, summary.cells.failed, summary.calls) == (3, 0, 4)
    assert [event["event"] for event in events].count("retry") == 1


def test_cut_replies_are_kept_but_never_well_formed() -> None:
    """A reply at its limit, or a prompt that filled the context, is recorded as cut with format_ok 0."""
    faults = {1: "length", 2: "full-context"}
    with running(a_host("a:1b", fault=lambda n, _body: faults.get(n))) as host:
        run(host, prompts="v1", n_scenarios=3)
    found = [(entry.cut, entry.metrics["format_ok"]) for entry in runs("bench")]
    assert found == [("reply", 0.0), ("prompt", 0.0), (None, 1.0)]


def test_an_unreadable_reply_is_a_success_of_the_engine() -> None:
    """It is recorded as read `none` and is not asked for again."""
    with running(a_host("a:1b", reply="   ")) as host:
        run(host, prompts="v1", n_scenarios=2)
        assert run(host, prompts="v1", n_scenarios=2).calls == 0
    assert {(entry.status, entry.how) for entry in runs("bench")} == {("done", "none")}


def test_a_model_that_cannot_load_stops_nobody_else() -> None:
    """Its cells are recorded as failed with the host's reason; the other models are served."""
    with running(a_host(load_error={"b:1b": "not enough memory"})) as host:
        summary = run(host)
    assert (summary.cells.done, summary.cells.failed) == (16, 8)
    assert all("not enough memory" in (e.error or "") for e in runs("bench") if e.status == "failed")
    assert [model.loads for model in summary.models] == [1, 0, 1]


def test_a_model_that_does_not_fit_the_memory_is_not_loaded() -> None:
    """Its cells fail with what it needs and what is free; the other model is served."""
    huge = FakeModel("huge:1b", size=10**15)
    with running(StandIn([huge, FakeModel("a:1b")])) as host:
        summary = run(host, prompts="v1", n_scenarios=1)
        assert host.loads == ["a:1b"]
    assert (summary.cells.done, summary.cells.failed) == (1, 1)
    (failed,) = [entry for entry in runs("bench") if entry.status == "failed"]
    assert "huge:1b needs about 1000000.1 GB of memory" in (failed.error or "")


def test_a_host_that_will_not_let_go_is_an_error() -> None:
    """The next model is not loaded, and what was generated is kept."""
    with running(a_host(unloads=False)) as host:
        with pytest.raises(ModelStuck, match="still holds a:1b"):
            run(host)
        assert host.loads == ["a:1b"]
    assert len(keys()) == 8


@pytest.mark.parametrize("path", ["/api/ps", "/api/tags", "/api/show", "/api/generate"])
def test_a_host_that_is_busy_for_a_moment_costs_nothing(path: str) -> None:
    """A 503 on any of the routes around a call is asked again: no cell fails, every model is served."""
    with running(a_host("a:1b", "b:1b", busy={path: 1})) as host:
        summary = run(host, prompts="v1", n_scenarios=2, retries=1, unload_timeout=20)
    assert (summary.cells.done, summary.cells.failed, summary.calls) == (4, 0, 4)
    assert (host.most_resident, host.resident) == (1, [])


def test_an_unload_that_fails_once_is_asked_again() -> None:
    """The model is seen gone all the same, and the next one is loaded."""

    def fault(number: int, _body: dict[str, Any]) -> None:
        if number == 1:
            host.busy["/api/generate"] = 1

    with running(a_host("a:1b", "b:1b", fault=fault)) as host:
        summary = run(host, prompts="v1", n_scenarios=1, unload_timeout=20)
    assert (summary.cells.done, summary.max_resident, host.resident) == (2, 1, [])


def test_weights_replaced_in_the_middle_are_noticed() -> None:
    """Cells made with other weights than planned are not recorded under the planned identity."""

    def fault(number: int, _body: dict[str, Any]) -> None:
        if number == 2:
            host.models[0].weights = "another pull"

    with running(a_host("a:1b", latency_s=0.6, fault=fault)) as host:
        summary = run(host, prompts="v1", n_scenarios=6)
        assert summary.cells.failed >= 1
        assert summary.cells.done + summary.cells.failed == 6
        assert host.resident == []
    assert any("was replaced on the host" in (e.error or "") for e in runs("bench"))


def test_a_host_without_digests_in_its_list_is_counted_by_name() -> None:
    """Loads and memory are told truthfully where `/api/ps` gives names alone."""
    with running(a_host("a:1b", "b:1b", gives_digests=False)) as host:
        summary = run(host, prompts="v1", n_scenarios=1)
    assert (summary.model_loads, summary.max_resident, host.resident) == (2, 1, [])
    assert all(model.peak_bytes for model in summary.models)


def test_a_strangers_model_is_named_and_refused_or_evicted() -> None:
    """Somebody else's resident model keeps a collection out, unless it may be unloaded."""
    with running(a_host("a:1b", "b:1b", resident=["b:1b"])) as host:
        with pytest.raises(HostBusy, match=r"b:1b .* --evict"):
            run(host, models="a:1b")
        assert host.chats == []
        assert run(host, models="a:1b", evict=True).max_resident == 1


def test_a_leftover_of_ours_is_reused_or_unloaded() -> None:
    """What a killed run left behind is ours: reused for the same model, unloaded for another."""
    for wanted, loads in (("a:1b", 0), ("b:1b", 1)):
        with running(a_host("a:1b", "b:1b", resident=["a:1b"])) as host:
            name = host_name(host.url)
            with hold_host(name, folder=lock_folder(), experiment="x", wait=False, waiting=print) as lock:
                lock.note(model="a:1b", digest=FakeModel("a:1b").digest)
            summary = run(host, models=wanted, experiment=f"for-{wanted}")
            assert (summary.model_loads, summary.max_resident, host.resident) == (loads, 1, [])


def test_refused_models_are_named_together_before_anything_runs() -> None:
    """Too large, of unknown size and missing: one message, nothing generated, and 4.02B passes 4.0."""
    models = [
        FakeModel("big:7b", parameters=7_600_000_000),
        FakeModel("odd", parameters=None),
        FakeModel("fine:4b", parameters=4_020_000_000),
    ]
    with running(StandIn(models)) as host:
        with pytest.raises(ModelRefused) as caught:
            run(host, models="big:7b,odd,fine:4b,gone:1b")
        assert host.chats == []
        assert run(host, models="fine:4b", n_scenarios=1).cells.done == 2
    message = str(caught.value)
    for part in ("big:7b (7.6B)", "`--assume-size odd=3.2`", "ollama pull gone:1b"):
        assert part in message
    assert "fine:4b" not in message


def test_missing_models_are_pulled_when_asked() -> None:
    """`--pull` lets the host download, with progress; a name that says 70b is not downloaded at all."""
    events: EVENTS = []
    with running(a_host("a:1b")) as host:
        assert run(host, events, models="a:1b,new:1b", pull=True, n_scenarios=1).cells.done == 4
        with pytest.raises(ModelRefused, match="by its name"):
            run(host, models="llama3:70b", pull=True)
    assert {"pulling", "success"} <= {event["status"] for event in events if event["event"] == "pull"}


def test_strict_keep_alive_unloads_after_every_reply() -> None:
    """`--keep-alive 0` loads once per cell and never leaves anything resident."""
    with running(a_host("a:1b")) as host:
        summary = run(host, prompts="v1", n_scenarios=3, keep_alive="0")
    assert (summary.model_loads, summary.max_resident, len(host.loads)) == (3, 1, 3)
    assert all(chat["keep_alive"] == 0 for chat in host.chats)


def test_a_reply_is_kept_though_the_unload_after_it_stumbles() -> None:
    """With `--keep-alive 0` a busy moment after a reply does not make the call again."""

    def fault(_number: int, _body: dict[str, Any]) -> None:
        host.busy["/api/ps"] = 1

    with running(a_host("a:1b", fault=fault)) as host:
        summary = run(host, prompts="v1", n_scenarios=2, keep_alive="0", retries=2)
    assert (summary.cells.done, summary.calls) == (2, 2)


def test_keep_alive_zero_and_parallel_exclude_each_other() -> None:
    """Asking for both is refused with the reason."""
    with running(a_host("a:1b")) as host, pytest.raises(BadSetting, match="must be 1"):
        run(host, keep_alive="0", parallel=2)


def test_parallel_keeps_requests_to_one_model_in_flight() -> None:
    """With three in flight there is still one model at a time."""
    most = 0

    def fault(_number: int, _body: dict[str, Any]) -> None:
        nonlocal most
        most = max(most, len(host.in_flight) + 1)

    with running(a_host(latency_s=0.05, fault=fault)) as host:
        run(host, parallel=3)
    assert most == 3
    assert (host.switches, host.most_models_in_flight) == (2, 1)


def test_speed_bought_with_repeatability_is_said() -> None:
    """More than one request in flight may change texts, and the run says so; one does not."""
    for parallel, said in ((1, False), (2, True)):
        events: EVENTS = []
        with running(a_host("a:1b")) as host:
            run(host, events, prompts="v1", n_scenarios=1, parallel=parallel, experiment=f"p{parallel}")
        told = [event["message"] for event in events if event["event"] == "notice"]
        assert any("same seed" in message for message in told) is said


def test_a_suite_of_single_texts_is_collected_with_its_own_prompts() -> None:
    """Another kind of job: one text a cell, the suite's default prompts, its own rubric."""
    with running(a_host("a:1b", reply="The parcel is late and the customer wants a refund.")) as host:
        defaults = ",".join(Settings.prompts)
        summary = run(host, suite="support-summary", prompts=defaults, n_scenarios=1, experiment="texts")
    found = runs("texts")
    assert summary.cells.done == len(found) >= 2
    assert {(entry.n_tips, len(entry.candidates), entry.suite_id) for entry in found} == {
        (1, 1, "support-summary")
    }
    assert any(entry.metrics["format_ok"] == 1 for entry in found)


def test_two_names_for_one_digest_are_one_model() -> None:
    """The cells of an alias are not generated twice, and one is told, by a dry run too."""
    events: EVENTS = []
    with running(a_host("a:1b")) as host:
        host.models.append(_Alias("alias:1b"))
        settings = settings_for(host, n_scenarios=1)
        assert estimate(settings, emit=lambda event: events.append(dict(event))).cells == 2
        assert run(host, events, n_scenarios=1).cells.planned == 2
    said = [event["message"] for event in events if event["event"] == "notice"]
    assert said == ["alias:1b has the same weights as a:1b: they are benched once, as a:1b"] * 2


class _Alias(FakeModel):
    @property
    def digest(self) -> str:
        return FakeModel("a:1b").digest


def test_a_changed_text_under_the_same_id_is_refused(tmp_path: Path) -> None:
    """An experiment is pinned to the texts it was begun with; the message says what to do."""
    folder = tmp_path / "mine"
    new_suite(folder)
    with running(a_host("a:1b")) as host:
        run(host, suite=str(folder), prompts="v1,v2-mentor,v3-few-shot")
        prompt = next((folder / "prompts").glob("*.md"))
        prompt.write_text(prompt.read_text().rstrip() + "\nBe kind.\n")
        with pytest.raises(PinConflict, match=r"a new version, or .*a new experiment"):
            run(host, suite=str(folder), prompts="v1,v2-mentor,v3-few-shot")


def test_a_dry_run_names_prompts_near_the_limit() -> None:
    """The model's own context counts where it is smaller; a shipped suite with its own limits is fine."""
    with running(StandIn([FakeModel("a:1b"), FakeModel("short:1b", context_length=700)])) as host:
        plan = estimate(settings_for(host, models="a:1b"), emit=lambda _event: None)
        assert plan.long_prompts == ()
        plan = estimate(settings_for(host, prompts="v1,v3-few-shot"), emit=lambda _event: None)
    assert [(one.prompt, one.num_ctx, one.num_predict) for one in plan.long_prompts] == [
        ("v1", 700, 400),
        ("v3-few-shot", 700, 400),
    ]
    assert "does not fit the 700 tokens of short:1b" in str(plan.long_prompts[1])


def test_a_dry_run_generates_nothing() -> None:
    """The plan has cells, calls, minutes and memory, and the host is asked for no text."""
    with running(a_host()) as host:
        plan = estimate(settings_for(host, pull=True), emit=lambda _event: None)
        with pytest.raises(ModelRefused, match="ollama pull new:1b"):
            estimate(settings_for(host, models="new:1b"), emit=lambda _event: None)
        assert (plan.cells, plan.calls, plan.skipped, len(plan.models)) == (24, 24, 0, 3)
        assert plan.minutes > 0
        assert plan.peak_bytes > 0
        assert (host.chats, host.loads) == ([], [])
        run(host)
        after = estimate(settings_for(host), emit=lambda _event: None)
        assert (after.cells, after.skipped) == (0, 24)


def test_a_dry_run_with_pull_names_the_models_that_it_cannot_count() -> None:
    """With `--pull` a missing model is no error: a notice names it, and the plan has the installed ones."""
    events: EVENTS = []
    with running(a_host("a:1b")) as host:
        plan = estimate(
            settings_for(host, models="a:1b,new:1b", pull=True), emit=lambda event: events.append(dict(event))
        )
        assert [model.name for model in plan.models] == ["a:1b"]
        assert "new:1b" in " ".join(event["message"] for event in events if event["event"] == "notice")
        with pytest.raises(ModelRefused, match="llama3:70b"):
            estimate(settings_for(host, models="llama3:70b", pull=True), emit=lambda _event: None)


def test_a_host_that_dies_ends_the_run_and_keeps_what_was_done(home: Path) -> None:
    """The error says to run the same command; afterwards only the rest is generated."""
    stop: list[Callable[[], None]] = []

    def fault(number: int, _body: dict[str, Any]) -> None:
        if number == 3:
            stop[0]()

    with (
        running(a_host("a:1b", fault=fault), stop) as host,
        pytest.raises(EngineUnreachable, match="went away"),
    ):
        run(host)
    assert len(keys()) == 2
    with running(a_host("a:1b")) as back:
        assert run(back).cells.skipped == 2
