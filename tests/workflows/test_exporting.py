"""Exporting batches: what is in them, in which order, for whom, and what the file does not tell."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from judged_world import World, fill, judge_next, plant_home
from tipbench.errors import BadInput, NotFound
from tipbench.judge.candidates import candidate_key
from tipbench.settings import Settings
from tipbench.workflows.applying import apply_file
from tipbench.workflows.auto_judging import judge_automatically
from tipbench.workflows.browse import runs_in
from tipbench.workflows.exporting import Order, export, export_again

if TYPE_CHECKING:
    from pathlib import Path

    from tipbench.records import Batch

MODELS = {"qwen2.5:0.5b": 4.0, "llama3.2:1b": 3.8, "smollm2:360m": 1.4}
EXPERIMENT = "secret-experiment"


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory, made_home: Path) -> tuple[Path, World]:
    folder = tmp_path_factory.mktemp("planted")
    quality = {(model, "v2-mentor"): level for model, level in MODELS.items()}
    return folder, plant_home(folder, made_home, EXPERIMENT, quality=quality, n_scenarios=5)


@pytest.fixture
def world(planted: tuple[Path, World], fresh_home: Path) -> World:
    shutil.copytree(planted[0], fresh_home)
    return planted[1]


def batches(world: World) -> list[Batch]:
    return world.ledger.batches(world.experiment)


def real(batch: Batch) -> set[str]:
    return {item.candidate for item in batch.items if item.role == "real"}


def places(world: World) -> dict[str, tuple[int, str, str]]:
    """By candidate, its slot, scenario and model."""
    return {
        candidate_key(run.scenario_id, one.text): (slot, run.scenario_id, run.model)
        for run in world.runs
        for slot, one in enumerate(run.candidates)
    }


def test_slot_one_of_all_scenarios_goes_before_slot_two(world: World, tmp_path: Path) -> None:
    """Batches are whole blocks, one slot of one scenario from every cell, and read in the order of their
    names they stay balanced wherever one stops.
    """
    written = export(world.settings, Order(every=True, size=12), out=str(tmp_path / "all"))
    files = sorted((tmp_path / "all").iterdir())
    assert [str(path) for path in files] == [one.path for one in written]
    where, kept = places(world), {batch.batch_id: batch for batch in batches(world)}
    blocks = [
        block
        for path in files
        for block in sorted({where[key][:2] for key in real(kept[json.loads(path.read_text())["batch"]])})
    ]
    assert [slot for slot, _ in blocks] == [0] * 5 + [1] * 5
    assert len(set(blocks)) == 10
    for batch in kept.values():
        of_block = Counter(where[key][:2] for key in real(batch))
        assert set(of_block.values()) == {3}, "one of each of the three cells"
        assert len(batch.items) <= 12
    assert sum(len(real(batch)) for batch in kept.values()) == 30


def test_next_batches_go_on_in_the_same_order(world: World, tmp_path: Path) -> None:
    """One export after the other, each applied, runs through slot one before slot two."""
    order = Order(judge="ann", size=20)
    for number in range(2):
        judge_next(world, tmp_path / f"{number}.json", order=order)
    assert [{places(world)[key][0] for key in real(batch)} for batch in batches(world)] == [{0}, {1}]
    with pytest.raises(NotFound, match="nothing left to judge"):
        export(world.settings, order, out=str(tmp_path / "more.json"))


def test_a_full_batch_has_checks_and_no_more_than_its_size(world: World, tmp_path: Path) -> None:
    """30 candidates with 8 anchors and 2 foils, all from the batch's own scenarios."""
    with pytest.raises(BadInput, match="no room for its checks"):
        export(world.settings, Order(size=2), out=str(tmp_path / "c.json"))
    export(world.settings, Order(), out=str(tmp_path / "b.json"))
    (batch,) = batches(world)
    assert Counter(item.role for item in batch.items) == {"real": 30, "anchor": 8, "foil": 2}
    assert (
        {item.scenario_id for item in batch.items}
        == set(batch.contexts)
        == {run.scenario_id for run in world.runs}
    )


