"""`judge export --all --out FILE.json`: all batches in one file, and what `judge apply` does with it."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from judged_world import SCALES, World, fill, plant, plant_home
from tipbench.errors import BadInput, CheckFailed, JudgeFileError, NotFound
from tipbench.judge.answers import Answer
from tipbench.judge.candidates import candidate_key
from tipbench.judge.filled_file import LARGEST_BYTES
from tipbench.ledger import MemoryLedger
from tipbench.records import Item, Judge
from tipbench.workflows.applying import BatchesRejected, apply_answers, apply_file, rebuild
from tipbench.workflows.exporting import Order, blank_batch, export
from tipbench.workflows.judged import read_judged

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tipbench.records import Batch
    from tipbench.workflows.applying import Applied

    Document = dict[str, Any]

ALL = Order(judge="ann", every=True, size=12)
MODELS = {"qwen2.5:0.5b": 4.0, "llama3.2:1b": 3.4, "smollm2:360m": 1.6}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory, made_home: Path) -> tuple[Path, World]:
    folder = tmp_path_factory.mktemp("planted")
    quality = {(model, "v2-mentor"): level for model, level in MODELS.items()}
    return folder, plant_home(folder, made_home, "bench", quality=quality, n_scenarios=5)


@pytest.fixture
def world(planted: tuple[Path, World], fresh_home: Path) -> World:
    shutil.copytree(planted[0], fresh_home)
    return planted[1]


@pytest.fixture
def file(world: World, tmp_path: Path) -> Path:
    """All candidates in one file of four batches for ann, filled in."""
    path = tmp_path / "all.json"
    export(world.settings, ALL, out=str(path))
    fill(path, world)
    return path


def batches(world: World) -> list[Batch]:
    return world.ledger.batches("bench")


def candidates(world: World) -> set[str]:
    return {candidate_key(run.scenario_id, one.text) for run in world.runs for one in run.candidates}


def edit(path: Path, change: Callable[[Document], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document, indent=1))


def spoil(world: World, path: Path, batch_id: str) -> None:
    """Give all items of one batch the same scores, far away from its anchors."""
    anchors = [item.reference for item in world.ledger.batch(batch_id).items if item.role == "anchor"]
    score = 1 if sum(sum(one.values()) for one in anchors) > 9 * len(anchors) else 5

    def change(document: Document) -> None:
        for item in document["items"]:
            if item["batch"] == batch_id:
                item["judge"] |= dict.fromkeys(SCALES, score)

    edit(path, change)


def test_all_candidates_are_in_one_file(world: World, tmp_path: Path) -> None:
    """Every pending candidate once; every batch has its own hidden items, and its items stand together."""
    path = tmp_path / "all.json"
    written = export(world.settings, ALL, out=str(path))
    document = json.loads(path.read_text())
    assert {one.path for one in written} == {str(path)}
    assert document["batches"] == [one.batch_id for one in written]
    assert len(written) >= 4
    kept = {batch.batch_id: batch for batch in batches(world)}
    assert [item["id"] for item in document["items"]] == [
        item.id for batch_id in document["batches"] for item in kept[batch_id].items
    ]
    assert [item["batch"] for item in document["items"]] == [
        batch_id for batch_id in document["batches"] for _ in kept[batch_id].items
    ]
    assert [item["number"] for item in document["items"]] == list(range(1, len(document["items"]) + 1))
    real = Counter(item.candidate for batch in kept.values() for item in batch.items if item.candidate)
    assert real == dict.fromkeys(candidates(world), 1)
    assert all(item["judge"]["relevance"] is None for item in document["items"])
    for batch in kept.values():
        assert {"anchor", "real"} <= {item.role for item in batch.items}


def test_the_file_tells_nothing_of_models_and_roles(world: World, tmp_path: Path) -> None:
    """No model, prompt, experiment, role or anchor is named, and all items have the same keys."""
    export(world.settings, ALL, out=str(tmp_path / "all.json"))
    text = (tmp_path / "all.json").read_text()
    anchors = {item.anchor_id for batch in batches(world) for item in batch.items if item.anchor_id}
    secrets = {*MODELS, "v2-mentor", *anchors, *candidates(world), *(run.run_id for run in world.runs)}
    assert not [secret for secret in secrets if secret in text]
    items = json.loads(text)["items"]
    assert {(*item, *item["judge"]) for item in items} == {(*items[0], *items[0]["judge"])}
    assert "role" not in items[0]


@pytest.mark.parametrize(("name", "one_file"), [("all.json", False), ("all.JSON", False), ("all", True)])
def test_the_name_decides_between_file_and_folder(
    world: World, tmp_path: Path, name: str, *, one_file: bool
) -> None:
    """A name with .json is one file; another name only on request."""
    export(world.settings, ALL, out=str(tmp_path / name), one_file=one_file)
    assert (tmp_path / name).is_file()
    assert json.loads((tmp_path / name).read_text())["items"]


def test_a_filled_file_is_applied_once(world: World, file: Path) -> None:
    """All verdicts and the numbers of the runs; the same file again changes nothing."""
    applied = apply_file(world.settings, str(file))
    n_items = len(json.loads(file.read_text())["items"])
    assert (applied.new, applied.skipped, applied.pending) == (n_items, 0, 0)
    assert applied.batch_ids == json.loads(file.read_text())["batches"]
    assert applied.sentence == f"{len(applied.parts)} batches of bench, judged by ann: {n_items} new"
    assert {verdict.candidate for batch in batches(world) for verdict in batch.verdicts} == candidates(world)
    assert not any(run.judge_pending for run in world.runs)
    assert rebuild(world.settings) == 0
    again = apply_file(world.settings, str(file))
    assert (again.new, again.unchanged) == (0, n_items)
    assert [len(batch.applications) for batch in batches(world)] == [1] * len(applied.parts)


def test_a_half_filled_file_is_applied_and_then_the_rest(world: World, file: Path) -> None:
    """Items without scores are skipped, also whole batches; a second time only they are new."""
    whole = file.read_text()
    edit(file, lambda document: [item.update(judge=None) for item in document["items"][15:]])
    half = apply_file(world.settings, str(file))
    assert (half.new, half.skipped) == (15, len(json.loads(whole)["items"]) - 15)
    assert half.pending > 0
    file.write_text(whole)
    rest = apply_file(world.settings, str(file))
    assert (rest.new, rest.unchanged, rest.pending) == (half.skipped, 15, 0)


def test_a_mistake_refuses_the_whole_file(world: World, file: Path) -> None:
    """A wrong score, an unknown id and a changed text are all named, by line, and nothing is recorded."""
    items = json.loads(file.read_text())["items"]

    def change(document: Document) -> None:
        document["items"][1]["judge"]["tone"] = 9
        document["items"][20]["id"] = "0" * 12
        document["items"][-1]["tip"] += " Really."

    edit(file, change)
    with pytest.raises(JudgeFileError) as refusal:
        apply_file(world.settings, str(file))
    lines = str(refusal.value).split("\n")
    assert len(lines) == 3
    assert "item 2: tone is 9" in lines[0]
    assert "item 21: there is no such id" in lines[1]
    assert f"item {len(items)}: 'tip' was changed" in lines[2]
    assert all(line.startswith(f"{file}:") for line in lines)
    assert not any(batch.applications for batch in batches(world))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda file: file["batches"].pop(), "was changed|no such id"),
        (lambda file: file["batches"].append("b0"), "there is no batch 'b0'"),
        (lambda file: file["batches"].reverse(), "'batch' was changed|stands before|was changed"),
        (lambda file: file.update(batches=[]), "'batches' must be a list of different texts"),
        (lambda file: file["items"][0].update(batch=file["batches"][1]), "item 1: 'batch' was changed"),
        (lambda file: file["items"][0].pop("batch"), "item 1 has no 'batch' any more"),
        (lambda file: file.update(batch=file.pop("batches")[0]), "the file has no 'batches' any more"),
        (lambda file: file["judged_by"].update(id="bob"), "for 'ann', and 'judged_by' says 'bob'"),
    ],
)  # fmt: skip
def test_a_changed_frame_refuses_the_whole_file(
    world: World, file: Path, change: Callable[[Document], object], words: str
) -> None:
    """The list of batches and the items' batches are frozen, and the file is for one judge."""
    edit(file, change)
    with pytest.raises(BadInput, match=words):
        apply_file(world.settings, str(file))
    assert not any(batch.applications for batch in batches(world))


