"""Finding a suite and reading all of it; what is wrong is gathered, so that one look shows everything."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tipbench.errors import BadInput, NotFound, SuiteError
from tipbench.records import content_hash
from tipbench.suite.anchor_file import BANK, BankFile, read_bank
from tipbench.suite.anchors import Anchor, BankInTheMaking
from tipbench.suite.files import LARGE, read_text
from tipbench.suite.form import Form
from tipbench.suite.judge_prompt import BUILT_IN, JUDGE_FILE, JudgePrompt, read_judge_prompt
from tipbench.suite.problems import Problems, did_you_mean, listed
from tipbench.suite.prompt import Prompt, read_prompt
from tipbench.suite.reply import Reply, read_reply
from tipbench.suite.rubric_file import read_rubric
from tipbench.suite.scenario import Scenario, ScenarioFile, read_scenarios
from tipbench.suite.suite import DEFAULT_CLUSTER, Suite
from tipbench.suite.validate import check_renders
from tipbench.suite.yamldoc import parse_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tipbench.suite.rubric import Rubric

SHIPPED = ("tip", "tip-wide", "support-summary")
MAIN = "suite.yaml"
DEFAULT_CTX, DEFAULT_PREDICT = 2048, 400

_PACKAGE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Folder:
    """Where a suite is. One that ships may be installed as links to its files, which others may not hold."""

    path: Path
    shipped: bool

    def text(self, name: str, *, limit: int) -> str:
        return read_text(self.path / name, limit=limit, links=self.shipped)

    def has(self, name: str) -> bool:
        return os.path.lexists(self.path / name)


@dataclass(frozen=True, kw_only=True)
class Head:
    """What `suite.yaml` says itself; None is left to the suite it extends, or to the defaults."""

    folder: Folder
    id: str | None
    title: str | None
    extends: str | None
    reply: Reply | None
    default_prompts: tuple[str, ...] | None
    num_ctx: int | None
    num_predict: int | None
    cluster: str | None
    lines: Mapping[str, int]


def load_suite(name_or_path: str | os.PathLike[str]) -> Suite:
    """A suite that ships, by name, or a folder's. All of it is checked; a SuiteError says what is wrong."""
    problems = Problems()
    suite = read_suite(find_suite(name_or_path), problems)
    problems.raise_first()
    if suite is None:
        raise SuiteError(Path(name_or_path), "cannot be read")
    return suite


def place_of(suite: Suite) -> str:
    """Where to find the suite again: the name of a built-in one, which an upgrade may move, or the folder."""
    if suite.id in SHIPPED and suite.path == shipped_folder(suite.id).path:
        return suite.id
    return str(suite.path.absolute())


def find_suite(name_or_path: str | os.PathLike[str]) -> Folder:
    """The folder meant: a name that ships goes before a folder of that name, unless written as a path."""
    name = os.fspath(name_or_path)
    if name in SHIPPED:
        return shipped_folder(name)
    path = _expanded(name)
    if path.name == MAIN and _exists(path):
        path = path.parent
    if not name.strip() or not _exists(path):
        ships = f"these ship: {listed(SHIPPED)}; otherwise give a folder with a {MAIN}"
        known = [*_folders_beside(path), *SHIPPED]
        raise NotFound(f"there is no suite '{name}'{did_you_mean(name, known)} ({ships})")
    return Folder(path=path, shipped=False)


def _folders_beside(path: Path) -> list[str]:
    """The suite folders in the same folder, written like the path that was given."""
    try:
        return [str(path.parent / main.parent.name) for main in sorted(path.parent.glob(f"*/{MAIN}"))[:1000]]
    except (OSError, ValueError):
        return []


def shipped_folder(name: str) -> Folder:
    return Folder(path=_PACKAGE / name, shipped=True)


