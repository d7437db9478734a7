"""`collect` on a real Ollama: order, memory, truncation, schemas, seeds, and what survives a `kill -9`."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import httpx
import pytest

from command import here, start, tipbench
from suite_files import write_suite
from tipbench import runs
from tipbench.settings import Settings
from tipbench.workflows.browse import one_run

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from real_ollama import RealOllama
    from tipbench.records import Run

pytestmark = [pytest.mark.ollama, pytest.mark.usefixtures("home")]

SUITE = "id: small\nreply:\n  kind: list\n  noun: tip\n  max_chars: 24\n"
SCHEMA_PROMPT = "---\noutput: schema\n---\n# User\nOne short tip for {{ who }}.\n"
FREE_PROMPT = "---\noutput: json\n---\n# User\nWrite {{ n_tips }} tips for {{ who }} as a JSON list.\n"
LONG_PROMPT = f"---\noutput: json\n---\n# User\n{'word ' * 300}\nOne tip for {{{{ who }}}}.\n"


class Collection:
    """The command line of a collection, and the events that it writes."""

    def __init__(self, server: RealOllama, folder: Path) -> None:
        self.server = server
        self.events_file = folder / "events.jsonl"
        prompts = {"v1": SCHEMA_PROMPT, "free": FREE_PROMPT, "long": LONG_PROMPT}
        self._suite = write_suite(folder / "small", suite=SUITE, **prompts)

    def arguments(self, *more: str, models: tuple[str, ...] = ()) -> list[str]:
        names = ",".join(models or self.server.models)
        return [
            *("collect", "--suite", str(self._suite), "--models", names, "--ollama-url", self.server.url),
            *("--engine", "ollama", "--experiment", "bench", "--n-tips", "1", "--num-predict", "24"),
            *("--max-model-b", "1000", "--events", str(self.events_file), "--json", *more),
        ]

    @property
    def events(self) -> list[dict[str, Any]]:
        if not self.events_file.exists():
            return []
        whole = self.events_file.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] in kinds]

    @contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A collection that has finished two cells and has more to do."""
        child = start(*arguments)
        try:
            while len(self.of("cell")) < 2:
                assert child.poll() is None, child.communicate()
            yield child
        finally:
            child.kill()
            child.communicate()


@pytest.fixture
def collection(real_ollama: RealOllama, tmp_path: Path) -> Iterator[Collection]:
    real_ollama.unload_all()
    yield Collection(real_ollama, tmp_path)
    real_ollama.unload_all()


@contextmanager
def memory_watched(server: RealOllama) -> Iterator[list[list[str]]]:
    """The lists of loaded models that `/api/ps` returns, again and again, until the block ends."""
    seen: list[list[str]] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            with suppress(httpx.HTTPError):
                seen.append(server.loaded())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def texts(experiment: str) -> dict[tuple[str, str, str], str]:
    """The replies of an experiment, as the models wrote them."""
    settings = Settings.of({"experiment": experiment})

    def raw(run: Run) -> str:
        return one_run(settings, run.run_id)[1].raw

    return {(run.model, run.prompt_id, run.scenario_id): raw(run) for run in runs(experiment)}


def test_one_model_is_in_memory_at_any_time(collection: Collection) -> None:
    """Each model is loaded once, generates its cells and is unloaded before the next one is loaded."""
    server = collection.server
    with memory_watched(server) as seen:
        ran = here(*collection.arguments("--prompts", "v1,free", "--n-scenarios", "2"))
    assert ran.code == 0, ran.err
    first, second = server.models
    steps = [(event["event"], event["model"]) for event in collection.of("model_loaded", "model_unloaded")]
    assert steps == [(kind, name) for name in (first, second) for kind in ("model_loaded", "model_unloaded")]
    cells = [event["model"] for event in collection.of("cell")]
    assert cells == [first] * 4 + [second] * 4
    assert {tuple(names) for names in seen} == {(), (first,), (second,)}
    assert (ran.json["model_loads"], ran.json["max_resident"]) == (2, 1)
    assert server.loaded() == []


