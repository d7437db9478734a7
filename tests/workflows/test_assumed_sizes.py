"""Models for which the host gives no size: the user names it, or the tag contains it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from command import tipbench
from stand_in import FakeModel, StandIn, running
from tipbench import runs
from tipbench.errors import BadSetting, ModelRefused
from tipbench.settings import Settings
from tipbench.workflows.collect import collect
from tipbench.workflows.doctor import examine
from tipbench.workflows.hosts import installed_models

if TYPE_CHECKING:
    from tipbench.workflows.collect import Summary

pytestmark = pytest.mark.usefixtures("home", "recorded_at_the_end")


def run(host: StandIn, **changes: Any) -> Summary:  # noqa: ANN401 - any setting
    base = {
        "models": ",".join(model.name for model in host.models),
        "prompts": "v1",
        "n_scenarios": 1,
        "ollama_url": host.url,
        "engine": "ollama",
        "experiment": "bench",
    }
    return collect(Settings.of(base | changes), emit=lambda _event: None)


def nameless(*names: str) -> StandIn:
    return StandIn([FakeModel(name, parameters=None) for name in names])


def test_a_model_of_unknown_size_is_refused_with_both_remedies() -> None:
    """The message is ready to type, and the remedy that it names works."""
    with running(nameless("mine:latest")) as host:
        with pytest.raises(ModelRefused) as caught:
            run(host)
        assert "name the size with `--assume-size mine:latest=3.2`" in str(caught.value)
        assert "or use a tag that contains it" in str(caught.value)
        assert run(host, assume_size="mine:latest=3.2").cells.done == 1
    (found,) = runs("bench")
    assert (found.parameters, found.size_assumed) == (3_200_000_000, "option")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("mine:3b", 3_000_000_000),
        ("me/mine:1.5b-instruct-q4_K_M", 1_500_000_000),
        ("mine:tuned-500m", 500_000_000),
    ],
)
def test_a_tag_that_contains_the_size_is_used(name: str, parameters: int) -> None:
    """Billions or millions, beside other words of the tag; the run says where the size is from."""
    with running(nameless(name)) as host:
        assert run(host).cells.done == 1
        (listed,) = installed_models(Settings.of({"ollama_url": host.url, "engine": "ollama"}))
    (found,) = runs("bench")
    assert (found.parameters, found.size_assumed) == (parameters, "tag")
    assert (listed.parameters, listed.too_large) == (parameters, None)


@pytest.mark.parametrize("name", ["mine:q4b2", "3b/mine:latest", "mine3b:latest", "mine:e2b", "mine:v2.b"])
def test_a_tag_without_a_size_is_not_taken_for_one(name: str) -> None:
    """Letters and digits of other words are no size, and only the tag counts."""
    with running(nameless(name)) as host, pytest.raises(ModelRefused, match="does not give its size"):
        run(host)


@pytest.mark.parametrize(("name", "size"), [("mine:latest", "mine=7"), ("mine:8x7b", ""), ("mine:70b", "")])
def test_an_assumed_size_above_the_limit_is_refused(name: str, size: str) -> None:
    """The limit holds for assumed sizes, too."""
    with running(nameless(name)) as host:
        with pytest.raises(ModelRefused, match="above --max-model-b 4"):
            run(host, assume_size=size or None)
        assert host.chats == []


def test_the_size_that_the_host_gives_counts() -> None:
    """An assumption does not make a large model small."""
    with (
        running(StandIn([FakeModel("a:7b", parameters=7_600_000_000)])) as host,
        pytest.raises(ModelRefused, match=r"a:7b \(7.6B\): above"),
    ):
        run(host, assume_size="a:7b=1")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("mine", "'mine' is not NAME=BILLIONS"),
        ("mine=", "'mine=' is not NAME=BILLIONS"),
        ("mine=large", "is not NAME=BILLIONS"),
        ("mine=-1", "is not NAME=BILLIONS"),
        ("mine=0", "is not NAME=BILLIONS"),
        ("mine=nan", "is not NAME=BILLIONS"),
        ("=3", "is not NAME=BILLIONS"),
        ("mine=1,mine=2", "mine is named twice"),
    ],
)
def test_a_bad_size_gets_one_sentence(value: str, words: str) -> None:
    """What is wrong, and how it is written."""
    with pytest.raises(BadSetting, match=words):
        Settings.of({"assume_size": value})


def test_a_size_for_a_model_that_is_not_asked_for_is_named() -> None:
    """A mistyped name is in a notice; the DAG passes all sizes to hosts that have some of the models."""
    events: list[dict[str, Any]] = []
    with running(nameless("mine:latest", "other:1b")) as host:
        settings = Settings.of(
            {
                "models": "other:1b",
                "prompts": "v1",
                "n_scenarios": 1,
                "engine": "ollama",
                "ollama_url": host.url,
                "assume_size": "mime=1,other:1b=2",
            }
        )
        assert collect(settings, emit=lambda event: events.append(dict(event))).cells.done == 1
    (notice,) = [event["message"] for event in events if event["event"] == "notice"]
    assert notice == "--assume-size: mime:latest is not one of the models other:1b"


def test_the_option_can_be_given_several_times() -> None:
    """Each option adds a model; commas work as well; `show` says that the size is assumed."""
    with running(nameless("one", "two", "three")) as host:
        done = tipbench(
            *("collect", "--models", "one,two,three", "--prompts", "v1", "--n-scenarios", "1", "--json"),
            *("--ollama-url", host.url, "--engine", "ollama", "--experiment", "bench"),
            *("--assume-size", "one=1", "--assume-size", "two=1.5,three=2b"),
        )
    assert done.code == 0, done.err
    assert [model["parameters"] for model in done.json["models"]] == [10**9, 1_500_000_000, 2 * 10**9]
    shown = tipbench("show", runs("bench")[1].run_id)
    assert "1.50B parameters (assumed, from --assume-size)" in shown.out


def test_doctor_names_the_remedy() -> None:
    """A model of unknown size is a warning with what to type."""
    with running(nameless("mine")) as host:
        found = examine(Settings.of({"ollama_url": host.url, "models": "mine"}))
    (model,) = [one for one in found if one.name == "model"]
    assert model.fix.startswith("tipbench collect --assume-size mine=3.2")
