"""The forms in which candidates may come."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from feature_samples import column, lived, request
from tipbench.bandit import features
from tipbench.bandit.asked import Candidate, ScoreRequest
from tipbench.bandit.features import FEATURES, vectors
from tipbench.bandit.profiles import Profile
from tipbench.errors import BadInput


def verbatim(*rows: list[float]) -> ScoreRequest:
    return request(candidates=[Candidate(id=f"t{place}", features=row) for place, row in enumerate(rows)])


@pytest.mark.parametrize("version", FEATURES)
def test_features_are_used_as_they_are(version: str) -> None:
    """Exactly D numbers for each candidate are taken without a change, in and out of [-1, 1]."""
    rows = np.random.default_rng(1).normal(0.0, 100.0, (3, FEATURES[version].dims)).tolist()
    made = vectors(version, verbatim(*rows), lived())
    assert made.x.tolist() == rows
    assert made.kinds == ("other",) * 3


@pytest.mark.parametrize("rows", [[[1.0] * 7, [1.0] * 6], [[], [1.0] * 7], [[1.0] * 12, [1.0] * 12]])
def test_features_of_another_length_are_refused(rows: list[list[float]]) -> None:
    """The sentence names the candidate and the numbers that are expected."""
    with pytest.raises(BadInput, match=r"^candidate 't\d' has \d+ features: v1 takes exactly 7 \(bias, "):
        vectors("v1", verbatim(*rows), Profile())


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e300, -1.1e6])
def test_features_that_are_not_finite_are_refused(bad: float) -> None:
    """NaN, infinities and numbers beyond what can be reckoned with are refused by candidate."""
    with pytest.raises(BadInput, match=r"^candidate 't1' has a feature that is not a finite number"):
        vectors("v1", verbatim([900.0] * 7, [1.0] * 6 + [bad]), Profile())


def test_large_features_are_not_refused() -> None:
    """Numbers up to a million are taken, however many."""
    assert vectors("v1", verbatim(*[[1e6] * 7] * 3), Profile()).x.max() == 1e6


@pytest.mark.parametrize(
    "tips",
    [
        [Candidate(id="a", text="x"), Candidate(id="b", features=[1.0] * 7)],
        [Candidate(id="a", features=[1.0] * 7), Candidate(id="b", text="x")],
        [Candidate(id="a", text="x", features=[1.0] * 7)],
        [Candidate(id="a", text="x"), Candidate(id="b")],
        [Candidate(id="a", kind="focus")],
        [Candidate(id="a", features=[1.0] * 7), Candidate(id="b")],
    ],
)
def test_mixed_forms_are_refused(tips: list[Candidate]) -> None:
    """Texts and features do not mix, and one of them is needed."""
    with pytest.raises(BadInput, match=r"^candidate '[ab]': send a text for every candidate, or features"):
        vectors("v1", request(candidates=tips), Profile())


def test_ids_must_differ() -> None:
    """Two candidates of one id could not be told apart in the reply."""
    with pytest.raises(BadInput, match="same id"):
        vectors(
            "v1", request(candidates=[Candidate(id="a", text="x"), Candidate(id="a", text="y")]), Profile()
        )


def test_requests_from_the_wire_are_understood() -> None:
    """JSON with nulls, whole numbers and odd letters becomes vectors."""
    body = """{"user_id": "../../ü", "context": {"hour": 9, "open_tasks": ["Übung 💡", ""]},
      "candidates": [{"id": "1", "text": "ÜBUNG 💡 for 5 min"}, {"id": "2", "kind": "ﬁt", "text": ""}],
      "profile_features": {"completion_rate": 1, "ﬁt": {"tip_volume": 3, "x": null}}}"""
    made = vectors("v2", msgspec.json.decode(body, type=ScoreRequest), Profile())
    assert column(made, "task_overlap") == [1.0, 0.0]
    assert column(made, "completion_rate") == [1.0, 1.0]
    assert made.kinds == ("other", "ﬁt")


def test_the_limit_is_the_one_of_the_policies() -> None:
    """What the features let through, no policy refuses for its size."""
    assert features.LARGEST == 1e6
