"""Suites: what is evaluated. A rubric, prompt versions and scenarios, in files that a person writes."""

from tipbench.suite.anchor_file import read_anchor_bank, write_anchor_bank
from tipbench.suite.anchors import Anchor, Reference, merge_banks, normalised
from tipbench.suite.check import check_suite
from tipbench.suite.create import new_suite
from tipbench.suite.formula import Formula, parse_formula
from tipbench.suite.importing import Imported, import_scenarios
from tipbench.suite.judge_prompt import JudgePrompt
from tipbench.suite.load import SHIPPED, load_suite, place_of
from tipbench.suite.problems import Problem
from tipbench.suite.prompt import Output, Prompt
from tipbench.suite.reply import Reply, ReplyKind
from tipbench.suite.rubric import Flag, Limit, Rubric, Scale
from tipbench.suite.scenario import Scenario
from tipbench.suite.stored import stored_text, suite_from_texts
from tipbench.suite.suite import Suite, render

__all__ = [
    "SHIPPED",
    "Anchor",
    "Flag",
    "Formula",
    "Imported",
    "JudgePrompt",
    "Limit",
    "Output",
    "Problem",
    "Prompt",
    "Reference",
    "Reply",
    "ReplyKind",
    "Rubric",
    "Scale",
    "Scenario",
    "Suite",
    "check_suite",
    "import_scenarios",
    "load_suite",
    "merge_banks",
    "new_suite",
    "normalised",
    "parse_formula",
    "place_of",
    "read_anchor_bank",
    "render",
    "stored_text",
    "suite_from_texts",
    "write_anchor_bank",
]