def test_a_batch_is_a_run_of_its_own_kind(world: World, tmp_path: Path, fresh_home: Path) -> None:
    """In MLflow it is a run with the tag tipbench.kind=batch, and no cell."""
    export(world.settings, Order(), out=str(tmp_path / "b.json"))
    database = find_database(fresh_home)
    with sqlite3.connect(database) as connection:
        kinds = Counter(
            value for (value,) in connection.execute("select value from tags where key = 'tipbench.kind'")
        )
    assert kinds == {"cell": 15, "batch": 1, "suite": 1}
    assert len(world.runs) == 15


def find_database(home: Path) -> Path:
    for path in home.rglob("*"):
        if path.is_file() and path.read_bytes()[:15] == b"SQLite format 3":
            with sqlite3.connect(path) as connection:
                if connection.execute("select 1 from sqlite_master where name = 'tags'").fetchone():
                    return path
    raise AssertionError("no store found")


def test_the_file_does_not_tell_where_a_text_came_from(world: World, tmp_path: Path) -> None:
    """No model, prompt, experiment, role, anchor or run is named; all items have the same fields."""
    export(world.settings, Order(judge="ann"), out=str(tmp_path / "b.json"))
    text = (tmp_path / "b.json").read_text()
    (batch,) = batches(world)
    runs = world.runs
    secrets = {
        EXPERIMENT,
        "v2-mentor",
        *MODELS,
        *(run.run_id for run in runs),
        *(run.key for run in runs),
        *(run.digest for run in runs),
        *(item.anchor_id for item in batch.items if item.anchor_id),
        *(item.candidate for item in batch.items if item.candidate),
        *(run.prompt_hash for run in runs),
    }
    assert [secret for secret in secrets if secret in text] == []
    document = json.loads(text)
    document["rubric"] = document["instructions"] = []
    keys = set(document) | {key for item in document["items"] for key in (*item, *item["judge"])}
    assert not keys & {"anchor", "foil", "real", "reference", "hidden", "role", "kind", "model", "prompt"}
    shapes = {
        (*item, *item["judge"], len(item["id"]), *(type(value).__name__ for value in item.values()))
        for item in document["items"]
    }
    assert len(shapes) == 1
    assert [item["number"] for item in document["items"]] == list(range(1, 41))
    assert all(value is None for item in document["items"] for value in item["judge"].values())


def test_ids_and_order_differ_from_export_to_export(world: World, tmp_path: Path) -> None:
    """The same candidates in a new batch have other ids and another order: nothing can be matched."""
    export(world.settings, Order(), out=str(tmp_path / "b.json"))
    export(world.settings, Order(even_if_open=True), out=str(tmp_path / "c.json"))
    first, second = batches(world)
    assert real(first) == real(second)
    assert not {item.id for item in first.items} & {item.id for item in second.items}
    assert [item.text for item in first.items] != [item.text for item in second.items]


def test_a_file_that_is_there_is_not_written_over(world: World, tmp_path: Path) -> None:
    """Somebody's work stays, and no batch is made; --force replaces it."""
    path = tmp_path / "b.json"
    path.write_text("mine")
    with pytest.raises(BadInput, match="exists and may hold somebody's work"):
        export(world.settings, Order(), out=str(path))
    assert path.read_text() == "mine"
    assert batches(world) == []
    export(world.settings, Order(), out=str(path), force=True)
    assert json.loads(path.read_text())["batch"] == batches(world)[0].batch_id


