"""Judged experiments to ship from: with a winner, a tie or a best guess, by the proxy, and unjudged."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from compared_worlds import AHEAD, BIG, CLOSE, SMALL, UNSURE
from judged_world import plant
from tipbench.ledger import open_ledger
from tipbench.records import Sampling, Shipped
from tipbench.settings import Settings, home
from tipbench.suite import load_suite
from tipbench.workflows.scenario_kinds import kind_of_scenario
from tipbench.workflows.shipped_file import Filed
from verdict_planting import ANNA, PROXY, by_scenario, judge

if TYPE_CHECKING:
    from tipbench.records import Ledger

POINTS = {
    "won": AHEAD,
    "won-by-the-small-one": {BIG: AHEAD[SMALL], SMALL: AHEAD[BIG]},
    "tied": CLOSE,
    "unsure": UNSURE,
    "rules": AHEAD,
}


def plant_judged(*names: str, ledger: Ledger | None = None) -> None:
    """Record these experiments and their verdicts; any other name is one that nobody has judged."""
    place = ledger or open_ledger("", home=home())
    for name in names:
        plant(name, quality={BIG: 3.0, SMALL: 3.0}, ledger=place)
        if name in POINTS:
            who = PROXY if name == "rules" else ANNA
            judge(place, name, who, by_scenario(POINTS[name]), batch_id=f"b-{name}")


def settings(**changes: Any) -> Settings:  # noqa: ANN401 - any setting
    return Settings.of(changes)


def filed(*, model: str = "tiny:latest", digest: str = "d" * 64, prompt: str = "v1", **changes: Any) -> Filed:  # noqa: ANN401 - any field of a shipping
    """What a shipping of the suite `tip` leaves on disk: two judged tips for each of four scenarios."""
    suite = load_suite("tip")
    one = Shipped(
        suite_id="tip",
        suite_hash=suite.hash,
        experiment="x",
        model=model,
        digest=digest,
        prompt_id=prompt,
        prompt_hash=suite.prompt(prompt).hash,
        n_tips=2,
        sampling=Sampling(temperature=0.7, num_ctx=2048, num_predict=600),
        ground="human",
        because="winner",
        mean=14.5,
        low=14.0,
        high=None,
        cautions=("Know this – first.",),
        shipped_ms=1_700_000_000_000,
        version=3,
        replaces=2,
    )
    kinds = [
        kind_of_scenario(scenario, tips=(f"Best for {scenario.id}.", "Good.") if at < 4 else ())
        for at, scenario in enumerate(suite.scenarios)
    ]
    return Filed(shipped=replace(one, **changes), suite="tip", ledger="somewhere", kinds=tuple(kinds))
