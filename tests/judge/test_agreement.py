from __future__ import annotations

import warnings
from dataclasses import replace

import krippendorff
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from judge_samples import AGENT, AI, HUMAN, OTHER, PROXY, QUALITY, verdict
from tipbench.judge.agreement import Agreement, agreement, compare_kinds, ordinal_alpha, wide_gap, word_for
from tipbench.judge.verdicts import counting_judges
from tipbench.records import Judge, JudgeKind, Verdict
from tipbench.suite.rubric import Scale

TWO = [QUALITY, Scale(name="tone", low=1, high=5)]
PEOPLE: tuple[JudgeKind, ...] = ("human", "agent")


def agreed(*verdicts: Verdict, scales: list[Scale] | None = None) -> Agreement:
    return agreement(verdicts, rubric_hash="rh", scales=scales or [QUALITY], kinds=PEOPLE)


def pairs(*scores: tuple[float, float], judges: tuple[Judge, Judge] = (HUMAN, OTHER)) -> list[Verdict]:
    """Two judges' scores for candidates c0, c1, …"""
    return [
        verdict(f"c{n}", score, judge)
        for n, both in enumerate(scores)
        for judge, score in zip(judges, both, strict=True)
    ]


def test_alpha_by_hand() -> None:
    """Two judges agree on two of three: one pair of six values differs, so alpha is 1 - 5·1/(3·3)."""
    assert ordinal_alpha([[1, 1], [1, 2], [2, 2]]) == pytest.approx(1 - 5 / 9)


@settings(max_examples=200)
@given(
    st.lists(
        st.lists(st.one_of(st.none(), st.sampled_from([1, 1.5, 2, 3, 4, 5])), min_size=3, max_size=3),
        min_size=2,
        max_size=12,
    )
)
def test_alpha_agrees_with_the_reference_implementation(items: list[list[float | None]]) -> None:
    """Whatever three judges give and leave out, alpha is the one that the known package computes."""
    units = [[value for value in item if value is not None] for item in items]
    paired = [unit for unit in units if len(unit) > 1]
    assume(len(paired) > 1 and len({value for unit in paired for value in unit}) > 1)
    table = np.array([[np.nan if value is None else value for value in item] for item in items]).T
    assert ordinal_alpha(units) == pytest.approx(
        krippendorff.alpha(reliability_data=table, level_of_measurement="ordinal"), abs=1e-9
    )


@pytest.mark.parametrize(
    ("units", "alpha"),
    [
        ([], None),
        ([[1, 5]], None),
        ([[3, 3], [3, 3], [3, 3]], None),
        ([[3], [4], [1]], None),
        ([[1, 1], [5, 5]], 1.0),
    ],
)
def test_alpha_where_there_is_nothing_to_compute(units: list[list[float]], alpha: float | None) -> None:
    """Without two shared items, or without any variation, alpha is unknown, and nothing warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ordinal_alpha(units) == alpha


def test_agreement_is_per_scale_over_shared_items() -> None:
    """Each scale has its alpha; a candidate that one judge scored does not count."""
    both = [
        verdict(f"c{n}", {"quality": score, "tone": tone}, judge)
        for n, score in enumerate([1, 3, 5])
        for judge, tone in ((HUMAN, score), (OTHER, 6 - score))
    ]
    found = agreed(*both, verdict("alone", {"quality": 1, "tone": 1}), scales=TWO)
    assert found.n_items == 3
    assert found.alpha["quality"] == 1
    assert (found.alpha["tone"] or 0) < 0
    assert found.words == {"quality": "good", "tone": "poor"}
    assert (found.word, found.enough) == ("poor", False)


def test_the_words_for_alpha() -> None:
    """.80 is good, .667 tolerable, and what is unknown has no word."""
    assert [word_for(a) for a in (0.8, 0.79, 0.667, 0.66, None)] == [
        "good",
        "tolerable",
        "tolerable",
        "poor",
        None,
    ]


def test_an_unknown_scale_leaves_the_whole_without_a_word() -> None:
    """One scale on which everybody gave the same keeps the others' word from standing for all."""
    flat = [
        verdict(f"c{n}", {"quality": n + 1, "tone": 3}, judge) for n in range(3) for judge in (HUMAN, OTHER)
    ]
    found = agreed(*flat, scales=TWO)
    assert found.alpha == {"quality": 1, "tone": None}
    assert found.word is None


def test_sixty_items_are_enough() -> None:
    """From sixty doubly judged candidates on alpha may be relied on."""
    assert agreed(*pairs(*[(1, 2)] * 60)).enough
    assert not agreed(*pairs(*[(1, 2)] * 59)).enough


