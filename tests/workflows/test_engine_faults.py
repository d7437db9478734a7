"""Faults that a host hides: cut prompts, ignored schemas, changed weights and slow first calls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from stand_in import TIPS, FakeModel, StandIn, running
from tipbench import runs
from tipbench.settings import Settings
from tipbench.workflows.collect import Summary, collect

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("home", "recorded_at_the_end")

Body = dict[str, Any]
EVENTS = list[dict[str, Any]]


def tokens_of(body: Body) -> int:
    """A count as a tokenizer of English makes it, with the tokens of a chat template."""
    return characters_of(body) // 4 + 13


def characters_of(body: Body) -> int:
    return sum(len(message["content"]) for message in body["messages"])


def counted(body: Body, last: Body) -> Body:
    """A host without a fault."""
    return {**last, "prompt_eval_count": tokens_of(body)}


def refusing(error: Callable[[int, int], str]) -> Callable[[Body, Body], Body]:
    """A host that refuses a prompt of more than `num_ctx` tokens with this error."""

    def amend(body: Body, last: Body) -> Body:
        assert (body["truncate"], body["shift"]) == (False, False)
        tokens, num_ctx = tokens_of(body), body["options"]["num_ctx"]
        return {"error": error(tokens, num_ctx)} if tokens > num_ctx else counted(body, last)

    return amend


def error_of_2026(tokens: int, num_ctx: int) -> str:
    """The text of Ollama since 2026: the JSON object of llama.cpp's server."""
    message = (
        f"request ({tokens} tokens) exceeds the available context size ({num_ctx} tokens), try increasing"
    )
    error = {"code": 400, "message": message, "type": "exceed_context_size_error", "n_prompt_tokens": tokens}
    return json.dumps({"error": {**error, "n_ctx": num_ctx}})


def error_of_0_17(_tokens: int, _num_ctx: int) -> str:
    return "the input length exceeds the context length"


def error_of_mlx(tokens: int, num_ctx: int) -> str:
    return f"input length ({tokens} tokens) exceeds the model's maximum context length ({num_ctx} tokens)"


def run(host: StandIn, events: EVENTS | None = None, **changes: Any) -> Summary:  # noqa: ANN401 - any setting
    base = {
        "models": ",".join(model.name for model in host.models),
        "prompts": "v1",
        "ollama_url": host.url,
        "engine": "ollama",
        "experiment": "bench",
        "retries": 2,
        "unload_timeout": 0.5,
    }
    heard: EVENTS = [] if events is None else events
    return collect(Settings.of(base | changes), emit=lambda event: heard.append(dict(event)))


def a_host(*names: str, **how: Any) -> StandIn:  # noqa: ANN401 - any of the stand-in's fields
    return StandIn(
        [FakeModel(name) for name in names or ("a:1b",)], **{"amend": counted, "limits": False, **how}
    )


def marks(experiment: str = "bench") -> list[tuple[str, ...]]:
    return [entry.marks for entry in runs(experiment)]


def marked(mark: str, experiment: str = "bench") -> set[tuple[str, str]]:
    found = [entry for entry in runs(experiment) if mark in entry.marks]
    return {(entry.prompt_id, entry.scenario_id) for entry in found}


# --- prompts that do not fit


@pytest.mark.parametrize(
    ("error", "beginning"),
    [
        (error_of_2026, "the prompt has {tokens} tokens, num_ctx is 150: raise num_ctx in the suite"),
        (error_of_mlx, "the prompt has {tokens} tokens, num_ctx is 150: raise num_ctx in the suite"),
        (error_of_0_17, "the prompt is longer than num_ctx 150: raise num_ctx in the suite"),
    ],
)
def test_a_prompt_that_does_not_fit_fails_with_a_remedy(
    error: Callable[[int, int], str], beginning: str
) -> None:
    """The host's refusal becomes one sentence, and no call is made again."""
    with running(a_host(amend=refusing(error))) as host:
        summary = run(host, num_ctx=150, n_scenarios=1)
        tokens = tokens_of(host.chats[0])
        assert (summary.cells.failed, summary.calls) == (1, 1)
    (failed,) = runs("bench")
    assert failed.error == beginning.format(tokens=tokens) + ", or pass a larger --num-ctx"


def test_the_suites_own_limit_is_named_alone() -> None:
    """Without --num-ctx the remedy is the suite."""

    def amend(body: Body, _last: Body) -> Body:
        return {"error": error_of_2026(2613, body["options"]["num_ctx"])}

    with running(a_host(amend=amend)) as host:
        run(host, n_scenarios=1)
    (failed,) = runs("bench")
    assert failed.error == "the prompt has 2613 tokens, num_ctx is 2048: raise num_ctx in the suite"