def test_drift_refuses_only_its_batch(world: World, file: Path) -> None:
    """The reply names the rejected batch; the others are recorded. The corrected file adds the rest."""
    right = file.read_text()
    names = json.loads(right)["batches"]
    spoil(world, file, names[1])
    for _ in range(2):
        with pytest.raises(BatchesRejected) as refusal:
            apply_file(world.settings, str(file))
        assert f"batch {names[1]} is rejected" in str(refusal.value)
        assert not [name for name in (*names[:1], *names[2:]) if name in str(refusal.value)]
        assert f"the other {len(names) - 1} of {len(names)} batches of {file} are recorded" in str(
            refusal.value
        )
        recorded = {batch.batch_id for batch in batches(world) if batch.applications}
        assert recorded == {*names} - {names[1]}
        assert all(len(batch.applications) < 2 for batch in batches(world))
    assert rebuild(world.settings) == 0
    file.write_text(right)
    assert apply_file(world.settings, str(file)).pending == 0


def test_where_every_batch_drifts_nothing_is_recorded(world: World, file: Path) -> None:
    """Each batch has its reason."""
    names = json.loads(file.read_text())["batches"]
    for name in names:
        spoil(world, file, name)
    with pytest.raises(CheckFailed, match=r"no batch of .* is recorded") as refusal:
        apply_file(world.settings, str(file))
    assert [name for name in names if f"batch {name} is rejected" in str(refusal.value)] == names
    assert not any(batch.applications for batch in batches(world))