@pytest.mark.parametrize(
    ("out", "every"),
    [(out, every) for out in ("a-file/b.json", "n" * 300, "a-file") for every in (False, True)]
    + [("a-folder", False)],
)
def test_where_nothing_can_be_written_nothing_is_made(
    world: World, tmp_path: Path, out: str, *, every: bool
) -> None:
    """A file in the way, a folder instead of a file, a name that is too long: one sentence, no batch."""
    (tmp_path / "a-file").write_text("")
    (tmp_path / "a-folder").mkdir()
    with pytest.raises(BadInput) as refusal:
        export(world.settings, Order(every=every), out=str(tmp_path / out))
    assert "\n" not in str(refusal.value)
    assert batches(world) == []


def test_a_file_that_cannot_be_written_leaves_its_batch(world: World, tmp_path: Path) -> None:
    """Where the disk fails after the batch was kept, the sentence says how to get its file."""
    almost_too_long = tmp_path / ("n" * 250)
    with pytest.raises(BadInput, match=r"the batch is kept: tipbench judge export --batch b[0-9a-f]+ --out"):
        export(world.settings, Order(), out=str(almost_too_long))
    assert len(batches(world)) == 1


def test_a_lost_file_can_be_written_again(world: World, tmp_path: Path) -> None:
    """The same items in the same order, whichever experiment the settings name."""
    (one,) = export(world.settings, Order(judge="ann"), out=str(tmp_path / "b.json"))
    before = (tmp_path / "b.json").read_text()
    again = export_again(Settings.of({"experiment": "other"}), one.batch_id, out=str(tmp_path / "c.json"))
    assert (tmp_path / "c.json").read_text() == before
    assert again.items == one.items
    with pytest.raises(BadInput, match="exists"):
        export_again(world.settings, one.batch_id, out=str(tmp_path / "b.json"))
    with pytest.raises(NotFound, match="there is no batch 'b0'"):
        export_again(world.settings, "b0", out=str(tmp_path / "d.json"))


def test_what_one_judge_took_is_left_to_them(world: World, tmp_path: Path) -> None:
    """Two judges get different candidates; ann gets hers again if she asks for it, and a third gets none."""
    export(world.settings, Order(judge="ann", size=20), out=str(tmp_path / "ann.json"))
    export(world.settings, Order(judge="bob"), out=str(tmp_path / "bob.json"))
    ann, bob = sorted(batches(world), key=lambda batch: batch.judge)
    assert not real(ann) & real(bob)
    assert len(real(ann) | real(bob)) == 30
    with pytest.raises(NotFound, match=r"15 candidates are in open batches .* with --reopen"):
        export(world.settings, Order(judge="ann"), out=str(tmp_path / "again.json"))
    (again,) = export(world.settings, Order(judge="ann", reopen=True), out=str(tmp_path / "again.json"))
    assert (again.batch_id, again.left) == (ann.batch_id, 0)
    with pytest.raises(NotFound, match="what other judges were given"):
        export(world.settings, Order(judge="cleo"), out=str(tmp_path / "cleo.json"))


def test_a_second_judge_gets_what_others_have_judged(world: World, tmp_path: Path) -> None:
    """All of it and nothing else, once; without a name there is nobody to be the second."""
    with pytest.raises(BadInput, match="say who, with --judge NAME"):
        export(world.settings, Order(second=True), out=str(tmp_path / "x.json"))
    second = Order(judge="bob", second=True)
    with pytest.raises(NotFound, match="nothing that others have judged and 'bob' has not"):
        export(world.settings, second, out=str(tmp_path / "x.json"))
    judge_next(world, tmp_path / "ann.json", order=Order(judge="ann", size=14))
    judge_next(world, tmp_path / "bob.json", order=second)
    first, other = batches(world)
    assert (real(first), other.purpose) == (real(other), "second")
    with pytest.raises(NotFound):
        export(world.settings, second, out=str(tmp_path / "x.json"))
    with pytest.raises(BadInput, match="choose one"):
        export(world.settings, Order(judge="b", second=True, adjudicate=True), out=str(tmp_path / "x.json"))


