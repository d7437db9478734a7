"""An experiment remembers its suite: commands after `collect` need no `--suite` and no folder."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from judged_world import World, fill, judge_next, plant, plant_home
from suite_files import PROMPT, RUBRIC, SCENARIOS, SUITE, write_suite
from tipbench.errors import BadInput, PinConflict
from tipbench.ledger import open_ledger
from tipbench.settings import Settings, home
from tipbench.suite import load_suite
from tipbench.workflows.anchoring import apply_anchors, export_anchors, list_anchors
from tipbench.workflows.applying import apply_file, read_judge_file
from tipbench.workflows.auto_judging import judge_automatically
from tipbench.workflows.collect import make_grid, pin_of
from tipbench.workflows.comparing import compare
from tipbench.workflows.exporting import Order, export
from tipbench.workflows.judge_status import judge_status
from tipbench.workflows.shipped_file import read_filed
from tipbench.workflows.shipping import refreshed, ship

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tipbench.records import Pin

QUALITY = {("qwen2.5:0.5b", "v1"): 2.4, ("llama3.2:1b", "v1"): 1.6}
TITLED = SCENARIOS.replace("- id: one\n", "- id: one\n    title: Ann cooks\n")
OTHER_RUBRIC = RUBRIC.replace("so so", "neither")


def unnamed(experiment: str = "bench") -> Settings:
    """The settings of a command without `--suite`."""
    return replace(Settings.of({"experiment": experiment}), suite="")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_suite(tmp_path / "a secret place" / "suite", scenarios=TITLED)


@pytest.fixture
def world(fresh_home: Path, made_home: Path, folder: Path) -> World:
    return plant_home(fresh_home, made_home, "bench", quality=QUALITY, n_scenarios=2, suite=str(folder))


def contexts(path: Path) -> dict[str, str]:
    items = json.loads(path.read_text())["items"]
    return {item["scenario"]: "\n".join(item["context"]) for item in items}


def rubric_of(path: Path) -> str:
    return "\n".join(json.loads(path.read_text())["rubric"]).strip()


def gone(folder: Path) -> None:
    shutil.rmtree(folder)


def not_a_suite_any_more(folder: Path) -> None:
    (folder / "suite.yaml").write_text("id: [\n")


def another_scenario(folder: Path) -> None:
    write_suite(folder, scenarios=TITLED.replace("cook, read", "rest"))


def another_rubric(folder: Path) -> None:
    write_suite(folder, scenarios=TITLED, rubric=OTHER_RUBRIC)


def another_prompt(folder: Path) -> None:
    write_suite(folder, scenarios=TITLED, v1=PROMPT.replace("You help.", "You rule."))


def another_suite(folder: Path) -> None:
    write_suite(folder, suite=SUITE.replace("small", "other"))


CHANGES = [gone, not_a_suite_any_more, another_scenario, another_rubric, another_prompt, another_suite]


@pytest.mark.parametrize("change", CHANGES)
def test_the_stored_texts_serve_when_the_folder_does_not(
    world: World, folder: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """Judging, comparing and shipping use the texts as they were, and no judge's file holds the path."""
    suite = load_suite(folder)
    change(folder)
    out = tmp_path / "b.json"
    export(unnamed(), Order(judge="ann"), out=str(out))
    assert contexts(out) == {one: suite.scenario(one).described for one in ("one", "two")}
    assert rubric_of(out) == RUBRIC.strip()
    assert "secret" not in out.read_text()
    fill(out, world)
    assert apply_file(unnamed(), str(out)).pending == 0
    assert judge_automatically(unnamed(), "proxy", emit=lambda _: None).judged == 8
    assert judge_status(unnamed()).judged == 8
    report = compare(unnamed())
    assert (report.ground, report.titles) == ("human", {"one": "Ann cooks", "two": "two"})
    shipped = ship(unnamed(), experiment="bench", cell="qwen2.5:0.5b/v1")
    assert (shipped.suite_id, shipped.suite_hash) == ("small", suite.hash)
    filed = read_filed(home())
    assert filed is not None
    assert [kind.id for kind in filed.kinds if kind.tips] == ["one", "two"]
    assert refreshed(unnamed()) == filed, "a service that starts keeps it as it is"


@pytest.mark.parametrize(
    ("change", "fresh"),
    [(gone, False), (another_prompt, False), (another_scenario, False), (another_rubric, True)],
)
def test_what_is_shipped_names_the_folder_only_while_it_can_generate_it(
    world: World, folder: Path, tmp_path: Path, change: Callable[[Path], None], *, fresh: bool
) -> None:
    """Without the prompt and the scenarios as they were, judged tips alone are served, and ship says so."""
    judge_next(world, tmp_path / "b.json")
    change(folder)
    shipped = ship(unnamed(), experiment="bench", cell="qwen2.5:0.5b/v1")
    filed = read_filed(home())
    assert filed is not None
    assert filed.suite == (str(folder) if fresh else "")
    assert any("no fresh ones" in line for line in shipped.cautions) != fresh