def test_a_conflict_refuses_the_whole_file(world: World, file: Path) -> None:
    """Other scores than before in the last batch: no batch of the file is recorded without --rejudge."""
    whole = json.loads(file.read_text())
    real = {item.id for batch in batches(world) for item in batch.items if item.role == "real"}
    place = max(n for n, item in enumerate(whole["items"]) if item["id"] in real)
    first = json.loads(json.dumps(whole))
    for n, item in enumerate(first["items"]):
        item["judge"] = item["judge"] if n == place else None
    file.write_text(json.dumps(first))
    apply_file(world.settings, str(file))
    tone = whole["items"][place]["judge"]["tone"]
    whole["items"][place]["judge"]["tone"] = tone - 1 if tone > 1 else tone + 1
    file.write_text(json.dumps(whole))
    with pytest.raises(BadInput, match=f"item {place + 1}: 'ann' has scored this before, otherwise"):
        apply_file(world.settings, str(file))
    assert sum(len(batch.applications) for batch in batches(world)) == 1
    assert apply_file(world.settings, str(file), rejudge=True).changed == 1


def test_an_accepted_batch_stays_accepted() -> None:
    """Later batches move a judge's average, and an earlier batch applied again is not measured by it."""
    ledger, ann = MemoryLedger(), Judge(id="ann", kind="human")
    plant("bench", quality={("qwen2.5:0.5b", "v1"): 4.0}, n_scenarios=1, ledger=ledger)

    def apply(batch: Batch, leaning: int) -> Applied:
        """Score as many anchors one point too high."""
        tones = [4 if n < leaning else 3 for n in range(len(batch.items))]
        answers = {
            item.id: Answer(scores={"relevance": 3, "actionability": 3, "tone": tone})
            for item, tone in zip(batch.items, tones, strict=True)
        }
        return apply_answers(
            read_judged(ledger, "bench"), ledger.batch(batch.batch_id), ann, answers, lines={}
        )

    first, second = anchors_alone(ledger), anchors_alone(ledger)
    states = [apply(first, 7).drift.state, apply(second, 4).drift.state]
    again = apply(first, 7)
    assert (states, again.drift.state, again.new) == (["warn", "ok"], "warn", 0)


def anchors_alone(ledger: MemoryLedger) -> Batch:
    """A batch of eight anchors that are worth three points on every scale."""
    items = [
        Item(
            id=f"i{n}",
            role="anchor",
            scenario_id="s",
            text="t",
            anchor_id=f"a{n}",
            reference=dict.fromkeys(("relevance", "actionability", "tone"), 3.0),
            n_references=4,
        )
        for n in range(8)
    ]
    batch = replace(
        blank_batch(read_judged(ledger, "bench"), purpose="judge", judge="ann"),
        items=tuple(items),
        contexts={"s": "c"},
    )
    ledger.add_batch(batch)
    return batch


def test_open_batches_are_not_handed_out_twice(world: World, file: Path, tmp_path: Path) -> None:
    """A second export of everything finds nothing and makes no batch; --reopen writes the same batches."""
    before = batches(world)
    with pytest.raises(
        NotFound, match=r"30 candidates are in open batches .* hand them out again with --reopen"
    ):
        export(world.settings, ALL, out=str(tmp_path / "more.json"))
    assert not (tmp_path / "more.json").exists()
    again = export(world.settings, replace(ALL, reopen=True), out=str(tmp_path / "again.json"))
    assert {one.batch_id for one in again} == {batch.batch_id for batch in before}
    assert batches(world) == before
    frozen = [json.loads(path.read_text())["frozen"] for path in (file, tmp_path / "again.json")]
    assert frozen[0] == frozen[1]


