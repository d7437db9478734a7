"""The judge commands as people run them: what they print, what they leave, and how they end."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from mcp import Client, StdioServerParameters

from command import TIPBENCH, here, start, tipbench
from judged_world import World, fill, plant, plant_home
from ledger_servers import free_port
from suite_files import write_suite
from tipbench.judge.attempts import hidden_texts
from tipbench.suite import load_suite
from tipbench.workflows.applying import apply_file, rebuild
from tipbench.workflows.exporting import Order, export
from tipbench.workflows.judged import judged_experiment

if TYPE_CHECKING:
    from pathlib import Path
    from subprocess import Popen

    from command import Ran

GOOD, POOR = "qwen2.5:0.5b", "llama3.2:1b"


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory, made_home: Path) -> tuple[Path, World]:
    folder = tmp_path_factory.mktemp("planted")
    quality = {(GOOD, "v1"): 4.6, (POOR, "v1"): 1.6}
    return folder, plant_home(folder, made_home, "bench", quality=quality, n_scenarios=5)


@pytest.fixture
def world(planted: tuple[Path, World], fresh_home: Path) -> World:
    shutil.copytree(planted[0], fresh_home)
    return planted[1]


@pytest.fixture
def file(world: World, tmp_path: Path) -> Path:
    """Everything in one batch, filled in by ann."""
    path = tmp_path / "batch.json"
    export(world.settings, Order(judge="ann"), out=str(path))
    fill(path, world)
    return path


def judge(*arguments: str) -> Ran:
    """The command in this process, which is quicker than in one of its own."""
    return here("judge", *arguments)


def told(ran: Ran, code: int) -> str:
    """The one sentence on standard error of a command that ended so."""
    assert ran.code == code, ran
    assert "Traceback" not in ran.err
    assert ran.err.startswith("tipbench: ")
    return ran.err


def test_no_command_after_collect_needs_the_suite(fresh_home: Path, tmp_path: Path, made_home: Path) -> None:
    """Export, apply, auto, status, anchors, compare and ship work though the suite's folder is gone."""
    suite = write_suite(tmp_path / "suite")
    world = plant_home(fresh_home, made_home, "mine", quality={(GOOD, "v1"): 2.0}, suite=str(suite))
    shutil.rmtree(suite)
    out, named = str(tmp_path / "b.json"), ("--experiment", "mine")
    assert judge("export", *named, "--out", out, "--judge", "ann").code == 0
    fill(tmp_path / "b.json", world)
    for arguments in [
        ("judge", "apply", out),
        ("judge", "auto", *named, "--judge", "proxy"),
        ("judge", "status", *named),
        ("judge", "anchors", "list", *named),
        ("compare", *named),
        ("ship", *named, "--cell", f"{GOOD}/v1"),
    ]:
        ran = here(*arguments)
        assert ran.code == 0, (arguments, ran)
        assert str(suite) not in ran.out + ran.err
    refused = told(judge("export", *named, "--out", f"{out}.other", "--suite", "tip"), 2)
    assert "collected with the suite 'small', and --suite is 'tip'" in refused


def test_from_export_to_the_answer(world: World, tmp_path: Path) -> None:
    """Export, status, apply and compare, each saying what to type next."""
    out = tmp_path / "batch.json"
    exported = tipbench("judge", "export", "--experiment", "bench", "--out", str(out), "--judge", "ann")
    assert exported.code == 0, exported
    assert "30 items" in exported.out
    assert f"judge apply {out}" in exported.out
    before = judge("status", "--experiment", "bench", "--json").json
    assert (before["judged"], before["pending"], len(before["open_batches"])) == (0, 20, 1)
    fill(out, world)
    applied = tipbench("judge", "apply", str(out))
    assert applied.code == 0, applied
    assert "judged by ann: 30 new" in applied.out
    assert "The scores agree with the reference scores" in applied.out
    assert "compare --experiment bench" in applied.out
    status = judge("status", "--experiment", "bench")
    assert "20 of 20 candidates judged under tip-v1, 0 pending in 0 cells" in status.out
    assert "simulated judgements of the rest keep it first" in status.out
    assert "ann\thuman\t20\t1" in status.out
    assert here("compare", "--experiment", "bench", "--format", "json").json["winner"]["model"] == GOOD


