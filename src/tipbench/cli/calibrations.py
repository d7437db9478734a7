"""The part of `judge status` on AI judges: each calibration, and the means that they make with people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tipbench.cli.screen import count, heading, print_rows, say

if TYPE_CHECKING:
    from tipbench.judge.agreement import Comparison
    from tipbench.workflows.judge_status import JudgeState, JudgeStatus


def print_calibration(one: JudgeStatus) -> None:
    """Print a model or the proxy against people, with alpha first, and the audit of the order and length."""
    if one.inconsistent:
        left_out = count(one.inconsistent, "text")
        say(f"{one.judge.id}: {left_out} left out, because reason and score named different levels")
    found = one.compared
    if found is None:
        return
    if not found.n:
        say(f"{one.judge.id}: not compared with people yet; they have no text in common")
        return
    trust = "agrees well enough to rank alone" if found.passes else "does not rank alone"
    say(
        f"{one.judge.id} against {found.people}s on {count(found.n, 'text')}: lowest Krippendorff's alpha "
        f"{number(found.least_alpha)}; {trust}"
    )
    _print_scales(found, swapped=one.judge.kind == "ai")


def _print_scales(found: Comparison, *, swapped: bool) -> None:
    audit = ("order alpha", "first place") if swapped else ()
    columns = ("alpha", "bias", "r", *audit, "r length", f"{found.people}s' r length")
    rows = [
        (
            name,
            number(scale.alpha),
            _signed(scale.bias),
            number(scale.correlation),
            *((number(scale.swap_alpha), _signed(scale.top_bonus)) if swapped else ()),
            number(scale.length),
            number(scale.length_people),
        )
        for name, scale in found.scales.items()
    ]
    print_rows(("scale", *columns), rows, right=columns)
    if swapped and not found.n_swapped:
        say("  swap audit: none of these texts has scores in two orders", style="dim")
    elif swapped:
        say(
            f"  swap audit: {count(found.n_swapped, 'text')} scored once more in reverse order; order alpha "
            "compares the orders, first place is what a text gains nearer to the top",
            style="dim",
        )


def print_assisted(found: JudgeState) -> None:
    """Print the means from people and a calibrated AI judge, beside those from people alone."""
    if not found.assisted:
        return
    heading(f"means with the scores of {found.assisted[0].judge}")
    rows = [
        (
            f"{one.model} with {one.prompt}",
            f"{one.assisted.n_people} of {one.assisted.n_judge}",
            _range(one.assisted.alone_mean, one.assisted.alone_low, one.assisted.alone_high),
            _range(one.assisted.mean, one.assisted.low, one.assisted.high),
            f"{one.assisted.ratio:.2f}",
        )
        for one in found.assisted
    ]
    numbers = ("scenarios", "people alone", "people and judge", "width")
    print_rows(("variant", *numbers), rows, right=numbers)
    say("  valid if the scenarios that people scored are like the others", style="dim")


def _range(mean: float, low: float, high: float) -> str:
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}"


def number(value: float | None) -> str:
    """Two decimals; a dash for an unknown number."""
    return "–" if value is None else f"{value:.2f}"
