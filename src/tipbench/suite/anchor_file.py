"""Reading and writing `anchors.yaml`: who judged, under which rubric, and what each anchor was given."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tipbench.errors import BadInput, StaleBank, SuiteError
from tipbench.suite.anchors import Anchor, BankInTheMaking, Reference, normalised
from tipbench.suite.form import Form
from tipbench.suite.problems import Problems, did_you_mean, listed
from tipbench.suite.yamldoc import parse_yaml, quoted, written

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tipbench.records import JudgeKind
    from tipbench.suite.rubric import Rubric
    from tipbench.suite.scenario import Scenario
    from tipbench.suite.yamldoc import Node

BANK = "anchors.yaml"
KINDS: dict[str, JudgeKind] = {"human": "human", "agent": "agent"}
LONGEST_NAME = 64
_HASH = re.compile(r"[0-9a-f]{12,64}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class BankFile:
    """What a bank holds, with lines; `stale` says why none of it can be used under the present rubric."""

    anchors: tuple[tuple[Anchor, int], ...] = ()
    stale: str | None = None
    line: int | None = None


def read_anchor_bank(
    text: str, *, path: Path, rubric: Rubric, scenarios: Sequence[Scenario]
) -> tuple[Anchor, ...]:
    """The anchors of a bank that is kept anywhere; a SuiteError says what is wrong and on which line.

    A bank that was judged under another text of the rubric is a StaleBank, so that nobody who adds to a bank
    takes it for an empty one.
    """
    problems = Problems()
    ids = [scenario.id for scenario in scenarios]
    file = read_bank(text, path=path, rubric=rubric, scenario_ids=ids, problems=problems)
    problems.raise_first()
    if file.stale:
        raise StaleBank(path, file.stale, line=file.line)
    return tuple(anchor for anchor, _ in file.anchors)


def read_bank(
    text: str, *, path: Path, rubric: Rubric, scenario_ids: Sequence[str], problems: Problems
) -> BankFile:
    """A bank with its lines. Under another rubric text its scores mean nothing, and are not looked at."""
    form = Form(
        parse_yaml(text, path=path, problems=problems), path=path, problems=problems, what="the anchor bank"
    )
    rubric_id, hashed = form.text("rubric", required=True), form.text("rubric_hash")
    judges, items = form.form("judges", required=True), form.node("anchors", required=True)
    form.finish()
    if hashed is None:
        if "rubric_hash" not in form.nodes:
            form.problem(f"the anchor bank has no 'rubric_hash'; that of the rubric is \"{rubric.hash}\"")
        return BankFile()
    if not (_HASH.fullmatch(hashed.casefold()) and rubric.hash.startswith(hashed.casefold())):
        return BankFile(stale=_stale(rubric), line=form.nodes["rubric_hash"].line)
    if rubric_id is not None and rubric_id != rubric.id:
        form.problem(f"'rubric' is '{rubric_id}', but the hash is that of '{rubric.id}'", key="rubric")
    reader = _Reader(rubric=rubric, scenario_ids=scenario_ids, judges=_judges(judges), form=form)
    return BankFile(anchors=tuple(reader.anchors(items)) if items else ())


def _stale(rubric: Rubric) -> str:
    return (
        "the anchors were judged under another text of the rubric and are not used; judge them anew, "
        f'or if the change moves no score write rubric_hash: "{rubric.hash}"'
    )


def _judges(form: Form | None) -> dict[str, JudgeKind | None]:
    """The kind of each judge; None for one who is named but of no kind that may give references."""
    return {name: _kind(form, name) for name in form.nodes} if form else {}


def _kind(form: Form, name: str) -> JudgeKind | None:
    if len(name) > LONGEST_NAME or not name.isprintable() or name != name.strip():
        form.problem(f"a judge's name has at most {LONGEST_NAME} characters, all visible", key=name)
    inner = Form(form.nodes[name], path=form.path, problems=form.problems, what=f"the judge '{name}'")
    kind = inner.choice("kind", tuple(KINDS), required=True)
    inner.finish()
    return KINDS[kind] if kind else None


class _Reader:
    """Reads the anchors of one bank; what is wrong goes to the form's problems."""

    def __init__(
        self,
        *,
        rubric: Rubric,
        scenario_ids: Sequence[str],
        judges: Mapping[str, JudgeKind | None],
        form: Form,
    ) -> None:
        self.rubric = rubric
        self.scenario_ids = scenario_ids
        self.judges = judges
        self.path, self.problems = form.path, form.problems
        self.ids: dict[str, int] = {}
        self.texts: dict[tuple[str, str], str] = {}

    def anchors(self, items: Node) -> Iterator[tuple[Anchor, int]]:
        if not isinstance(items.value, list):
            message = "'anchors' must be a list: lines that begin with '- id:'"
            raise SuiteError(self.path, message, line=items.line)
        for node in items.value:
            form = self._form(node, "an anchor", such_as="lines that begin with '- id:'")
            anchor = self._anchor(form) if form else None
            if anchor and self._is_new(anchor, node.line):
                yield anchor, node.line

    def _form(self, node: Node, what: str, *, such_as: str) -> Form | None:
        if isinstance(node.value, dict):
            return Form(node, path=self.path, problems=self.problems, what=what)
        self.problems.add(self.path, f"{what} must be {such_as}", line=node.line)
        return None

    def _anchor(self, form: Form) -> Anchor | None:
        anchor_id, text = form.ident("id", required=True), form.text("text", required=True)
        scenario_id = self._scenario(form)
        references = tuple(self._references(form))
        form.finish()
        if anchor_id is None or text is None or scenario_id is None or not references:
            return None
        return Anchor(id=anchor_id, scenario_id=scenario_id, text=text, references=references)

    def _scenario(self, form: Form) -> str | None:
        name = form.text("scenario", required=True)
        if name is None or name in self.scenario_ids:
            return name
        near = did_you_mean(name, self.scenario_ids) or f"; there are {listed(self.scenario_ids)}"
        form.problem(f"'scenario' names '{name}', which is no scenario of the suite{near}", key="scenario")
        return None

    def _references(self, form: Form) -> Iterator[Reference]:
        node = form.node("scores", required=True)
        scores = self._form(node, "'scores'", such_as=f"judges with {self._example}") if node else None
        if scores is None:
            return
        if not scores.nodes:
            form.problem("an anchor needs the scores of at least one judge", key="scores")
        for judge in scores.nodes:
            kind, given = self._kind(scores, judge), self._scores(scores, judge)
            if given and kind:
                yield Reference(judge=judge, kind=kind, scores=given)

    def _kind(self, scores: Form, judge: str) -> JudgeKind | None:
        if judge not in self.judges:
            near = did_you_mean(judge, self.judges) or f"; there are {listed(self.judges) or 'none'}"
            scores.problem(f"'{judge}' is not one of the 'judges'{near}", key=judge)
        return self.judges.get(judge)

    def _scores(self, scores: Form, judge: str) -> dict[str, float] | None:
        form = self._form(scores.nodes[judge], f"the judgement of '{judge}'", such_as=self._example)
        if form is None:
            return None
        given: dict[str, float] = {}
        for scale in self.rubric.scales:
            score = form.whole(scale.name, low=scale.low, high=scale.high, required=True)
            given |= {} if score is None else {scale.name: score}
        form.finish()
        return given if len(given) == len(self.rubric.scales) else None

    @property
    def _example(self) -> str:
        return "{" + ", ".join(f"{scale.name}: {scale.high}" for scale in self.rubric.scales) + "}"

    def _is_new(self, anchor: Anchor, line: int) -> bool:
        by_id, by_text = anchor.id.casefold(), (anchor.scenario_id, normalised(anchor.text))
        if by_id in self.ids:
            message = f"the anchor id '{anchor.id}' is already used on line {self.ids[by_id]}"
        elif by_text in self.texts:
            twin = self.texts[by_text]
            message = (
                f"'{anchor.id}' has the same text as '{twin}'; keep one of them, with the scores of both"
            )
        else:
            self.ids[by_id], self.texts[by_text] = line, anchor.id
            return True
        self.problems.add(self.path, message, line=line)
        return False