def test_an_unchanged_folder_is_used(world: World, folder: Path, tmp_path: Path) -> None:
    """What the hashes do not cover, such as a better title, comes from the folder."""
    write_suite(folder, scenarios=TITLED.replace("Ann cooks", "Ann at home"))
    export(unnamed(), Order(), out=str(tmp_path / "b.json"))
    assert contexts(tmp_path / "b.json")["one"].startswith("Ann at home\n")
    assert load_suite(folder).hash == world.suite.hash


def test_a_named_suite_is_still_checked(world: World, folder: Path, tmp_path: Path) -> None:
    """`--suite` goes before what is remembered: another suite or other texts are refused as before."""
    out = str(tmp_path / "b.json")
    with pytest.raises(BadInput, match="collected with the suite 'small', and --suite is 'tip'"):
        export(Settings.of({"experiment": "bench", "suite": "tip"}), Order(), out=out)
    another_scenario(folder)
    with pytest.raises(PinConflict, match=r"the scenario 'one' .* leave out --suite"):
        export(world.settings, Order(), out=out)
    another_rubric(folder)
    with pytest.raises(PinConflict, match="--new-rubric"):
        export(world.settings, Order(), out=out)
    copy = write_suite(tmp_path / "copy", scenarios=TITLED)
    export(Settings.of({"experiment": "bench", "suite": str(copy)}), Order(), out=out)


def test_a_new_rubric_comes_from_the_remembered_folder(world: World, folder: Path, tmp_path: Path) -> None:
    """`--new-rubric` reads the folder; without the folder one sentence says how to pass it."""
    out, order = tmp_path / "b.json", Order(judge="ann", new_rubric=True)
    another_scenario(folder)
    with pytest.raises(PinConflict, match="the scenario 'one' of its suite has changed"):
        export(unnamed(), order, out=str(out))
    gone(folder)
    with pytest.raises(
        BadInput, match=r"--new-rubric takes the rubric from the folder .* with --suite"
    ) as no:
        export(unnamed(), order, out=str(out))
    assert "secret" not in str(no.value)
    another_rubric(folder)
    export(unnamed(), order, out=str(out))
    assert rubric_of(out) == OTHER_RUBRIC.strip()
    assert world.ledger.pinned("bench") is not None
    gone(folder)
    fill(out, world)
    apply_file(unnamed(), str(out))
    assert compare(unnamed()).titles["one"] == "Ann cooks", "the scenarios are stored, whatever the rubric"


def test_a_second_place_serves_when_the_first_is_gone(world: World, folder: Path, tmp_path: Path) -> None:
    """Collections from two folders of one suite are remembered both, and the one that is there is used."""
    second = write_suite(tmp_path / "second", scenarios=TITLED.replace("Ann cooks", "Ann, second"))
    pin = world.ledger.pin("bench", pin_of(make_grid(Settings.of({"suite": str(second), "prompts": "v1"}))))
    assert [one.place for one in pin.places] == [str(second), str(folder)]
    gone(folder)
    export(unnamed(), Order(), out=str(tmp_path / "b.json"))
    assert contexts(tmp_path / "b.json")["one"].startswith("Ann, second\n")
    gone(second)
    export(unnamed(), Order(reopen=True), out=str(tmp_path / "c.json"))
    assert contexts(tmp_path / "c.json")["one"].startswith("Ann, second\n"), "the text that was stored last"


def test_texts_of_several_collections_are_put_together(world: World, folder: Path, tmp_path: Path) -> None:
    """A prompt and a scenario that were taken out of the folder later are found in the earlier text."""
    less = SCENARIOS.replace("  - id: two\n    who: Bob   # a friend\n    tasks:\n      - swim\n", "")
    write_suite(folder, scenarios=less, v1=None, v2=PROMPT)
    (folder / "prompts" / "v1.md").unlink()
    world.ledger.pin("bench", pin_of(make_grid(Settings.of({"suite": str(folder), "prompts": "v2"}))))
    export(unnamed(), Order(judge="ann"), out=str(tmp_path / "b.json"))
    assert set(contexts(tmp_path / "b.json")) == {"one", "two"}
    fill(tmp_path / "b.json", world)
    apply_file(unnamed(), str(tmp_path / "b.json"))
    assert ship(unnamed(), experiment="bench", cell="qwen2.5:0.5b/v1").prompt_id == "v1"


def old(pin: Pin) -> Pin:
    """A pin as the versions before this one made it."""
    return replace(pin, places=(), suites={})


