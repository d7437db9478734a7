"""Reading `rubric.md`: front matter for what code needs, a body that pins every level down for the judge."""

from __future__ import annotations

import math
import re
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from tipbench.errors import BadInput, FormulaError
from tipbench.records import content_hash
from tipbench.suite.document import Document, parse_document
from tipbench.suite.form import Form
from tipbench.suite.formula import Formula, parse_formula
from tipbench.suite.problems import Problems, did_you_mean, listed
from tipbench.suite.rubric import FLAGS, Flag, Limit, Rubric, Scale

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tipbench.suite.yamldoc import Node

# Names that stand beside the scales in a judge's file or in a run's metrics.
_TAKEN = frozenset(
    [
        "note",
        "composite",
        "n_judged",
        "n_candidates",
        "latency_ms",
        "load_ms",
        "prompt_tokens",
        "cached_tokens",
        "output_tokens",
        "tokens_per_s",
        "diversity",
        "memory_bytes",
    ]
)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}", re.ASCII)
_RANGE = re.compile(r"(\d{1,3})\s*(?:-|–|to)\s*(\d{1,3})", re.ASCII)
_MOST_CHECKED = 20_000
_MOST_SCALES = 10


def read_rubric(text: str, *, path: Path, problems: Problems) -> Rubric | None:
    """The rubric a file holds, or None with the reasons among the problems."""
    document = parse_document(text, path=path, problems=problems)
    form = Form(document.front, path=path, problems=problems, what="the rubric's front matter")
    rubric_id = form.ident("id", required=True)
    title = form.text("title") or rubric_id
    scales, limit = _scales(form), _limit(form)
    flags = _flags(form)
    failure = form.number("failure")
    composite = _composite(form, scales=scales, flags=flags)
    form.finish()
    _check_body(document, scales, path=path, problems=problems)
    if rubric_id is None or title is None or composite is None or not scales:
        return None
    return Rubric(
        id=rubric_id,
        title=title,
        scales=scales,
        flags=flags,
        overlong_limit=limit,
        composite=composite,
        failure=_worst(composite, scales, flags) if failure is None else failure,
        text=text,
        hash=content_hash(text),
        path=path,
    )


def rubric_from_text(text: str, *, name: str) -> Rubric:
    """The rubric of a text that was a file once; `name` says where the text is now."""
    problems = Problems()
    rubric = read_rubric(text, path=Path(name), problems=problems)
    problems.raise_first()
    if rubric is None:
        raise BadInput(f"{name} holds no rubric that this version of tipbench can read")
    return rubric


def _scales(form: Form) -> tuple[Scale, ...]:
    inner = form.form("scales", required=True)
    if inner is None:
        return ()
    scales = [_scale(inner, name) for name in inner.nodes]
    if not 1 <= len(scales) <= _MOST_SCALES:
        inner.problem(f"'scales' must name 1 to {_MOST_SCALES} scales, each such as 'relevance: 1-5'")
        return ()
    return tuple(scale for scale in scales if scale)


def _scale(form: Form, name: str) -> Scale | None:
    if not _NAME.fullmatch(name) or name in _TAKEN or name in FLAGS:
        form.problem(
            f"'{name}' cannot name a scale: it is taken, or not lower-case letters, digits and '_'", key=name
        )
        return None
    text = form.text(name)
    match = _RANGE.fullmatch(text) if text else None
    if match and int(match[1]) < int(match[2]):
        return Scale(name=name, low=int(match[1]), high=int(match[2]))
    if text:
        form.problem(
            f"the scale '{name}' must be given as its lowest and highest score, such as 1-5", key=name
        )
    return None


def _flags(form: Form) -> tuple[Flag, ...]:
    names = form.words("flags") or ()
    for name in names:
        if name not in FLAGS:
            form.problem(
                f"there is no flag '{name}'{did_you_mean(name, FLAGS)} (flags are {listed(FLAGS)})",
                key="flags",
            )
    if "overlong" in names and "overlong_limit" not in form.nodes:
        form.problem("the flag 'overlong' needs an 'overlong_limit', such as '160 characters'", key="flags")
    return tuple(Flag(name=name, help=FLAGS[name]) for name in dict.fromkeys(names) if name in FLAGS)