def test_a_folder_of_batches(world: World, tmp_path: Path) -> None:
    """All that is left as files in a folder; applied together, the rejected one is named and counted."""
    folder = tmp_path / "batches"
    options = ("--experiment", "bench", "--all", "--size", "14", "--json", "--out", str(folder))
    written = judge("export", *options).json
    files = sorted(folder.iterdir())
    assert [one["path"] for one in written] == list(map(str, files))
    assert len(files) == 2
    fill(files[0], world, judge="ann", kind="human")
    fill(files[1], world, judge="ann", kind="human", foils_relevant=True)
    ran = judge("apply", *map(str, files))
    assert "1 of 2 files rejected" in ran.err
    assert f"{files[1]}: batch" in ran.err
    assert ran.code == 4
    assert len(judged_experiment(world.settings).verdicts) == 10


SMALL = ("--size", "14")


def test_everything_in_one_file(world: World, tmp_path: Path) -> None:
    """Export all, fill it in, apply it: one line for the file, and what to type next."""
    out = tmp_path / "all.json"
    exported = judge("export", "bench", "--all", "--judge", "ann", *SMALL, "--out", str(out))
    assert exported.code == 0, exported
    assert f"{out}: 2 batches, 28 items" in exported.out
    assert f"judge apply {out}" in exported.out
    fill(out, world)
    applied = judge("apply", "--experiment", "bench", str(out))
    assert applied.code == 0, applied
    assert "2 batches of bench, judged by ann: 28 new" in applied.out
    assert judge("status", "bench", "--json").json["pending"] == 0
    assert judge("apply", str(out), "--json").json[0]["unchanged"] == 28


def test_one_rejected_batch_of_a_file_exits_4(world: World, tmp_path: Path) -> None:
    """The sentence names the batch, and the results of the others are printed."""
    out = tmp_path / "all.json"
    judge("export", "bench", "--all", "--judge", "ann", *SMALL, "--out", str(out))
    fill(out, world)
    document = json.loads(out.read_text())
    good, bad = document["batches"]
    out.write_text(json.dumps(document))
    fill(out, world, only=lambda item: item["batch"] == bad, foils_relevant=True)
    ran = judge("apply", str(out))
    assert f"batch {bad} is rejected" in told(ran, 4)
    assert f"batch {good} of bench, judged by ann: 14 new" in ran.out
    assert "the other 1 of 2 batches" in ran.err
    assert judge("apply", str(out), "--json").json[0]["batches"] == [good]


def test_without_all_it_says_how_many_are_left(world: World, tmp_path: Path) -> None:
    """With the command for the rest, which can be typed as it is printed."""
    ran = judge("export", "bench", *SMALL, "--judge", "ann", "--out", str(tmp_path / "a.json"))
    (line,) = [line for line in ran.out.splitlines() if "left" in line]
    sentence, _, command = line.partition(": ")
    assert sentence == "10 candidates are left"
    rest = shlex.split(command)
    rest = rest[rest.index("judge") + 1 :]
    rest[rest.index("rest.json")] = str(tmp_path / "rest.json")
    assert "1 batch" not in judge(*rest).out
    assert len(json.loads((tmp_path / "rest.json").read_text())["items"]) == 14
    nothing = judge("export", "bench", "--judge", "ann", "--out", str(tmp_path / "c.json"))
    assert "20 candidates are in open batches" in told(nothing, 2)
    assert "left" not in judge("export", "bench", "--reopen", "--all", "--judge", "ann", "--out",
                               str(tmp_path / "d.json")).out  # fmt: skip


