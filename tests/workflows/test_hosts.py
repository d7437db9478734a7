"""What a host has and who is using it, as a page shows it before a collection is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stand_in import FakeModel, StandIn, running
from tiny_gguf import write_tiny_gguf
from tipbench.engine.lock import EMBEDDED, Holder, hold_host, host_name, lock_folder
from tipbench.errors import BadInput, EngineUnreachable
from tipbench.settings import Settings
from tipbench.workflows.hosts import busy, installed_models, lock_name

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("fresh_home")


def test_an_ollama_host_tells_what_it_has_and_why_some_are_refused() -> None:
    """Smallest first; too large and of unknown size come with the reason that a collection would give."""
    models = [
        FakeModel("big:9b", parameters=9_000_000_000),
        FakeModel("four:4b", parameters=4_020_000_000),
        FakeModel("odd", parameters=None),
        FakeModel("small:1b", size=77),
    ]
    with running(StandIn(models, resident=["small:1b"])) as host:
        found = installed_models(Settings.of({"ollama_url": host.url}))
    by_name = {model.name: model for model in found}
    assert list(by_name) == ["odd", "small:1b", "four:4b", "big:9b"]
    assert (by_name["small:1b"].resident, by_name["small:1b"].size_bytes) == (True, 77)
    assert by_name["small:1b"].too_large is by_name["four:4b"].too_large is None
    assert not by_name["four:4b"].resident
    assert "big:9b (9.0B): above --max-model-b 4" in (by_name["big:9b"].too_large or "")
    assert "does not give its size" in (by_name["odd"].too_large or "")


def test_the_embedded_engine_is_not_started_to_be_asked(tmp_path: Path) -> None:
    """Its models are read from their files, by the same rule; a file that is no model is named."""
    tiny = write_tiny_gguf(tmp_path / "tiny.gguf")
    settings = {"engine": "embedded", "gguf": f"mine={tiny}"}
    (mine,) = [one for one in installed_models(Settings.of(settings)) if one.name == "mine"]
    assert mine.size_bytes == tiny.stat().st_size
    assert (mine.resident, mine.too_large) == (False, None)
    assert mine.parameters
    (large,) = [
        one for one in installed_models(Settings.of(settings | {"max_model_b": 0.001})) if one.name == "mine"
    ]
    assert (large.too_large is None) == (round(mine.parameters / 1e9, 1) <= 0.001)
    with pytest.raises(BadInput, match=r"none\.gguf"):
        installed_models(Settings.of({"engine": "embedded", "gguf": f"x={tmp_path / 'none.gguf'}"}))


def test_without_ollama_auto_is_the_embedded_engine() -> None:
    """Where nothing answers, `auto` shows what is embedded; `ollama` says that nothing answers."""
    with running(StandIn([])) as host:
        gone = host.url
        assert lock_name(Settings.of({"ollama_url": gone})) == host_name(gone)
    assert lock_name(Settings.of({"ollama_url": gone})) == EMBEDDED
    assert all(not model.resident for model in installed_models(Settings.of({"ollama_url": gone})))
    with pytest.raises(EngineUnreachable, match=r"ollama serve|install Ollama"):
        installed_models(Settings.of({"ollama_url": gone, "engine": "ollama"}))


def test_busy_names_the_holder_and_keeps_nothing() -> None:
    """Who looks does not take the lock, nor change what it says; a host that nobody has is free."""
    settings = Settings.of({"engine": "embedded"})
    assert busy(settings) is None
    path = lock_folder() / f"{EMBEDDED}.lock"
    with hold_host(EMBEDDED, folder=lock_folder(), experiment="mine", wait=False, waiting=print) as lock:
        lock.note(model="a", digest="d")
        before = path.read_bytes()
        assert "collecting 'mine' on embedded" in (busy(settings) or "")
        assert busy(Settings.of({"engine": "ollama"})) is None
        assert path.read_bytes() == before
    assert busy(settings) is None
    assert path.read_bytes() == before
    with hold_host(EMBEDDED, folder=lock_folder(), experiment="next", wait=False, waiting=print) as lock:
        assert isinstance(lock.leftover, Holder)
        assert lock.leftover.model == "a"
