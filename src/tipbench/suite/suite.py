"""A suite: what is evaluated. A rubric, prompt versions and scenarios, loaded and known to fit together."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from tipbench.errors import NotFound, SuiteError
from tipbench.records import Message
from tipbench.suite.judge_prompt import BUILT_IN
from tipbench.suite.problems import did_you_mean, listed
from tipbench.suite.template import TemplateProblem, render_template

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tipbench.suite.anchors import Anchor
    from tipbench.suite.judge_prompt import JudgePrompt
    from tipbench.suite.prompt import Prompt
    from tipbench.suite.reply import Reply
    from tipbench.suite.rubric import Rubric
    from tipbench.suite.scenario import Scenario

USUAL_TIPS = 5
DEFAULT_CLUSTER = "persona"


T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A rubric, prompt versions and scenarios; the hash covers all of them, but no title and no path.

    Nor does it cover the anchors, the judge's prompt and `cluster`, which change nothing that is generated.
    `cluster` names the variable that scenarios of one group share. `is_stored` says that it was read from an
    experiment: `path` is then no folder.
    """

    id: str
    title: str
    path: Path
    reply: Reply
    rubric: Rubric
    prompts: tuple[Prompt, ...]
    scenarios: tuple[Scenario, ...]
    default_prompts: tuple[str, ...]
    num_ctx: int
    num_predict: int
    hash: str
    anchors: tuple[Anchor, ...] = ()
    judge_prompt: JudgePrompt = BUILT_IN
    is_stored: bool = False
    cluster: str = DEFAULT_CLUSTER

    @property
    def clusters(self) -> dict[str, str]:
        """By scenario, the value of its cluster variable as text; scenarios without it are left out."""
        return {
            one.id: json.dumps(one.variables[self.cluster], sort_keys=True, default=str)
            for one in self.scenarios
            if self.cluster in one.variables
        }

    def prompt(self, prompt_id: str) -> Prompt:
        return _found(prompt_id, self._prompts, what=f"prompt in the suite '{self.id}'")

    def scenario(self, scenario_id: str) -> Scenario:
        return _found(scenario_id, self._scenarios, what=f"scenario in the suite '{self.id}'")

    @cached_property
    def _prompts(self) -> dict[str, Prompt]:
        return {prompt.id: prompt for prompt in self.prompts}

    @cached_property
    def _scenarios(self) -> dict[str, Scenario]:
        return {scenario.id: scenario for scenario in self.scenarios}

    def limits(self, prompt: Prompt, *, n_tips: int) -> tuple[int, int]:
        """`num_ctx` and `num_predict` for a prompt, both larger where more than five candidates are asked."""
        predict = prompt.num_predict or self.num_predict
        wanted = math.ceil(predict * max(1.0, self.reply.slots(n_tips) / USUAL_TIPS))
        return (prompt.num_ctx or self.num_ctx) + wanted - predict, wanted


def _found(wanted: str, items: Mapping[str, T], *, what: str) -> T:
    if wanted in items:
        return items[wanted]
    ids = list(items)
    raise NotFound(
        f"there is no {what} called '{wanted}'{did_you_mean(wanted, ids)} (there are {listed(ids)})"
    )


def render(prompt: Prompt, scenario: Scenario, *, n_tips: int, reply: Reply) -> tuple[Message, ...]:
    """What is sent to the model; a SuiteError at the prompt's line where a variable is missing."""
    variables = {**scenario.variables, "n_tips": reply.slots(n_tips), "noun": reply.noun}
    try:
        system = render_template(prompt.system, variables).strip()
    except TemplateProblem as error:
        raise _failed(prompt, scenario, error, prompt.system_line) from None
    try:
        user = render_template(prompt.user, variables).strip()
    except TemplateProblem as error:
        raise _failed(prompt, scenario, error, prompt.user_line) from None
    if not user:
        raise SuiteError(
            prompt.path, f"nothing is left to ask in scenario '{scenario.id}'", line=prompt.user_line
        )
    asked = Message(role="user", content=user)
    return (Message(role="system", content=system), asked) if system else (asked,)


def _failed(prompt: Prompt, scenario: Scenario, error: TemplateProblem, first_line: int) -> SuiteError:
    message = f"scenario '{scenario.id}': {error.message}"
    return SuiteError(prompt.path, message, line=first_line + error.line - 1)
