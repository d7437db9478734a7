"""`collect` on the fake in both generations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from command import here
from stand_in import FakeModel, StandIn, running

if TYPE_CHECKING:
    from ollama_generations import Generation

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize("generation", ["0.17", "August 2026"])
def test_a_model_is_loaded_once(generation: Generation) -> None:
    """The request that loads a model has the options of the later chats, so no chat loads it again."""
    with running(StandIn([FakeModel("a:1b"), FakeModel("b:1b")], generation=generation)) as host:
        options = ("--models", "a:1b,b:1b", "--prompts", "v1", "--n-scenarios", "2", "--ollama-url", host.url)
        ran = here("collect", *options, "--engine", "ollama", "--json")
    assert ran.code == 0, ran.err
    assert len(host.chats) == 4
    assert host.loads == ["a:1b", "b:1b"]