def test_keep_alive_0_unloads_after_each_reply(collection: Collection) -> None:
    """Each cell loads its model, and the host never has two in memory."""
    with memory_watched(collection.server) as seen:
        ran = here(*collection.arguments("--prompts", "v1", "--n-scenarios", "2", "--keep-alive", "0"))
    assert ran.code == 0, ran.err
    assert len(collection.of("model_loaded")) == ran.json["cells"]["done"] == 4
    assert max(map(len, seen)) == 1
    assert collection.server.loaded() == []


def test_a_prompt_that_is_too_long_makes_no_good_cell(collection: Collection) -> None:
    """Every cell of the long prompt fails or is marked as cut; the cells of the short prompt are whole."""
    small = collection.server.models[:1]
    here(*collection.arguments("--prompts", "v1,long", "--num-ctx", "256", models=small))
    found = runs("bench")
    assert len(found) == 8
    for run in found:
        is_cut = run.status == "failed" or run.cut == "prompt"
        assert is_cut == (run.prompt_id == "long")


def test_schemas_are_obeyed_and_the_same_seed_gives_the_same_text(collection: Collection) -> None:
    """Two experiments with one seed have the same replies; with another seed they differ."""
    more = ("--prompts", "v1,free", "--n-scenarios", "2", "--num-predict", "40")
    for experiment, seed in (("first", "1"), ("again", "1"), ("other", "2")):
        ran = here(*collection.arguments(*more, "--experiment", experiment, "--seed", seed))
        assert ran.code == 0, ran.err
    first = texts("first")
    assert first == texts("again") != texts("other")
    assert len(first) == 8
    for run in runs("first"):
        if run.prompt_id == "v1":
            (tip,) = json.loads(first[run.model, "v1", run.scenario_id])
            assert 1 <= len(tip) <= 24
            assert run.metrics["format_ok"] == 1


def test_a_killed_collection_is_resumed(collection: Collection) -> None:
    """After `kill -9` of tipbench the same command unloads the model that it left, and finishes the grid."""
    server = collection.server
    arguments = collection.arguments("--prompts", "v1,free", "--repeats", "2", models=server.models[1:])
    with collection.started(*arguments) as child:
        child.kill()
        child.wait()
    ran = here(*arguments, "--wait")
    assert ran.code == 0, ran.err
    cells = ran.json["cells"]
    assert cells["planned"] == cells["done"] + cells["skipped"] == 16
    assert cells["skipped"] >= 2
    assert len({run.key for run in runs("bench")}) == len(runs("bench")) == 16
    assert server.loaded() == []


def test_a_killed_ollama_costs_no_cell(collection: Collection) -> None:
    """After `kill -9` of Ollama the command ends with code 3; after a restart it finishes the grid."""
    server = collection.server
    if server.process is None:
        pytest.skip("OLLAMA_HOST names a server that is not ours, so it is not killed")
    arguments = collection.arguments("--prompts", "v1,free", "--repeats", "2", models=server.models[1:])
    with collection.started(*arguments) as child:
        server.process.kill()
        _, err = child.communicate(timeout=200)
        assert child.returncode == 3
        assert "run the same command" in err
    server.process.start()
    ran = here(*arguments)
    assert ran.code == 0, ran.err
    assert ran.json["cells"]["planned"] == 16
    assert [run.status for run in runs("bench")] == ["done"] * 16


def test_a_second_collection_on_the_host_waits_or_is_refused(collection: Collection) -> None:
    """Without `--wait` it ends with code 3 and names the first one; with `--wait` it runs afterwards."""
    models = collection.server.models[1:]
    arguments = collection.arguments("--prompts", "v1,free", "--repeats", "2", models=models)
    with collection.started(*arguments) as first, memory_watched(collection.server) as seen:
        refused = tipbench(*arguments)
        assert refused.code == 3
        assert f"pid {first.pid} " in refused.err
        waited = tipbench(*arguments, "--wait")
        assert first.wait() == 0
    assert waited.code == 0, waited.err
    assert waited.json["cells"]["skipped"] == 16
    assert max(map(len, seen)) == 1