def write_anchor_bank(anchors: Sequence[Anchor], *, rubric: Rubric) -> str:
    """The text of a bank that reads back as these anchors, in this order; where none can, BadInput."""
    bank = BankInTheMaking()
    lines = list(_head(anchors, rubric))
    for anchor in anchors:
        bank.add(anchor)
        lines += [*_entry(anchor, rubric), ""]
    text = "\n".join(lines).rstrip() + "\n"
    _check_readable(text, anchors, rubric)
    return text


def _head(anchors: Sequence[Anchor], rubric: Rubric) -> Iterator[str]:
    yield f"rubric: {written(rubric.id)}"
    yield f'rubric_hash: "{rubric.hash}"'
    yield ""
    kinds = {one.judge: one.kind for anchor in anchors for one in anchor.references}
    yield "judges:" if kinds else "judges: {}"
    yield from (f"  {written(judge)}: {{kind: {kind}}}" for judge, kind in kinds.items())
    yield ""
    yield "anchors:" if anchors else "anchors: []"


def _entry(anchor: Anchor, rubric: Rubric) -> Iterator[str]:
    yield f"  - id: {written(anchor.id)}"
    yield f"    scenario: {written(anchor.scenario_id)}"
    yield f"    text: {quoted(anchor.text.strip())}"
    yield "    scores:"
    order = {scale.name: at for at, scale in enumerate(rubric.scales)}
    for one in anchor.references:
        names = sorted(one.scores, key=lambda name: order.get(name, len(order)))
        scores = ", ".join(f"{name}: {one.scores[name]:g}" for name in names)
        yield f"      {written(one.judge)}: {{{scores}}}"


def _check_readable(text: str, anchors: Sequence[Anchor], rubric: Rubric) -> None:
    problems = Problems()
    ids = [anchor.scenario_id for anchor in anchors]
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput("an anchor holds half a character (a lone surrogate); remove it") from None
    file = read_bank(text, path=Path(BANK), rubric=rubric, scenario_ids=ids, problems=problems)
    problems.raise_first()
    if [anchor for anchor, _ in file.anchors] != [replace(one, text=one.text.strip()) for one in anchors]:
        raise BadInput("the anchors cannot be written so that they read back the same")