def test_only_what_judges_are_apart_on_is_adjudicated(world: World, tmp_path: Path) -> None:
    """One candidate with a gap of two points is in the batch; settled, there is nothing more."""
    settle = Order(judge="cleo", adjudicate=True)
    judge_next(world, tmp_path / "ann.json", order=Order(judge="ann", size=14))
    export(world.settings, Order(judge="bob", second=True), out=str(tmp_path / "bob.json"))
    fill(tmp_path / "bob.json", world)
    document = json.loads((tmp_path / "bob.json").read_text())
    known = [one for one in document["items"] if (one["scenario"], one["tip"].casefold()) in world.worth]
    disputed = known[0]
    disputed["judge"]["tone"] += 2 if disputed["judge"]["tone"] < 4 else -2
    (tmp_path / "bob.json").write_text(json.dumps(document))
    with pytest.raises(NotFound, match="nothing to adjudicate"):
        export(world.settings, settle, out=str(tmp_path / "cleo.json"))
    apply_file(world.settings, str(tmp_path / "bob.json"))
    judge_next(world, tmp_path / "cleo.json", order=settle)
    batch = next(one for one in batches(world) if one.purpose == "adjudicate")
    assert [item.text for item in batch.items if item.role == "real"] == [disputed["tip"]]
    assert all(verdict.adjudicated for verdict in batch.verdicts)
    with pytest.raises(NotFound, match="nothing to adjudicate"):
        export(world.settings, settle, out=str(tmp_path / "more.json"))


def test_a_race_leaves_out_who_can_no_longer_win(world: World, tmp_path: Path) -> None:
    """After one slot of five scenarios the worst is out: it is neither exported nor pending any more."""
    race = Order(judge="ann", race=True, size=20)
    judge_next(world, tmp_path / "a.json", order=race)
    assert len(batches(world)[0].verdicts) == 15
    export(world.settings, race, out=str(tmp_path / "b.json"))
    models = {places(world)[key][2] for key in real(batches(world)[1])}
    assert models == {"qwen2.5:0.5b", "llama3.2:1b"}
    fill(tmp_path / "b.json", world)
    apply_file(world.settings, str(tmp_path / "b.json"))
    assert not any(run.judge_pending for run in world.runs if run.model == "smollm2:360m")
    unraced = Order(judge="ann")
    export(world.settings, unraced, out=str(tmp_path / "c.json"))
    assert {places(world)[key][2] for key in real(batches(world)[-1])} >= {"smollm2:360m"}


def test_few_tips_per_cell(world: World, tmp_path: Path) -> None:
    """Only the first slot is exported, and then nothing is left."""
    order = Order(judge="ann", tips_per_cell=1)
    judge_next(world, tmp_path / "a.json", order=order)
    assert {places(world)[key][0] for key in real(batches(world)[0])} == {0}
    with pytest.raises(NotFound, match="among the first 1 of each cell"):
        export(world.settings, order, out=str(tmp_path / "b.json"))


def test_what_the_proxy_judged_is_still_for_people(world: World, tmp_path: Path) -> None:
    """Verdicts of rules or models spare people nothing."""
    judge_automatically(world.settings, "proxy", emit=lambda _: None)
    export(world.settings, Order(), out=str(tmp_path / "b.json"))
    assert len(real(batches(world)[-1])) == 30


def test_experiments_without_anything_to_judge(world: World, tmp_path: Path) -> None:
    """An unknown name lists those there are, or says which one is near; to judge as well as to read."""
    with pytest.raises(NotFound, match=f"there is no experiment 'x' at .*; there are: {EXPERIMENT}"):
        export(Settings.of({"experiment": "x"}), Order(), out=str(tmp_path / "b.json"))
    near = Settings.of({"experiment": f"{EXPERIMENT}s"})
    with pytest.raises(NotFound, match=rf"; did you mean '{EXPERIMENT}'\?$"):
        export(near, Order(), out=str(tmp_path / "b.json"))
    with pytest.raises(NotFound, match=rf"; did you mean '{EXPERIMENT}'\?$"):
        runs_in(near)