def _limit(form: Form) -> Limit | None:
    text = form.text("overlong_limit")
    if text is None:
        return None
    match = re.fullmatch(r"([1-9]\d{0,5})\s+(characters|words)", text, re.ASCII)
    if match is None:
        form.problem("'overlong_limit' must be such as '160 characters' or '25 words'", key="overlong_limit")
        return None
    return Limit(most=int(match[1]), unit="words" if match[2] == "words" else "characters")


def _composite(form: Form, *, scales: tuple[Scale, ...], flags: tuple[Flag, ...]) -> Formula | None:
    node, text = form.nodes.get("composite"), form.text("composite", required=True)
    if node is None or text is None:
        return None
    try:
        formula = parse_formula(text)
        _check_names(form, formula, node, scales=scales, flags=flags)
        _check_values(formula, scales, flags)
    except FormulaError as error:
        form.problem(f"the composite '{_short(text)}': {error}", key="composite")
        return None
    return formula


def _check_names(
    form: Form, formula: Formula, node: Node, *, scales: tuple[Scale, ...], flags: tuple[Flag, ...]
) -> None:
    known = [scale.name for scale in scales] + [flag.name for flag in flags]
    for step in formula.steps:
        if step.kind == "name" and step.text not in known:
            near = did_you_mean(step.text, known) or f"; it may name {listed(known)}"
            message = f"'{step.text}' is neither a scale nor a flag{near}"
            raise FormulaError(message, column=step.column, line=step.line)
    for name in known:
        if name not in formula.names:
            form.problems.warn(form.path, f"'{name}' has no part in the composite", line=node.line)


def _check_values(formula: Formula, scales: tuple[Scale, ...], flags: tuple[Flag, ...]) -> None:
    """Evaluate every combination of scores (the corners, if they are too many), so that none fails later."""
    for names in _combinations(scales, flags):
        formula.value(names)


def _combinations(scales: tuple[Scale, ...], flags: tuple[Flag, ...]) -> Iterator[dict[str, float]]:
    levels: list[Sequence[int]] = [scale.levels for scale in scales]
    if math.prod(map(len, levels)) > _MOST_CHECKED:
        levels = [(scale.low, scale.high) for scale in scales]
    names = [scale.name for scale in scales] + [flag.name for flag in flags]
    for values in product(*levels, *([(0, 1)] * len(flags))):
        yield dict(zip(names, map(float, values), strict=True))


def _worst(formula: Formula, scales: tuple[Scale, ...], flags: tuple[Flag, ...]) -> float:
    return formula.value({**{s.name: float(s.low) for s in scales}, **{f.name: 0.0 for f in flags}})


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 60 else flat[:57] + "..."


def _check_body(document: Document, scales: tuple[Scale, ...], *, path: Path, problems: Problems) -> None:
    """Warn of every level of every scale that the body does not pin down with an example (a `>` line)."""
    if not document.body.strip():
        problems.add(path, "the rubric has no text; say what each score of each scale means")
        return
    levels = _levels(document)
    for scale in scales:
        if not any(name == scale.name for name, _ in levels):
            problems.warn(path, f"the scale '{scale.name}' has no section '## {scale.name}'")
            continue
        for level in scale.levels:
            line, examples = levels.get((scale.name, level), (None, 0))
            if line is None:
                problems.warn(path, f"'{scale.name}' does not say what a {level} is ('### {level}')")
            elif not examples:
                problems.warn(path, f"'{scale.name}' {level} has no example (a line with '>')", line=line)


def _levels(document: Document) -> dict[tuple[str, int], tuple[int, int]]:
    """For each scale and level with a heading: the heading's line and the number of examples below it."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    scale, level = "", -1
    for number, line in enumerate(document.body.split("\n"), start=document.body_line):
        heading = re.match(r"(##+)\s+(\w+)", line)
        if heading and len(heading[1]) == 2:
            scale, level = heading[2].casefold(), -1
            found[scale, -1] = (number, 0)
        elif heading and len(heading[1]) == 3 and heading[2].isdecimal():
            level = int(heading[2])
            found[scale, level] = (number, 0)
        elif line.startswith("> ") and (scale, level) in found:
            found[scale, level] = (found[scale, level][0], found[scale, level][1] + 1)
    return found