def test_one_batch_says_what_is_left(world: World, tmp_path: Path) -> None:
    """Without --all one batch is written, and the next export goes on with the others."""
    one = replace(ALL, every=False)
    (first,) = export(world.settings, one, out=str(tmp_path / "a.json"))
    (second,) = export(world.settings, one, out=str(tmp_path / "b.json"))
    (made, following) = batches(world)
    real = [{item.candidate for item in batch.items if item.candidate} for batch in (made, following)]
    assert not real[0] & real[1]
    assert (first.left, second.left) == (30 - len(real[0]), 30 - len(real[0]) - len(real[1]))


def test_the_same_file_is_found_again(world: World, file: Path) -> None:
    """A repeated order with --reopen leaves the file with its answers; without it the file is refused."""
    filled = file.read_text()
    again = export(world.settings, replace(ALL, reopen=True), out=str(file))
    assert {one.batch_id for one in again} == {*json.loads(filled)["batches"]}
    assert file.read_text() == filled
    with pytest.raises(BadInput, match="may hold somebody's work"):
        export(world.settings, ALL, out=str(file))
    assert file.read_text() == filled


def test_a_file_without_the_new_candidates_is_refused(world: World, file: Path, tmp_path: Path) -> None:
    """A half-judged file is not overwritten, and no batch is made. A file of another name has everything."""
    plant("bench", quality={("gemma3:1b", "v2-mentor"): 3.0}, n_scenarios=5, seed=1)
    filled, before = file.read_text(), batches(world)
    order = replace(ALL, reopen=True)
    with pytest.raises(BadInput, match="may hold somebody's work"):
        export(world.settings, order, out=str(file))
    assert (file.read_text(), batches(world)) == (filled, before)
    written = export(world.settings, order, out=str(tmp_path / "more.json"))
    assert len(written) > len(before)
    assert {batch.batch_id for batch in before} < {one.batch_id for one in written}


def test_nothing_pending_is_no_error_for_a_reopening(world: World, file: Path, tmp_path: Path) -> None:
    """Judged to the end, an export says so; with --reopen it writes nothing."""
    apply_file(world.settings, str(file))
    with pytest.raises(NotFound, match="nothing left to judge"):
        export(world.settings, ALL, out=str(tmp_path / "more.json"))
    assert export(world.settings, replace(ALL, reopen=True), out=str(tmp_path / "more.json")) == []
    assert not (tmp_path / "more.json").exists()


def test_a_file_that_could_not_be_applied_is_not_written(world: World, tmp_path: Path) -> None:
    """A file near the size that `judge apply` reads is refused before any batch is made."""
    long = " ".join(f"word{n}" for n in range(LARGEST_BYTES // 100))
    plant(
        "long",
        quality={(f"m{n}:1b", "v1"): 3.0 for n in range(4)},
        n_scenarios=4,
        changed=lambda result: replace(
            result,
            candidates=tuple(replace(one, text=f"{one.text} {long}") for one in result.candidates),
        ),
    )
    settings = replace(world.settings, experiment="long")
    with pytest.raises(BadInput, match=r"would have \d+ MB, and `judge apply` reads at most 20 MB"):
        export(settings, ALL, out=str(tmp_path / "long.json"))
    assert world.ledger.batches("long") == []
    assert export(settings, ALL, out=str(tmp_path / "folder"))


def test_three_rejections_of_one_batch_of_a_file_close_it(world: World, file: Path) -> None:
    """The message has no numbers of the checks; the third closes the batch, and the others stay recorded."""
    bad = batches(world)[0].batch_id
    spoil(world, file, bad)
    items = [item["id"] for item in json.loads(file.read_text())["items"] if item["batch"] == bad]
    for n in range(4):

        def note(document: Document, chosen: str = items[n]) -> None:
            for item in document["items"]:
                if item["id"] == chosen:
                    item["judge"]["tone"] = 3

        edit(file, note)
        with pytest.raises(BatchesRejected) as caught:
            apply_file(world.settings, str(file))
        assert not {"z", "shift", "drift"} & set(str(caught.value).split())
        assert ("is closed" in str(caught.value)) == (n >= 2)
        assert [one.is_closed for one in batches(world)] == [n >= 2, *([False] * (len(batches(world)) - 1))]
    assert caught.value.applied is not None
    assert caught.value.applied.whole
    assert len(world.ledger.batch(bad).rejections) == 3