def test_the_first_spelling(world: World, tmp_path: Path) -> None:
    """`judge --experiment X --export FILE` writes everything to that very file; `--apply FILE` applies it."""
    out = tmp_path / "to-judge"
    exported = judge("--experiment", "bench", "--export", str(out))
    assert exported.code == 0, exported
    assert out.is_file()
    fill(out, world, judge="ann", kind="human")
    assert "there is no experiment 'other'" in told(judge("--experiment", "other", "--export", "x"), 2)
    other = judge("--experiment", "other", "--apply", str(out))
    assert "was exported from experiment 'bench', and --experiment is 'other'" in told(other, 2)
    assert judged_experiment(world.settings).verdicts == ()
    applied = judge("--experiment", "bench", "--apply", str(out))
    assert applied.code == 0, applied
    assert "judged by ann: 30 new" in applied.out
    assert judge("--apply", str(out)).code == 0
    helped = judge("--help").out
    assert "--export" in helped
    assert "--apply" in helped


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--export", "a.json", "--apply", "b.json"), "--export and --apply exclude each other"),
        (("--export", "a.json", "status"), "--export cannot be combined with the subcommand 'status'"),
        (("--experiment", "bench", "--apply", "a.json", "export"), "--apply cannot be combined with the"),
        (("--experiment", "bench", "status"), "put --experiment behind 'status'"),
        (("--experiment", "bench"), "judge needs a command: export, apply, release, status"),
        (("export", "bench", "--experiment", "other"), "two experiments are given, 'bench' and --experiment"),
        (("--export", ""), "is a folder; give the name of a file"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(world: World, arguments: tuple[str, ...], words: str) -> None:
    """Exit 2, and no batch is made."""
    said = told(judge(*arguments), 2)
    assert words in said
    assert said.count("\n") == 0
    assert judged_experiment(world.settings).batches == ()


def test_a_file_of_another_experiment_stops_all_files(world: World, file: Path, tmp_path: Path) -> None:
    """Nothing of any file is recorded, also of those before it; the same name twice is fine."""
    plant("other", quality={(GOOD, "v1"): 3.0}, n_scenarios=1)
    strange = tmp_path / "strange.json"
    assert judge("export", "other", "--experiment", "other", "--out", str(strange)).code == 0
    said = told(judge("apply", "--experiment", "bench", str(file), str(strange)), 2)
    assert f"{strange} was exported from experiment 'other', and --experiment is 'bench'" in said
    assert judged_experiment(world.settings).verdicts == ()
    anchors = tmp_path / "anchors.json"
    judge("anchors", "export", "--out", str(anchors))
    assert "belong to no experiment" in told(judge("apply", "--experiment", "bench", str(anchors)), 2)


def test_a_rejected_batch_exits_4_in_words(world: World, file: Path) -> None:
    """Nothing is recorded, and only `judge status` has the numbers; with --accept-drift it is recorded."""
    fill(file, world, shift=-1)
    said = told(tipbench("judge", "apply", str(file)), 4)
    assert "is rejected and nothing of it is recorded." in said
    assert not re.search(r"\d", said.replace(judged_experiment(world.settings).batches[0].batch_id, ""))
    shown = judge("status", "--experiment", "bench").out
    assert "points lower than their references (z -" in shown
    assert judged_experiment(world.settings).verdicts == ()
    accepted = judge("apply", str(file), "--accept-drift", "--json")
    assert accepted.json[0]["drift"]["accepted"]
    assert accepted.json[0]["new"] == 30


def test_a_batch_rejected_three_times_is_replaced_or_released(
    world: World, file: Path, tmp_path: Path
) -> None:
    """The next export hides other texts, `judge status` shows both, and a release opens a closed batch."""
    (old,) = judged_experiment(world.settings).batches
    for shift in (-1, -2, -3):
        fill(file, world, shift=shift)
        said = told(judge("apply", str(file), "--json"), 4)
    assert "It is closed now, because its scores were rejected three times." in said
    fill(file, world)
    assert "is closed" in told(judge("apply", str(file), "--accept-drift"), 4)
    assert "is closed" in told(judge("export", "--batch", old.batch_id, "--out", str(tmp_path / "x.json")), 4)
    shown = judge("status", "--experiment", "bench")
    assert f"{old.batch_id} for ann: closed; the judge's next batch replaces it" in shown.out
    assert shown.out.count("points") >= 3
    assert judge("release", old.batch_id).out == f"batch {old.batch_id} of bench can be submitted again\n"
    assert "is not closed" in told(judge("release", old.batch_id), 2)
    for shift in (1, 2, 3):
        fill(file, world, shift=shift)
        assert judge("apply", str(file)).code == 4
    fresh = tmp_path / "fresh.json"
    assert judge("export", "--experiment", "bench", "--judge", "ann", "--out", str(fresh)).code == 0
    new = judged_experiment(world.settings).batches[-1]
    assert new.replaces == old.batch_id
    assert not hidden_texts([old]) & hidden_texts([new])
    rejected = judge("status", "--experiment", "bench", "--json").json["rejected_batches"]
    assert [(one["replaced_by"], one["released"], len(one["rejections"])) for one in rejected] == [
        (new.batch_id, 1, 6)
    ]
    assert "is replaced by" in told(judge("release", old.batch_id), 2)
    fill(fresh, world)
    assert judge("apply", str(fresh)).code == 0


def test_a_conflict_exits_2_until_rejudged(world: World, file: Path) -> None:
    """The sentence has the file and the line."""
    apply_file(world.settings, str(file))
    document = json.loads(file.read_text())
    item = next(
        one for one in document["items"] if one["tip"].casefold() in {text for _, text in world.worth}
    )
    item["judge"]["tone"] = 3 if item["judge"]["tone"] != 3 else 4
    file.write_text(json.dumps(document, indent=1))
    assert f"{file}:" in told(judge("apply", str(file)), 2)
    assert "1 changed, 29 unchanged" in judge("apply", str(file), "--rejudge").out


def test_odd_files_get_a_sentence(world: World, file: Path, tmp_path: Path) -> None:
    """A folder, nothing, no text, far too much, small mistakes: exit 2, and the line where there is one."""
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "list").write_text("[]")
    with (tmp_path / "huge").open("wb") as huge:
        huge.truncate(200_000_000)
    text = file.read_text()
    first = text.index('"judge"')
    (tmp_path / "comma").write_text(re.sub(r"\}\s*\]\s*\}\s*$", "},]}", text))
    (tmp_path / "comment").write_text(f"{text[:first]}// good one\n{text[first:]}")
    (tmp_path / "quoted").write_text(
        text[:first] + text[first:].replace('"relevance": ', '"relevance": "', 1)
    )
    for name in (".", "binary", "empty", "list", "huge", "comma", "comment", "quoted", "not-there"):
        said = told(judge("apply", str(tmp_path / name)), 2)
        assert str(tmp_path / name) in said
        assert name in {".", "not-there"} or f"{tmp_path / name}:" in said
    assert judged_experiment(world.settings).verdicts == ()


