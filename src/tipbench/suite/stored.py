"""A suite as one JSON text, which an experiment keeps: its folder may be changed, moved or deleted later."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tipbench.suite.anchors import Anchor, Reference
from tipbench.suite.judge_prompt import BUILT_IN, JudgePrompt
from tipbench.suite.prompt import Prompt
from tipbench.suite.reply import Reply
from tipbench.suite.scenario import Scenario
from tipbench.suite.suite import DEFAULT_CLUSTER, Suite

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tipbench.records import Pin
    from tipbench.suite.rubric import Rubric

_FORMAT = 1


def stored_text(suite: Suite) -> str:
    """The text of a suite: all that judging, comparing and shipping need, and no path."""
    data = {
        "format": _FORMAT,
        "id": suite.id,
        "title": suite.title,
        "hash": suite.hash,
        "reply": asdict(suite.reply),
        "default_prompts": suite.default_prompts,
        "num_ctx": suite.num_ctx,
        "num_predict": suite.num_predict,
        "cluster": suite.cluster,
        "rubric": suite.rubric.text,
        "rubric_hash": suite.rubric.hash,
        "prompts": [_without_path(prompt) for prompt in suite.prompts],
        "scenarios": [
            {"id": one.id, "title": one.title, "variables": one.variables} for one in suite.scenarios
        ],
        "anchors": [asdict(anchor) for anchor in suite.anchors],
    }
    if not suite.judge_prompt.is_built_in:
        data["judge_prompt"] = asdict(suite.judge_prompt)
    return json.dumps(data, indent=1)


def _without_path(prompt: Prompt) -> dict[str, Any]:
    return {name: value for name, value in asdict(prompt).items() if name != "path"}


def suite_from_texts(texts: Iterable[str], *, pin: Pin, rubric: Rubric) -> Suite | None:
    """The suite of an experiment from the texts that it keeps, the newest first, under its rubric.

    Of each prompt and scenario the version that the experiment is pinned to, whichever text holds it. None
    where a pinned scenario is in none of them. A text in a format of a newer tipbench is left out.
    """
    known = [data for data in map(_read, texts) if data is not None and data["id"] == pin.suite_id]
    scenarios = _by_id([_scenarios(data) for data in known], pin.scenarios)
    if not known or not scenarios.keys() >= pin.scenarios.keys():
        return None
    newest = known[0]
    path = Path(pin.suite_id)
    prompts = _by_id([_prompts(data, path) for data in known], pin.prompts)
    return Suite(
        id=pin.suite_id,
        title=newest["title"],
        path=path,
        reply=Reply(**newest["reply"]),
        rubric=rubric,
        prompts=tuple(prompts.values()),
        scenarios=tuple(scenarios.values()),
        default_prompts=tuple(newest["default_prompts"]),
        num_ctx=newest["num_ctx"],
        num_predict=newest["num_predict"],
        cluster=newest.get("cluster", DEFAULT_CLUSTER),
        hash=newest["hash"],
        anchors=_anchors(known, scenarios, rubric),
        judge_prompt=JudgePrompt(**newest["judge_prompt"]) if "judge_prompt" in newest else BUILT_IN,
        is_stored=True,
    )


def _read(text: str) -> dict[str, Any] | None:
    try:
        data: dict[str, Any] = json.loads(text)
    except ValueError:
        return None
    return data if isinstance(data, dict) and data.get("format") == _FORMAT else None


def _scenarios(data: Mapping[str, Any]) -> list[Scenario]:
    return [Scenario.of(one["id"], one["variables"], title=one["title"]) for one in data["scenarios"]]


def _prompts(data: Mapping[str, Any], path: Path) -> list[Prompt]:
    return [Prompt(**one, path=path) for one in data["prompts"]]


def _by_id(versions: Sequence[Sequence[Any]], pinned: Mapping[str, str]) -> dict[str, Any]:
    """The first version of each id, in their order; of a pinned id the version that has its hash."""
    found: dict[str, Any] = {}
    for version in versions:
        for one in version:
            if pinned.get(one.id, one.hash) == one.hash:
                found.setdefault(one.id, one)
    return found


def _anchors(
    known: Sequence[Mapping[str, Any]], scenarios: Mapping[str, Scenario], rubric: Rubric
) -> tuple[Anchor, ...]:
    """The anchors of the newest text that were judged under this rubric; none under another one."""
    for data in known:
        if data["rubric_hash"] == rubric.hash and data["anchors"]:
            return tuple(_anchor(one) for one in data["anchors"] if one["scenario_id"] in scenarios)
    return ()


def _anchor(data: Mapping[str, Any]) -> Anchor:
    references = tuple(Reference(**one) for one in data["references"])
    return Anchor(**{**data, "references": references})