def test_the_models_own_limit_is_named_where_it_is_smaller() -> None:
    """A larger num_ctx does not help a model with a short context."""
    model = FakeModel("a:1b", context_length=100)
    refused = {"error": error_of_2026(180, 100)}
    with running(StandIn([model], limits=False, amend=lambda _b, _l: refused)) as host:
        run(host, n_scenarios=1)
    (failed,) = runs("bench")
    assert failed.error == (
        "the prompt has 180 tokens, the model's context length is 100: "
        "shorten the prompt, or leave this model out"
    )


@pytest.mark.parametrize("parallel", [1, 3])
def test_longer_prompts_of_that_version_and_model_are_not_sent(parallel: int) -> None:
    """They fail for the same reason; shorter prompts, other versions and other models are sent."""
    with running(a_host("a:1b", "b:1b", amend=refusing(error_of_2026))) as host:
        summary = run(host, prompts="v1,v3-few-shot", num_ctx=180, parallel=parallel)
    assert summary.cells.done + summary.cells.failed == 32
    for model in ("a:1b", "b:1b"):
        sizes = [characters_of(chat) for chat in host.chats if chat["model"] == model]
        long = [size for size in sizes if size > 1000]
        assert 1 <= len(long) < 8
        assert parallel > 1 or long == sorted(set(long), reverse=True)
        assert any(size < 670 for size in sizes)
    failed = [entry for entry in runs("bench") if entry.status == "failed"]
    assert {entry.prompt_id for entry in failed} >= {"v3-few-shot"}
    assert all("raise num_ctx in the suite" in (entry.error or "") for entry in failed)
    assert any("not sent" in (entry.error or "") for entry in failed)
    assert {entry.status for entry in runs("bench") if entry.prompt_id == "v1"} == {"done", "failed"}


def test_a_refused_prompt_is_tried_again_by_the_next_collection() -> None:
    """A failed cell stays missing, also one that was not sent."""
    with running(a_host(amend=refusing(error_of_2026))) as host:
        run(host, num_ctx=100, n_scenarios=3)
        host.amend = counted
        assert run(host, num_ctx=100, n_scenarios=3).cells.done == 3


# --- prompts that were cut without a word


def cutting(limit: int, to: int) -> Callable[[Body, Body], Body]:
    """A host that ignores `truncate` and cuts prompts of more than `limit` tokens."""

    def amend(body: Body, last: Body) -> Body:
        tokens = tokens_of(body)
        return {**last, "prompt_eval_count": to if tokens > limit else tokens}

    return amend


def test_prompts_that_were_cut_to_half_are_marked() -> None:
    """A host that ignores `truncate` counts after the cut; the marks reach recorded cells."""
    with running(a_host(amend=cutting(300, 150))) as host:
        summary = run(host, prompts="v1,v2-mentor,v3-few-shot", n_scenarios=4)
    assert {prompt for prompt, _ in marked("possibly-truncated")} == {"v3-few-shot"}
    assert len(marked("possibly-truncated")) == 4
    assert summary.marks["a:1b"]["possibly-truncated"] == 4
    (fault,) = summary.faults
    assert fault.startswith("a:1b: 4 prompts were possibly truncated")


def test_a_prompt_that_fills_num_ctx_is_marked() -> None:
    """Ollama 0.17 cuts to exactly num_ctx."""
    with running(a_host(amend=cutting(200, 200))) as host:
        run(host, prompts="v1,v2-mentor", num_ctx=200, n_scenarios=2)
    assert {prompt for prompt, _ in marked("possibly-truncated")} == {"v2-mentor"}


def test_a_missing_count_proves_nothing() -> None:
    """Cells without a count, or with 0, are not marked, and they do not change the median."""

    def amend(body: Body, last: Body) -> Body:
        if characters_of(body) > 1200:
            return {name: value for name, value in last.items() if name != "prompt_eval_count"}
        return {**last, "prompt_eval_count": 0 if characters_of(body) > 860 else tokens_of(body)}

    with running(a_host(amend=amend)) as host:
        run(host, prompts="v1,v2-mentor,v3-few-shot", n_scenarios=4)
    assert marked("possibly-truncated") == set()


def test_normal_suites_get_no_mark() -> None:
    """All prompts of all built-in suites, counted truthfully: no alarm."""
    with running(a_host()) as host:
        run(host, prompts="v1,v2-mentor,v3-few-shot,v4-structured")
        run(host, suite="support-summary", prompts="s1-plain,s2-schema", experiment="texts")
    assert marked("possibly-truncated") == marked("possibly-truncated", "texts") == set()


def test_the_cells_of_an_earlier_run_help_to_see_a_cut() -> None:
    """A second collection with only long prompts knows what the model needs from the first."""
    with running(a_host(amend=cutting(300, 150))) as host:
        run(host, prompts="v1", n_scenarios=4)
        run(host, prompts="v1,v3-few-shot", n_scenarios=4)
    assert {prompt for prompt, _ in marked("possibly-truncated")} == {"v3-few-shot"}


# --- schemas