def test_only_the_kinds_asked_for_and_the_rubric_in_use() -> None:
    """A machine, and a verdict under an older rubric, are no second opinion."""
    found = agreed(
        *[verdict("c", 1), verdict("c", 5, AI), verdict("c", 5, PROXY), verdict("c", 5, OTHER, rubric="old")]
    )
    assert (found.n_items, found.gaps, found.severity) == (0, (), ())


def test_a_changed_mind_is_not_a_second_judge() -> None:
    """The latest verdict of a judge stands alone."""
    assert agreed(verdict("c", 1), verdict("c", 5, at=2)).n_items == 0


def test_wide_gaps_go_to_adjudication() -> None:
    """Two points apart on any scale is listed with what each gave; what was settled is not listed again."""
    found = agreed(*pairs((1, 3), (2, 3), (5, 1)))
    assert [(gap.candidate, gap.scale, dict(gap.scores)) for gap in found.gaps] == [
        ("c0", "quality", {"ann": 1, "bob": 3}),
        ("c2", "quality", {"ann": 5, "bob": 1}),
    ]
    settled = agreed(*pairs((1, 3), (5, 1)), verdict("c0", 2, OTHER, at=9, adjudicated=True))
    assert [gap.candidate for gap in settled.gaps] == ["c1"]
    assert settled.n_items == 2


def test_gaps_name_judges_of_one_name_by_kind() -> None:
    """A human and an agent called alike are told apart."""
    found = agreed(*pairs((1, 5), judges=(HUMAN, Judge(id="ann", kind="agent"))))
    assert found.gaps[0].scores == {"ann (human)": 1, "ann (agent)": 5}


@pytest.mark.parametrize(("low", "high", "gap"), [(1, 5, 2), (1, 3, 2), (0, 1, 1), (0, 10, 5), (0, 100, 50)])
def test_what_is_a_wide_gap(low: int, high: int, gap: float) -> None:
    """Two points on 1-5, half of a longer scale, both ends of a short one."""
    assert wide_gap(Scale(name="x", low=low, high=high)) == gap


def test_severity_is_against_the_others() -> None:
    """Below zero is severe; each judge is compared with the mean of the others on what they share."""
    three = [
        verdict("c", 1),
        verdict("c", 3, OTHER),
        verdict("c", 5, AGENT),
        verdict("d", 2),
        verdict("d", 4, OTHER),
    ]
    found = {one.judge.id: (one.n, one.scales["quality"], one.sum) for one in agreed(*three).severity}
    assert found == {"ann": (2, -2.5, -2.5), "bob": (2, 1, 1), "claude": (1, 3, 3)}


def test_severity_sums_over_scales() -> None:
    """The sum says how much a judge moves the three scores together."""
    both = [verdict("c", {"quality": 1, "tone": 2}), verdict("c", {"quality": 2, "tone": 4}, OTHER)]
    ann = agreed(*both, scales=TWO).severity[0]
    assert (ann.scales, ann.sum) == ({"quality": -1, "tone": -2}, -3)


def compared(
    *verdicts: Verdict, judge: str = AI.id
) -> tuple[int, str | None, float | None, float | None, float | None]:
    found = compare_kinds(verdicts, judge, rubric_hash="rh", scales=[QUALITY])
    one = found.scales["quality"]
    return found.n, found.people, one.bias, one.alpha, one.correlation


def test_a_machine_against_people() -> None:
    """Bias, alpha and correlation against the people's mean, on what both have judged."""
    people = pairs((1, 1), (2, 4), (5, 5))
    machine = [verdict(f"c{n}", score, AI) for n, score in enumerate([2, 4, 5, 1])]
    n, who, bias, alpha, correlation = compared(*people, *machine)
    assert (n, who) == (3, "human")
    assert bias == pytest.approx(2 / 3)
    assert alpha == pytest.approx(ordinal_alpha([(2, 1), (4, 3), (5, 5)]))
    assert correlation == pytest.approx(np.corrcoef([2, 4, 5], [1, 3, 5])[0, 1])


def test_agents_stand_in_where_there_are_no_humans() -> None:
    """Humans are who a machine is compared with, agents only if nobody else judged."""
    machine = [verdict("c", 3, AI), verdict("d", 3, AI)]
    assert compared(*machine, verdict("c", 4, AGENT))[:3] == (1, "agent", -1)
    assert compared(*machine, verdict("c", 4, AGENT), verdict("d", 5))[:3] == (1, "human", -2)
    assert compared(*machine)[:3] == (0, None, None)


def test_a_judge_who_never_varies_has_no_correlation() -> None:
    """All the same from one side: bias is known, correlation is not, and nothing warns."""
    thirds = Judge(id="cem", kind="human")
    people = [*pairs((3, 3), (3, 3)), verdict("c0", 4, thirds), verdict("c1", 4, thirds)]
    _, _, bias, _, correlation = compared(*people, verdict("c0", 2, AI), verdict("c1", 4, AI))
    assert bias == pytest.approx(3 - 10 / 3)
    assert correlation is None


