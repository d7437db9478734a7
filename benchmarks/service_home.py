"""A home for a service to be measured on: `service_home.py EXPERIMENT SUITE SCENARIOS`.

An experiment of 12 combinations, all of it judged but for about a batch's worth.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from judged_world import plant
from judging import MODELS, N_TIPS, PROMPTS, judge_the_rest
from tipbench.ledger import open_ledger
from tipbench.settings import home
from tipbench.workflows.judged import read_judged

LEFT_CELLS = 12


def main() -> None:
    experiment, suite, scenarios = sys.argv[1], sys.argv[2], int(sys.argv[3])
    quality = {(model, prompt): 3.0 for model in MODELS for prompt in PROMPTS}
    plant(experiment, quality=quality, n_scenarios=scenarios, n_tips=N_TIPS, suite=suite)
    ledger = open_ledger("", home=home())
    state = read_judged(ledger, experiment)
    judge_the_rest(replace(state, runs=state.runs[:-LEFT_CELLS]))
    ledger.mark(experiment, read_judged(ledger, experiment).marks())


if __name__ == "__main__":
    main()