def test_a_ledger_that_is_away_exits_3(world: World, file: Path, tmp_path: Path) -> None:
    """For every command that needs it; the file stays as it was."""
    away = ("--mlflow-url", f"http://127.0.0.1:{free_port()}")
    before = file.read_bytes()
    told(tipbench("judge", "apply", str(file), *away), 3)
    told(judge("export", "--experiment", "bench", "--out", str(tmp_path / "x.json"), *away), 3)
    told(judge("status", "--experiment", "bench", *away), 3)
    assert file.read_bytes() == before
    assert not (tmp_path / "x.json").exists()


def test_a_file_for_another_ledger_is_not_found(world: World, file: Path, tmp_path: Path) -> None:
    """The sentence says to name the ledger that it was exported from."""
    other = f"sqlite:///{tmp_path}/other.db"
    assert "name the ledger that it was exported from" in told(
        judge("apply", str(file), "--mlflow-url", other), 2
    )


def test_rebuild_counts_what_it_mended(world: World, file: Path) -> None:
    """Nothing after an application."""
    apply_file(world.settings, str(file))
    ran = judge("rebuild", "--experiment", "bench")
    assert (ran.code, ran.out) == (0, "bench: 0 cells brought up to date\n")


def test_auto_with_the_proxy(world: World) -> None:
    """It says how many and what to look at next; its ranking is refused unless one insists."""
    ran = judge("auto", "--experiment", "bench", "--judge", "proxy")
    assert "bench: 20 candidates judged by proxy" in ran.out
    assert "judge status --experiment bench" in ran.out
    assert "proxy: not compared with people yet" in judge("status", "--experiment", "bench").out
    told(here("compare", "--experiment", "bench"), 4)
    told(judge("auto", "--experiment", "bench", "--judge", "proxy"), 2)


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.15])
def test_apply_survives_being_killed(world: World, file: Path, fresh_home: Path, after_s: float) -> None:
    """Killed anywhere, the same command then succeeds: every verdict once, and the cells' numbers right."""
    process = start("judge", "apply", str(file))
    wait_for_writing(fresh_home / "mlflow.db", process)
    time.sleep(after_s)
    process.kill()
    process.communicate()
    assert len(judged_experiment(world.settings).verdicts) in {0, 20}, "all or nothing"
    assert tipbench("judge", "apply", str(file)).code == 0
    verdicts = judged_experiment(world.settings).verdicts
    assert len(verdicts) == len({one.candidate for one in verdicts}) == 20
    for run in world.runs:
        truth = [sum(world.true_scores(run.scenario_id, one.text).values()) + 2 for one in run.candidates]
        assert run.metrics["composite"] == sum(truth) / 2
        assert (run.metrics["n_judged"], run.judge_pending) == (2, False)
    assert rebuild(world.settings) == 0


