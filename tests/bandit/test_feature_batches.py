"""Features of many decisions at once, and of any decision at all."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_samples import TASKS, TIPS, request
from tipbench.bandit import formulae, tip_text
from tipbench.bandit.asked import Candidate, Context, ScoreRequest
from tipbench.bandit.features import FEATURES, Decisions, matrix, suits_of, vectors
from tipbench.bandit.profiles import Profile, Tally


def tally(shown: int, ended: int, share: float, dwelt: list[float], hours: list[float]) -> Tally:
    turns = [math.pi * hour / 12.0 for hour in hours]
    return Tally(
        shown,
        ended,
        ended * share,
        ended // 3,
        len(dwelt),
        sum(dwelt),
        float(len(hours)),
        sum(map(math.cos, turns)),
        sum(map(math.sin, turns)),
    )


COUNTS = st.integers(0, 500)
TALLIES = st.builds(
    tally,
    COUNTS,
    COUNTS,
    st.floats(0, 1),
    st.lists(st.floats(0, 600), max_size=5),
    st.lists(st.floats(0, 24), max_size=5),
)
KINDS = st.sampled_from([*tip_text.KINDS, "of my own", ""])
RAW = st.fixed_dictionaries(
    {},
    optional={
        "completion_rate": st.floats(0, 1) | st.none(),
        "dismiss_rate": st.floats(0, 1),
        "mean_dwell_s": st.floats(0, 1e9),
        "preferred_hour": st.floats(0, 24, exclude_max=True),
        "tip_volume": st.floats(0, 1e9) | st.integers(0, 200),
        "foo": st.floats(allow_nan=True),
    },
)
PROFILES = st.builds(
    Profile, st.lists(KINDS, max_size=10).map(tuple), TALLIES, st.dictionaries(KINDS, TALLIES, max_size=4)
)
REQUESTS = st.builds(
    lambda tips, hour, tasks, flat, by_kind: ScoreRequest(
        user_id="u",
        context=Context(hour=hour, open_tasks=tasks),
        candidates=[
            Candidate(id=str(place), kind=kind, text=text) for place, (kind, text) in enumerate(tips)
        ],
        profile_features={**flat, **by_kind},
    ),
    st.lists(st.tuples(KINDS, st.text(max_size=60) | st.sampled_from(TIPS)), min_size=1, max_size=6),
    st.none() | st.floats(0, 24),
    st.none() | st.integers(0, 10**9) | st.lists(st.text(max_size=30) | st.sampled_from(TASKS), max_size=5),
    RAW,
    st.dictionaries(st.sampled_from(tip_text.KINDS), RAW, max_size=3),
)


@pytest.mark.parametrize("version", FEATURES)
@settings(max_examples=150)
@given(asked=REQUESTS, profile=PROFILES)
def test_every_number_is_between_minus_one_and_one(
    version: str, asked: ScoreRequest, profile: Profile
) -> None:
    """Whatever is asked, known or missing, the numbers are in [-1, 1], and the request does not fail."""
    made = vectors(version, asked, profile)
    assert made.x.shape == (len(asked.candidates), FEATURES[version].dims)
    assert (np.abs(made.x) <= 1.0).all()
    assert len(made.kinds) == len(asked.candidates)


def batch_of(asked: list[ScoreRequest], profiles: list[Profile]) -> Decisions:
    """The same decisions as arrays."""
    kinds = [[c.kind or tip_text.kind_of(c.text or "") for c in one.candidates] for one in asked]
    names = sorted({kind for row in kinds for kind in row})
    places = np.array([[names.index(kind) for kind in row] for row in kinds])
    suits = suits_of(names)
    singles = [vectors("v1", one, profile).x for one, profile in zip(asked, profiles, strict=True)]
    fields = Tally.__struct_fields__
    pairs = list(zip(kinds, profiles, strict=True))
    return Decisions(
        effort=np.array([[tip_text.effort(c.text or "") for c in one.candidates] for one in asked]),
        overlap=np.array([x[:, 3] for x in singles]),
        hour=np.array([math.nan if one.situation.hour is None else one.situation.hour for one in asked]),
        open_tasks=np.array([len(one.situation.open_tasks) for one in asked]),  # type: ignore[arg-type]
        alike=np.array([[profile.recent.count(kind) for kind in row] for row, profile in pairs]),
        recent=np.array([len(profile.recent) for profile in profiles]),
        suits=formulae.Dial(suits.cos[places], suits.sin[places]),  # type: ignore[index]
        of_kind=SimpleNamespace(
            **{
                name: np.array(
                    [[getattr(p.kinds.get(kind, Tally()), name) for kind in row] for row, p in pairs]
                )
                for name in fields
            }
        ),
        of_all=SimpleNamespace(
            **{name: np.array([getattr(p.total, name) for p in profiles]) for name in fields}
        ),
    )


FLAT = st.fixed_dictionaries(
    {
        "completion_rate": st.floats(0, 1),
        "dismiss_rate": st.floats(0, 1),
        "mean_dwell_s": st.floats(0, 900),
        "preferred_hour": st.floats(0, 23),
        "tip_volume": st.floats(0, 150) | st.integers(0, 150).map(float),
    }
)


@settings(max_examples=60)
@given(
    hours=st.lists(st.none() | st.floats(0, 24), min_size=3, max_size=3),
    profiles=st.lists(PROFILES, min_size=3, max_size=3),
    kinds=st.lists(KINDS, min_size=5, max_size=5),
    flat=st.none() | FLAT,
    by_kind=st.booleans(),
)
def test_many_decisions_at_once_have_the_numbers_of_each(
    hours: list[float | None],
    profiles: list[Profile],
    kinds: list[str],
    flat: dict[str, float] | None,
    *,
    by_kind: bool,
) -> None:
    """`matrix` gives what `vectors` gives, to the last bit: own counters, a prior, or features by kind."""
    tips = [Candidate(id=str(n), kind=kind, text=TIPS[n]) for n, kind in enumerate(kinds)]
    distinct = {candidate.kind or tip_text.kind_of(candidate.text or "") for candidate in tips}
    said: Any = dict.fromkeys(distinct, flat) if flat and by_kind else flat
    asked = [
        request(candidates=tips, context=Context(hour=hour, open_tasks=TASKS[: 1 + n]), profile_features=said)
        for n, hour in enumerate(hours)
    ]
    decisions = batch_of(asked, profiles)
    if flat and by_kind:
        decisions = with_(decisions, by_kind={name: np.full((3, 5), value) for name, value in flat.items()})
    elif flat:
        decisions = with_(decisions, flat={name: np.full(3, value) for name, value in flat.items()})
    for version in FEATURES:
        one_by_one = np.stack([vectors(version, one, p).x for one, p in zip(asked, profiles, strict=True)])
        assert (matrix(version, decisions) == one_by_one).all()


def with_(decisions: Decisions, **changed: Any) -> Decisions:  # noqa: ANN401 - any field
    return Decisions(
        **{
            **{name: getattr(decisions, name) for name in Decisions.__dataclass_fields__},
            **changed,
        }
    )
