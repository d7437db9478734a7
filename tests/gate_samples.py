"""A gate's record as it lies on disk."""

from __future__ import annotations

import time
from typing import Any

from tipbench.bandit import policies
from tipbench.sim.world_file import load_world


def gate_record(
    *,
    challenger: str = "hybrid",
    champion: str = "egreedy",
    outcome: str = "passed",
    held_ms: int | None = None,
    rounds: int = 100,
    form: int = 1,
) -> dict[str, Any]:
    """One that says this, made up but for the versions, which are those of now."""
    gain = {"mean": 0.09, "low": 0.06, "high": 0.12, "n": 8}
    curve = [[end, 0.2 - 0.001 * end, 0.18 - 0.001 * end, 0.22 - 0.001 * end] for end in range(1, rounds + 1)]
    sentence = f"{challenger} against {champion} on tip: {outcome}: it is so."
    return {
        "form": form,
        "held_ms": time.time_ns() // 1_000_000 if held_ms is None else held_ms,
        "outcome": outcome,
        "passed": outcome == "passed",
        "rehearsal": False,
        "plan": {
            "challenger": challenger,
            "challenger_version": policies.version(policies.make(challenger)),
            "champion": champion,
            "champion_version": policies.version(policies.make(champion)),
            "world": "tip",
            "world_hash": load_world("tip").hash,
            "number": 1,
            "n": 8,
            "users": 8,
            "rounds": rounds,
            "margin": 0.0,
            "guardrail": 0.02,
            "level": 0.05,
            "seeds": [1, 2],
        },
        "verdict": {
            "outcome": outcome,
            "reason": sentence,
            "overall": gain,
            "personas": {"maya": gain, "carl": {**gain, "low": -0.05}},
            "controls": [
                {"name": "random", "held": True, "sentence": "picking at random was refused", "overall": gain}
            ],
            "false_pass_rate": 0.02,
            "off_policy": None,
        },
        "regret": {"challenger": 0.1, "champion": 0.2},
        "curves": {"challenger": curve, "champion": [[end, 0.2, 0.19, 0.21] for end, *_ in curve]},
    }