def test_what_a_machine_must_reach() -> None:
    """Alpha .667 on every scale over sixty shared items; one scale below, or one item less, does not do."""

    def passes(n: int, *, off: int) -> bool:
        verdicts = [
            verdict(f"c{i}", {"quality": i % 5 + 1, "tone": (i + shift) % 5 + 1}, judge)
            for i in range(n)
            for judge, shift in ((HUMAN, 0), (AI, off))
        ]
        return compare_kinds(verdicts, AI.id, rubric_hash="rh", scales=TWO).passes

    assert passes(60, off=0)
    assert not passes(59, off=0)
    assert not passes(60, off=2)


def test_a_person_of_the_machines_name_is_not_the_machine() -> None:
    """The judge is looked for among machines alone."""
    assert compared(verdict("c", 1, Judge(id="proxy", kind="human")), verdict("c", 5, PROXY), judge="proxy")[
        :3
    ] == (
        1,
        "human",
        4,
    )


def read_twice(candidate: str, first: float, second: float) -> Verdict:
    """A verdict of the AI judge with its scores in two orders."""
    readings = ({"quality": first}, {"quality": second})
    return replace(verdict(candidate, (first + second) / 2, AI), readings=readings)


def test_the_swap_audit_compares_both_orders() -> None:
    """Alpha between the orders, and what a text gains nearer to the top, on what people scored too."""
    machine = [read_twice("c0", 3, 1), read_twice("c1", 4, 3), read_twice("c2", 5, 5), read_twice("x", 5, 1)]
    people = [verdict(f"c{n}", n + 2) for n in range(3)]
    found = compare_kinds([*machine, *people], AI.id, rubric_hash="rh", scales=[QUALITY])
    one = found.scales["quality"]
    assert (found.n, found.n_swapped, one.top_bonus) == (3, 3, 1)
    assert one.swap_alpha == pytest.approx(ordinal_alpha([(3, 1), (4, 3), (5, 5)]))


def test_verdicts_of_earlier_versions_have_no_swap_audit() -> None:
    """They are compared all the same; the audit is unknown."""
    found = compare_kinds(
        [verdict("c", 3, AI), verdict("d", 4, AI), verdict("c", 3), verdict("d", 4)],
        AI.id,
        rubric_hash="rh",
        scales=[QUALITY],
    )
    assert (found.n, found.n_swapped) == (2, 0)
    assert (found.scales["quality"].swap_alpha, found.scales["quality"].top_bonus) == (None, None)


def test_scores_and_lengths() -> None:
    """A judge that likes long texts and people who do not: rank correlations of opposite sign."""
    texts = {"c0": "a", "c1": "abc", "c2": "a" * 1000}
    machine = [verdict(f"c{n}", score, AI) for n, score in enumerate([1, 3, 4])]
    people = [verdict(f"c{n}", score) for n, score in enumerate([5, 4, 2])]
    found = compare_kinds([*machine, *people], AI.id, rubric_hash="rh", scales=[QUALITY], texts=texts)
    one = found.scales["quality"]
    assert one.length == pytest.approx(1)
    assert one.length_people == pytest.approx(-1)


def test_a_calibration_belongs_to_one_version_of_a_judge() -> None:
    """Sixty verdicts that agree, under other weights or another prompt, say nothing of the present ones."""
    now = Judge(id=AI.id, kind="ai", model="judge@1 prompt b")
    verdicts = [
        one
        for n in range(120)
        for one in (verdict(f"c{n}", 1 + n % 5), verdict(f"c{n}", 1 + n % 5, AI if n < 60 else now))
    ]

    def passes(judge: Judge, *, rubric: str = "rh") -> bool:
        return compare_kinds(
            verdicts, judge.id, rubric_hash=rubric, scales=[QUALITY], version=judge.version
        ).passes

    assert passes(AI)
    assert passes(now)
    assert not passes(Judge(id=AI.id, kind="ai", model="judge@1 prompt c"))
    assert not passes(Judge(id=AI.id, kind="ai", model="judge@2 prompt b"))
    assert not passes(now, rubric="another")
    assert [one.model for one in counting_judges(verdicts, rubric_hash="rh", kind="ai")] == [
        "judge",
        "judge@1 prompt b",
    ]


def test_a_restarted_server_is_the_same_judge() -> None:
    """The port of an address is no part of a version; the host, the model and the prompt are."""
    one = Judge(id="openai:x", kind="ai", model="x@127.0.0.1:8000 prompt b")
    assert one.version == replace(one, model="x@127.0.0.1:9000 prompt b").version
    assert one.version != replace(one, model="x@10.0.0.1:8000 prompt b").version
    assert one.version != replace(one, model="x@127.0.0.1:8000 prompt c").version
