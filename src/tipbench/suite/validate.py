"""Whether prompts and scenarios fit together: every template is compiled and filled with every scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tipbench.errors import SuiteError
from tipbench.suite.suite import USUAL_TIPS, render
from tipbench.suite.template import TemplateProblem, compile_template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tipbench.suite.problems import Problems
    from tipbench.suite.prompt import Prompt
    from tipbench.suite.reply import Reply
    from tipbench.suite.scenario import Scenario


def check_renders(
    prompts: Sequence[Prompt], scenarios: Sequence[Scenario], reply: Reply, problems: Problems
) -> None:
    for prompt in prompts:
        if _compiles(prompt, problems):
            _check_prompt(prompt, scenarios, reply, problems)


def _compiles(prompt: Prompt, problems: Problems) -> bool:
    before = len(problems.errors)
    for source, line in ((prompt.system, prompt.system_line), (prompt.user, prompt.user_line)):
        try:
            compile_template(source)
        except TemplateProblem as error:
            problems.add(prompt.path, error.message, line=line + error.line - 1)
    return len(problems.errors) == before


def _check_prompt(prompt: Prompt, scenarios: Sequence[Scenario], reply: Reply, problems: Problems) -> None:
    """One problem per place and reason, however many scenarios it shows in."""
    first: dict[tuple[int | None, str], tuple[SuiteError, int]] = {}
    for scenario in scenarios:
        try:
            render(prompt, scenario, n_tips=USUAL_TIPS, reply=reply)
        except SuiteError as error:
            key = (error.line, error.message.partition(": ")[2])
            known, count = first.get(key, (error, 0))
            first[key] = (known, count + 1)
    for problem, count in first.values():
        more = f" (and in {count - 1} more scenarios)" if count > 1 else ""
        problems.add(problem.path, problem.message + more, line=problem.line)
