"""What a person asks a simulation or a gate for. Nothing heavy is imported to ask."""

from __future__ import annotations

from dataclasses import dataclass

EXPERIMENT = "tip-sim-"


@dataclass(frozen=True, kw_only=True)
class SimOptions:
    """What is simulated. With a `url` the decisions are made by a live service."""

    policies: tuple[str, ...] = ("egreedy", "egreedy-v2", "linucb", "hybrid")
    world: str = "tip"
    seeds: int = 20
    first_seed: int = 0
    users: int = 40
    rounds: int = 300
    url: str = ""
    token: str = ""
    serve_seed: str = ""


@dataclass(frozen=True, kw_only=True)
class GateOptions:
    """What a person asks for; everything else follows from it, or from what was tried before."""

    challenger: str
    champion: str = "egreedy"
    world: str = "tip"
    margin: float = 0.0
    guardrail: float = 0.02
    seeds: int = 20
    users: int = 40
    rounds: int = 300
    record: bool = False