def _expanded(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:  # the home of somebody who is not known here
        return Path(name)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, or with a null character: no such name
        return False


def read_suite(folder: Folder, problems: Problems, *, may_be_empty: bool = False) -> Suite | None:
    """The suite in a folder, or None with the reasons among the problems."""
    heads: list[Head] = []
    with problems.gather():
        heads = _heads(folder, problems)
    if not heads:
        return None
    # A suite whose reply cannot be told is not used, but the rest of it is still looked at.
    reply = _latest(heads, "reply") or Reply(kind="list", noun="candidate", max_chars=400)
    prompts = list(_prompts(heads, reply, problems))
    scenarios = _scenarios(heads, problems, may_be_empty=may_be_empty)
    rubric = _rubric(heads, problems)
    _check_defaults(heads[-1], prompts, problems)
    _check_cluster(heads[-1], scenarios, problems)
    check_renders(prompts, scenarios, reply, problems)
    anchors = _anchors(heads, rubric, scenarios, problems)
    judge_prompt = _judge_prompt(heads, problems)
    if problems.errors or rubric is None or judge_prompt is None:
        return None
    suite = _assembled(heads, reply, rubric, prompts, scenarios)
    return replace(suite, anchors=anchors, judge_prompt=judge_prompt)


def _assembled(
    heads: list[Head], reply: Reply, rubric: Rubric, prompts: list[Prompt], scenarios: list[Scenario]
) -> Suite:
    own = heads[-1]
    settled: dict[str, Any] = {
        "id": own.id,
        "default_prompts": _latest(heads, "default_prompts") or tuple(prompt.id for prompt in prompts),
        "num_ctx": _latest(heads, "num_ctx") or DEFAULT_CTX,
        "num_predict": _latest(heads, "num_predict") or DEFAULT_PREDICT,
    }
    hashes = {
        "rubric": rubric.hash,
        "prompts": {prompt.id: prompt.hash for prompt in prompts},
        "scenarios": [scenario.hash for scenario in scenarios],
    }
    return Suite(
        **settled,
        title=own.title or str(own.id),
        path=own.folder.path,
        reply=reply,
        rubric=rubric,
        prompts=tuple(prompts),
        scenarios=tuple(scenarios),
        hash=content_hash({**settled, **hashes}),
        cluster=_latest(heads, "cluster") or DEFAULT_CLUSTER,
    )


def _heads(folder: Folder, problems: Problems) -> list[Head]:
    """The suite's own `suite.yaml` last, those it extends before it."""
    if not os.path.isdir(folder.path):  # noqa: PTH112 - never raises, unlike Path.is_dir
        raise SuiteError(folder.path, f"is not a folder with a {MAIN}")
    head = _head(folder, problems)
    if head.extends is None:
        return [head]
    if head.extends not in SHIPPED:
        near = did_you_mean(head.extends, SHIPPED)
        message = f"'extends' names '{head.extends}', which does not ship{near} (these do: {listed(SHIPPED)})"
        raise SuiteError(folder.path / MAIN, message, line=head.lines.get("extends"))
    return [*_heads(shipped_folder(head.extends), problems), head]


def _head(folder: Folder, problems: Problems) -> Head:
    path = folder.path / MAIN
    form = Form(
        parse_yaml(folder.text(MAIN, limit=64 * 1024), path=path, problems=problems),
        path=path,
        problems=problems,
        what=MAIN,
    )
    extends = form.text("extends")
    reply = form.form("reply", required=extends is None)
    head = Head(
        folder=folder,
        id=form.ident("id", required=True),
        title=form.text("title"),
        extends=extends,
        reply=read_reply(reply) if reply else None,
        default_prompts=form.words("default_prompts"),
        num_ctx=form.whole("num_ctx", low=64, high=2**20),
        num_predict=form.whole("num_predict", low=1, high=2**20),
        cluster=form.text("cluster"),
        lines={key: node.line for key, node in form.nodes.items()},
    )
    form.finish()
    return head


def _check_cluster(head: Head, scenarios: Sequence[Scenario], problems: Problems) -> None:
    """The variable that `cluster` names must be in a scenario."""
    names = {name for scenario in scenarios for name in scenario.variables}
    if head.cluster is not None and scenarios and head.cluster not in names:
        near = did_you_mean(head.cluster, names)
        problems.add(
            head.folder.path / MAIN,
            f"'cluster' names the variable '{head.cluster}', which no scenario has{near}",
            line=head.lines.get("cluster"),
        )


def _latest(heads: list[Head], name: str) -> Any:  # noqa: ANN401 - a field of any type
    return next((value for head in reversed(heads) if (value := getattr(head, name)) is not None), None)


def _prompts(heads: list[Head], reply: Reply, problems: Problems) -> Iterator[Prompt]:
    seen: dict[str, Path] = {}
    for head in heads:
        for path in _prompt_files(head, problems, needed=head is heads[0]):
            twin = seen.setdefault(path.stem.casefold(), path)
            if twin != path:
                problems.add(path, f"the prompt id '{path.stem}' is already used by {twin}")
                continue
            with problems.gather():
                text = head.folder.text(f"prompts/{path.name}", limit=2**18)
                prompt = read_prompt(text, path=path, reply=reply, problems=problems)
                if prompt:
                    yield prompt


def _prompt_files(head: Head, problems: Problems, *, needed: bool) -> list[Path]:
    folder = head.folder.path / "prompts"
    if not needed and not head.folder.has("prompts"):
        return []
    if folder.is_symlink() and not head.folder.shipped:
        problems.add(folder, "is a link; a suite holds its own files, so put the prompts here")
        return []
    try:
        visible = [path for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError as error:
        problems.add(folder, f"there must be a folder of prompts here, each such as v1.md ({error.strerror})")
        return []
    files = [path for path in visible if path.suffix.casefold() == ".md"]
    for path in sorted(set(visible) - set(files)):
        problems.warn(path, "is not read: a prompt's file ends in .md")
    if needed and not files:
        problems.add(folder, "holds no prompt; write one, such as v1.md")
    return sorted(files, key=lambda path: _natural(path.stem))


def _natural(name: str) -> list[tuple[int, int, str]]:
    """A sorting key that puts v10 after v2."""
    parts = re.findall(r"\d+|\D+", name.casefold())
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]


def _rubric(heads: list[Head], problems: Problems) -> Rubric | None:
    """The suite's own rubric, else that of the suite it extends."""
    owner = next((head for head in reversed(heads) if head.folder.has("rubric.md")), heads[-1]).folder
    with problems.gather():
        text = owner.text("rubric.md", limit=2**18)
        return read_rubric(text, path=owner.path / "rubric.md", problems=problems)
    return None


def _judge_prompt(heads: list[Head], problems: Problems) -> JudgePrompt | None:
    """The suite's own prompt for AI judges, else that of the suite it extends, else the built-in one."""
    owner = next((head.folder for head in reversed(heads) if head.folder.has(JUDGE_FILE)), None)
    if owner is None:
        return BUILT_IN
    with problems.gather():
        text = owner.text(JUDGE_FILE, limit=2**18)
        return read_judge_prompt(text, path=owner.path / JUDGE_FILE, problems=problems)
    return None


def _scenarios(heads: list[Head], problems: Problems, *, may_be_empty: bool) -> list[Scenario]:
    scenarios: list[Scenario] = []
    seen: dict[str, str] = {}
    personas: Mapping[str, Any] = {}
    for head in heads:
        path = head.folder.path / "scenarios.yaml"
        file = scenario_file(head.folder, personas, problems)
        personas = file.personas
        for scenario, line in file.scenarios:
            key = scenario.id.casefold()
            if key in seen:
                message = f"the scenario id '{scenario.id}' is already used at {seen[key]}"
                problems.add(path, message, line=line)
            else:
                seen[key] = f"{path}:{line}"
                scenarios.append(scenario)
    own = heads[-1].folder.path / "scenarios.yaml"
    if not scenarios and not may_be_empty and all(problem.path != own for problem in problems.errors):
        problems.add(own, "the suite has no scenarios; write some, or import them from a table")
    return scenarios


def scenario_file(folder: Folder, personas: Mapping[str, Any], problems: Problems) -> ScenarioFile:
    """What a folder's `scenarios.yaml` holds; nothing where there is none."""
    if folder.has("scenarios.yaml"):
        path = folder.path / "scenarios.yaml"
        with problems.gather():
            text = folder.text("scenarios.yaml", limit=LARGE)
            return read_scenarios(text, path=path, personas=personas, problems=problems)
    return ScenarioFile(scenarios=(), personas=personas, items=None)


def layered_personas(folder: Folder) -> Mapping[str, Any]:
    """The personas that a suite's own scenarios may name: its own and those of the suites it extends."""
    problems = Problems()
    personas: Mapping[str, Any] = {}
    for head in _heads(folder, problems):
        personas = scenario_file(head.folder, personas, problems).personas
    return personas


def _anchors(
    heads: list[Head], rubric: Rubric | None, scenarios: list[Scenario], problems: Problems
) -> tuple[Anchor, ...]:
    """The anchors of the suite and of those it extends that were judged under its rubric."""
    bank = BankInTheMaking()
    unsure = any(problem.path.name == "scenarios.yaml" for problem in problems.errors)
    if rubric is None or unsure:  # what is wrong there would show again at every anchor
        return ()
    ids = [scenario.id for scenario in scenarios]
    for head in heads:
        if head.folder.has(BANK):
            path = head.folder.path / BANK
            with problems.gather():
                text = head.folder.text(BANK, limit=LARGE)
                file = read_bank(text, path=path, rubric=rubric, scenario_ids=ids, problems=problems)
                _warn_stale(file, path, own=heads[-1], problems=problems)
                _add_all(bank, file, path, problems)
    return bank.anchors


def _add_all(bank: BankInTheMaking, file: BankFile, path: Path, problems: Problems) -> None:
    for anchor, line in file.anchors:
        try:
            bank.add(anchor)
        except BadInput as error:
            problems.add(path, str(error), line=line)


def _warn_stale(file: BankFile, path: Path, *, own: Head, problems: Problems) -> None:
    if file.stale and path.parent == own.folder.path:
        problems.warn(path, file.stale, line=file.line)
    elif file.stale:
        message = f"the anchors of '{path.parent.name}' are not used: they were judged under another rubric"
        problems.warn(own.folder.path / "rubric.md", message)


def _check_defaults(own: Head, prompts: list[Prompt], problems: Problems) -> None:
    ids = [prompt.id for prompt in prompts]
    broken = {problem.path.stem for problem in problems.errors}
    path, line = own.folder.path / MAIN, own.lines.get("default_prompts")
    defaults = own.default_prompts or ()
    for name in dict.fromkeys(defaults):
        if name not in ids and name not in broken:
            message = (
                f"'default_prompts' names '{name}', which is no prompt of the suite (there are {listed(ids)})"
            )
            problems.add(path, message, line=line)
        if defaults.count(name) > 1:
            problems.add(path, f"'default_prompts' names '{name}' twice", line=line)
