"""`suite check`: everything that is wrong with a suite, and what is allowed but probably not meant."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING

from tipbench.records import content_hash
from tipbench.suite.anchor_file import BANK
from tipbench.suite.load import find_suite, read_suite
from tipbench.suite.problems import Problem, Problems, listed
from tipbench.suite.prompt_length import long_prompt
from tipbench.suite.suite import USUAL_TIPS, Suite
from tipbench.suite.template import compile_template

if TYPE_CHECKING:
    import os

    from tipbench.suite.prompt import Prompt
    from tipbench.suite.rubric import Scale

FEW_SCENARIOS = 4
FEW_ANCHORS = 4
FEW_JUDGEMENTS = 4


def check_suite(name_or_path: str | os.PathLike[str]) -> list[Problem]:
    """All problems of a suite, errors before warnings, each one sentence at a file and line."""
    problems = Problems()
    suite = read_suite(find_suite(name_or_path), problems)
    if suite:
        _warn_prompts(suite, problems)
        _warn_scenarios(suite, problems)
        _warn_limit(suite, problems)
        if suite.anchors:
            _warn_anchors(suite, problems)
    return sorted(problems.found, key=lambda problem: problem.warning)


def _warn_prompts(suite: Suite, problems: Problems) -> None:
    for prompt in suite.prompts:
        used = _names(prompt)
        if suite.reply.kind == "list" and "n_tips" not in used:
            problems.warn(prompt.path, "never says how many to write ({{ n_tips }})", line=prompt.user_line)
        _warn_length(suite, prompt, problems)
    for one, other in combinations(suite.prompts, 2):
        if (one.system, one.user, one.output) == (other.system, other.user, other.output):
            problems.warn(other.path, f"asks for the same in the same words as {one.path.name}")


def _warn_length(suite: Suite, prompt: Prompt, problems: Problems) -> None:
    num_ctx, num_predict = suite.limits(prompt, n_tips=USUAL_TIPS)
    found = long_prompt(
        suite, prompt, suite.scenarios, n_tips=USUAL_TIPS, num_ctx=num_ctx, num_predict=num_predict
    )
    if found:
        problems.warn(prompt.path, f"{found}: {found.remedy}, or shorten the prompt")


def _warn_scenarios(suite: Suite, problems: Problems) -> None:
    path = suite.path / "scenarios.yaml"
    if len(suite.scenarios) < FEW_SCENARIOS:
        problems.warn(path, f"{len(suite.scenarios)} scenarios decide nothing; 8 are a start, 24 are better")
    twins: dict[str, str] = {}
    for scenario in suite.scenarios:
        first = twins.setdefault(content_hash(scenario.variables), scenario.id)
        if first != scenario.id:
            problems.warn(path, f"'{first}' and '{scenario.id}' are the same scenario under two ids")
    used = frozenset[str]().union(*(_names(prompt) for prompt in suite.prompts))
    unused = {name for scenario in suite.scenarios for name in scenario.variables} - used
    if unused:
        problems.warn(path, f"no prompt uses {listed(sorted(unused))}")


def _warn_limit(suite: Suite, problems: Problems) -> None:
    limit = suite.rubric.overlong_limit
    constrained = any(prompt.output == "schema" for prompt in suite.prompts)
    if limit and limit.unit == "characters" and constrained and suite.reply.max_chars <= limit.most:
        problems.warn(
            suite.path / "suite.yaml",
            f"max_chars {suite.reply.max_chars} is not above the rubric's limit of {limit.most}, so that "
            "a schema hides overlong replies",
        )


def _warn_anchors(suite: Suite, problems: Problems) -> None:
    path, count = suite.path / BANK, Counter(anchor.scenario_id for anchor in suite.anchors)
    bare = [scenario.id for scenario in suite.scenarios if count[scenario.id] < FEW_ANCHORS]
    if bare:
        problems.warn(path, f"fewer than {FEW_ANCHORS} anchors are of the scenarios {listed(bare)}")
    thin = [anchor.id for anchor in suite.anchors if anchor.n_references < FEW_JUDGEMENTS]
    if thin:
        problems.warn(path, f"fewer than {FEW_JUDGEMENTS} judgements are behind the anchors {listed(thin)}")
    for scale in suite.rubric.scales:
        _warn_span(suite, scale, problems)
    unseen = sum(not anchor.by_people for anchor in suite.anchors)
    if unseen:
        problems.warn(
            path,
            f"no person has judged {unseen} of the {len(suite.anchors)} anchors, so that what they say of a "
            "judge is provisional; 'tipbench judge anchors' recalibrates them",
        )


def _warn_span(suite: Suite, scale: Scale, problems: Problems) -> None:
    """A judge who drifts at one end of a scale is seen only by anchors that are there."""
    means = [anchor.reference[scale.name] for anchor in suite.anchors]
    near = (scale.high - scale.low) / 4
    for end, reached in (
        (scale.low, min(means) <= scale.low + near),
        (scale.high, max(means) >= scale.high - near),
    ):
        if not reached:
            problems.warn(suite.path / BANK, f"no anchor is near {end} on '{scale.name}'")


def _names(prompt: Prompt) -> frozenset[str]:
    return compile_template(prompt.system).names | compile_template(prompt.user).names