def test_an_experiment_that_does_not_remember(
    fresh_home: Path, made_home: Path, folder: Path, tmp_path: Path
) -> None:
    """Of an earlier version's experiment a built-in suite is found; a folder must be given, which it says."""
    plant_home(fresh_home, made_home, "other", quality=QUALITY, n_scenarios=2)
    ledger = open_ledger("", home=home())
    for name, suite in (("bench", str(folder)), ("built-in", "tip")):
        ledger.pin(name, old(pin_of(make_grid(Settings.of({"suite": suite, "prompts": "v1"})))))
    with pytest.raises(
        BadInput, match=r"suite 'small' and does not remember its folder; .* with --suite"
    ) as no:
        export(unnamed(), Order(), out=str(tmp_path / "b.json"))
    assert "secret" not in str(no.value)
    with pytest.raises(BadInput, match="no cells to judge yet"):
        export(unnamed("built-in"), Order(), out=str(tmp_path / "b.json"))
    with pytest.raises(BadInput, match="no cells to judge yet"):
        export(replace(unnamed(), suite=str(folder)), Order(), out=str(tmp_path / "b.json"))
    ledger.pin("bench", pin_of(make_grid(Settings.of({"suite": str(folder), "prompts": "v1"}))))
    with pytest.raises(BadInput, match="no cells to judge yet"):
        export(unnamed(), Order(), out=str(tmp_path / "b.json"))


def test_texts_that_do_not_suffice(world: World, folder: Path, tmp_path: Path) -> None:
    """Where somebody deleted the stored texts and the folder is gone, one sentence says what to give."""
    from mlflow import MlflowClient

    gone(folder)
    client = MlflowClient(tracking_uri=f"sqlite:///{home() / 'mlflow.db'}")
    found = client.get_experiment_by_name("bench")
    assert found is not None
    (run,) = client.search_runs([found.experiment_id], "tags.`tipbench.kind` = 'suite'")
    client.delete_run(run.info.run_id)
    with pytest.raises(BadInput, match=r"stores too little of its suite 'small'.* with --suite") as no:
        export(unnamed(), Order(), out=str(tmp_path / "b.json"))
    assert "secret" not in str(no.value)
    compare(unnamed())
    assert world.runs


def test_a_relative_folder_is_remembered_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder is kept as an absolute path, a built-in suite by its name, a copy of it by its folder."""
    write_suite(tmp_path / "mine")
    shutil.copytree(load_suite("tip").path, tmp_path / "tip")
    monkeypatch.chdir(tmp_path)
    found = [pin_of(make_grid(Settings.of({"suite": one}))).places for one in ("mine", "tip", "./tip")]
    assert [one.place for (one,) in found] == [str(tmp_path / "mine"), "tip", str(tmp_path / "tip")]
    assert found[0][0].hash == load_suite("mine").hash


def test_anchors_are_stored_too(fresh_home: Path, made_home: Path, tmp_path: Path) -> None:
    """The hidden items of a batch, and a person's recalibration of them, need no folder."""
    copy = tmp_path / "copy"
    shutil.copytree(load_suite("tip").path, copy)
    main = copy / "suite.yaml"
    main.write_text(main.read_text().replace("id: tip\n", "id: mine\n"))
    world = plant_home(fresh_home, made_home, "bench", quality={("a", "v1"): 3.0}, suite=str(copy))
    gone(copy)
    export(unnamed(), Order(), out=str(tmp_path / "b.json"))
    (batch,) = world.ledger.batches("bench")
    assert sum(item.role == "anchor" for item in batch.items) > 3
    assert list_anchors(unnamed(), experiment="bench").suite_id == "mine"
    out = tmp_path / "anchors.json"
    export_anchors(unnamed(), judge="ann", out=str(out), experiment="bench")
    fill(out, world, kind="human")
    assert apply_anchors(unnamed(), read_judge_file(str(out))).added == len(world.suite.anchors)
    assert list_anchors(unnamed(), experiment="bench").by_people == len(world.suite.anchors)


def test_a_repeated_collection_writes_the_suite_once(world: World, folder: Path) -> None:
    """Pinning the same suite again adds neither a place nor a text, and leaves the revision as it was."""
    before = world.ledger.revision("bench")
    pin = pin_of(make_grid(Settings.of({"suite": str(folder), "prompts": "v1"})))
    open_ledger("", home=home()).pin("bench", pin)
    grown = world.ledger.pinned("bench")
    assert grown is not None
    assert len(grown.places) == len(world.ledger.suite_texts("bench")) == 1
    plant("bench", quality=QUALITY, n_scenarios=2, suite=str(folder))
    assert len(world.ledger.suite_texts("bench")) == 1
    assert before != ""