def wait_for_writing(database: Path, process: Popen[str]) -> None:
    """Until something is written to the store, or the command has ended."""
    files = [database, database.with_name(f"{database.name}-wal")]
    before = written(files)
    while written(files) == before and process.poll() is None:
        time.sleep(0.002)


def written(files: list[Path]) -> list[tuple[int, int]]:
    found = [path.stat() for path in files if path.exists()]
    return [(one.st_mtime_ns, one.st_size) for one in found]


def server(pid_file: Path, *options: str) -> StdioServerParameters:
    """`judge mcp` as an agent starts it, in a process whose number is known."""
    command = shlex.join([*TIPBENCH, "judge", "mcp", "--experiment", "bench", *options])
    script = f"echo $$ > {shlex.quote(str(pid_file))}; exec {command}"
    kept = {name: os.environ[name] for name in ("TIPBENCH_HOME", "TMPDIR", "PATH")}
    return StdioServerParameters(command="/bin/sh", args=["-c", script], env=kept)


async def call(client: Client, tool: str, **arguments: object) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return dict(result.structured_content)


def scores(world: World, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"id": item["id"]}
        | {name: round(value) for name, value in world.true_scores(item["scenario"], item["tip"]).items()}
        for item in items
    ]


async def test_an_agent_judges_over_mcp(world: World, tmp_path: Path) -> None:
    """Killed half way and started again, it goes on with what was handed in; the last score records all."""
    options = ("--judge", "bot", "--model", "some-model", "--size", "14")
    async with Client(server(tmp_path / "pid", *options)) as client:
        assert "relevance" in (await call(client, "read_rubric"))["rubric"]
        first = await call(client, "next_items", count=5)
        kept = await call(client, "submit_scores", scores=scores(world, first["items"]))
        assert (kept["kept"], kept["applied"]) == (5, False)
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert judged_experiment(world.settings).verdicts == ()
    async with Client(server(tmp_path / "pid", *options)) as client:
        rest = await call(client, "next_items", count=20)
        assert rest["left_in_batch"] == first["left_in_batch"] - 5
        assert not {item["id"] for item in rest["items"]} & {item["id"] for item in first["items"]}
        assert (await call(client, "status"))["batch"] == {"judged": 5, "left": rest["left_in_batch"]}
        done = await call(client, "submit_scores", scores=scores(world, rest["items"]))
        assert done["applied"]
        status = await call(client, "status")
        assert (status["experiment_judged"], status["experiment_pending"]) == (10, 10)
        assert (await call(client, "next_items"))["items"] != []
    verdicts = judged_experiment(world.settings).verdicts
    assert len(verdicts) == 10
    assert {(one.judge.id, one.judge.kind, one.judge.model) for one in verdicts} == {
        ("bot", "agent", "some-model")
    }


@pytest.mark.usefixtures("fresh_home")
def test_the_first_spelling_needs_no_suite_either(tmp_path: Path) -> None:
    """An experiment remembers a suite of one's own for `judge --export` too."""
    folder = tmp_path / "mine"
    shutil.copytree(load_suite("tip").path, folder)
    main = folder / "suite.yaml"
    main.write_text(main.read_text().replace("id: tip", "id: mine"))
    plant("own", quality={("a:1b", "v1"): 3.0}, n_scenarios=2, suite=str(folder))
    ran = here("judge", "--experiment", "own", "--export", str(tmp_path / "all"))
    assert ran.code == 0, ran.err
    assert (tmp_path / "all").is_file()