def test_a_reply_that_breaks_its_schema_is_marked_and_not_well_formed() -> None:
    """Readable JSON of the wrong length is no valid reply; the summary says once that the host ignored it."""
    with running(a_host(reply=json.dumps(["one", "two", "three"]))) as host:
        summary = run(host, prompts="v1,v4-structured", n_scenarios=2)
    found = {(entry.prompt_id, entry.metrics["format_ok"]) for entry in runs("bench")}
    assert found == {("v1", 1.0), ("v4-structured", 0.0)}
    assert {prompt for prompt, _ in marked("schema-ignored")} == {"v4-structured"}
    assert summary.faults == (
        "a:1b: the host ignored the schema: 2 replies do not follow it, so format_ok is 0",
    )


@pytest.mark.parametrize(
    ("reply", "ignored"), [(TIPS[:40], False), ("", False), ("Here are my tips: first", True)]
)
def test_a_reply_cut_by_its_limit_does_not_blame_the_host(reply: str, ignored: bool) -> None:  # noqa: FBT001
    """A cut reply is no JSON because of the cut, unless it does not even begin as the schema demands."""
    with running(a_host(reply=reply, fault=lambda _n, _b: "length")) as host:
        summary = run(host, prompts="v4-structured", n_scenarios=1)
    (entry,) = runs("bench")
    assert entry.metrics["format_ok"] == 0
    assert ("schema-ignored" in entry.marks) is ignored
    assert bool(summary.faults) is ignored


def test_a_reply_that_follows_its_schema_has_no_mark() -> None:
    """Five texts of allowed length are what the schema asks for."""
    with running(a_host(reply=TIPS)) as host:
        summary = run(host, prompts="v4-structured", n_scenarios=3)
    assert {entry.metrics["format_ok"] for entry in runs("bench")} == {1.0}
    assert summary.faults == ()


# --- weights that change


def test_weights_that_change_meanwhile_mark_all_cells_of_the_run() -> None:
    """The digest is read again after the last cell; cells of an earlier run keep their good name."""

    def fault(number: int, _body: Body) -> None:
        if number == 4:
            host.models[0].weights = "pulled in another window"

    with running(a_host("a:1b", "b:1b", fault=fault)) as host:
        run(host, models="a:1b", n_scenarios=2)
        summary = run(host, n_scenarios=5)
    assert marked("digest-changed") == {("v1", entry.scenario_id) for entry in runs("bench")[2:5]}
    assert {entry.model for entry in runs("bench") if "digest-changed" in entry.marks} == {"a:1b"}
    (fault_line,) = summary.faults
    assert fault_line.startswith("a:1b was replaced on the host while its cells were generated: 3 cells")


def test_a_model_that_was_removed_meanwhile_marks_its_cells() -> None:
    """Without the model nothing shows which weights made the cells."""

    def fault(number: int, _body: Body) -> None:
        if number == 2:
            host.models.clear()

    with running(a_host(fault=fault, gives_digests=False)) as host:
        summary = run(host, models="a:1b", n_scenarios=2)
    assert len(marked("digest-changed")) == 1  # the other cell failed, as the host has no such model
    assert "was removed from the host" in summary.faults[0]


# --- first calls


def test_the_first_call_after_a_load_is_marked() -> None:
    """One of each model's cells, the first in time."""
    with running(a_host("a:1b", "b:1b")) as host:
        summary = run(host, n_scenarios=3)
    assert marks() == [("first-call",), (), (), ("first-call",), (), ()]
    assert summary.marks == {"a:1b": {"first-call": 1}, "b:1b": {"first-call": 1}}
    assert summary.faults == ()


def test_unloading_after_every_reply_makes_every_call_a_first_one() -> None:
    """With --keep-alive 0 each call loads the model."""
    with running(a_host()) as host:
        run(host, n_scenarios=3, keep_alive="0")
    assert marks() == [("first-call",)] * 3


def test_all_calls_in_flight_after_a_load_are_first_calls() -> None:
    """With three requests in flight none of them found a warm model."""
    with running(a_host(latency_s=0.2)) as host:
        run(host, n_scenarios=6, parallel=3)
    assert [bool(one) for one in marks()].count(True) == 3


def test_a_reload_by_the_host_is_seen_in_the_reply() -> None:
    """A call that waits for the weights again is a first call."""

    def amend(body: Body, last: Body) -> Body:
        waited = 2_000 if len(host.chats) == 4 else 20
        return {**counted(body, last), "load_duration": waited * 1_000_000}

    with running(a_host(amend=amend)) as host:
        run(host, n_scenarios=6)
    assert [bool(one) for one in marks()] == [True, False, False, True, False, False]


def test_a_call_that_is_retried_after_a_load_is_still_the_first() -> None:
    """A failed attempt warms nothing."""
    with running(a_host(fault=lambda n, _b: "500" if n == 1 else None)) as host:
        run(host, n_scenarios=3)
    assert marks() == [("first-call",), (), ()]
