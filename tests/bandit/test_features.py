"""From requests to vectors: what each number is."""

from __future__ import annotations

import math
from typing import Any

import pytest

from feature_samples import column, lived, of, request
from tipbench.bandit import formulae
from tipbench.bandit.asked import Context
from tipbench.bandit.features import FEATURES, vectors
from tipbench.bandit.profiles import Profile, Tally
from tipbench.errors import BadInput


def test_the_sets_have_the_dimensions_they_promise() -> None:
    """v1 has seven, v2 the same seven first and five more."""
    assert FEATURES["v1"].dims == 7
    assert FEATURES["v2"].dims == 12
    assert FEATURES["v2"].names[:7] == FEATURES["v1"].names


@pytest.mark.parametrize("version", FEATURES)
def test_every_dimension_but_the_bias_differs_within_a_decision(version: str) -> None:
    """A value that all candidates share cannot reorder them, so none is such but the bias."""
    made = vectors(version, request(), lived())
    for name in FEATURES[version].names:
        assert (len(set(column(made, name, version))) > 1) is (name != "bias"), name


def test_v2_begins_with_v1() -> None:
    """The first seven numbers of both versions are the same."""
    assert vectors("v2", request(), lived()).x[:, :7].tolist() == vectors("v1", request(), lived()).x.tolist()


def test_rates_shrink_to_the_users_own() -> None:
    """Each rate is (n·rate + 10·user_rate) / (n + 10), n being the tips of that kind that ended."""
    profile = Profile(
        total=Tally(0, 20, 8.0, 5, 4, 1200.0),
        kinds={"focus": Tally(0, 5, 4.0, 1, 1, 120.0)},
    )
    made = vectors("v2", of("focus", "rest"), profile)
    assert column(made, "completion_rate") == [(5 * 0.8 + 10 * 0.4) / 15, 0.4]
    assert column(made, "dismiss_rate") == [(5 * 0.2 + 10 * 0.25) / 15, 0.25]
    assert column(made, "mean_dwell") == pytest.approx([(0.2 + 10 * 0.5) / 11, 0.5])


def test_hours_shrink_too() -> None:
    """The alignment with a kind's mean hour shrinks to the alignment with the user's."""
    turn = 2.0 * math.pi / 24.0
    profile = Profile(
        total=Tally(hour_n=4.0, hour_cos=4.0 * math.cos(20 * turn), hour_sin=4.0 * math.sin(20 * turn)),
        kinds={
            "focus": Tally(hour_n=2.0, hour_cos=2.0 * math.cos(8 * turn), hour_sin=2.0 * math.sin(8 * turn))
        },
    )
    made = vectors("v2", of("focus", "rest", context=Context(hour=9.0)), profile)
    own, user = math.cos(turn), math.cos(11 * turn)
    assert column(made, "hour_alignment") == pytest.approx([(2 * own + 10 * user) / 12, user])


def test_hours_that_cancel_out_point_nowhere() -> None:
    """Completions at opposite hours have no mean hour: the alignment is 0, not noise."""
    profile = Profile().ended("focus", "x", 1.0, "completed", 3.0).ended("focus", "x", 1.0, "completed", 15.0)
    assert column(vectors("v2", of("focus"), profile), "hour_alignment") == [0.0]


@pytest.mark.parametrize(
    ("shown", "volume"), [(0, 0.0), (9, math.log(10) / math.log(101)), (100, 1.0), (5000, 1.0)]
)
def test_volume_grows_with_the_logarithm(shown: int, volume: float) -> None:
    """Tip volume is min(1, ln(1 + n) / ln 101) of the tips of the kind that were shown."""
    profile = Profile(total=Tally(shown=5001), kinds={"focus": Tally(shown=shown)})
    assert column(vectors("v2", of("focus"), profile), "tip_volume") == [volume]


def test_flat_profile_features_are_the_prior() -> None:
    """A flat value takes the place of the user's own overall rate."""
    profile = Profile(total=Tally(0, 20, 8.0, 5), kinds={"focus": Tally(0, 5, 4.0, 1)})
    made = vectors("v2", of("focus", "rest", profile_features={"completion_rate": 0.9}), profile)
    assert column(made, "completion_rate") == [(5 * 0.8 + 10 * 0.9) / 15, 0.9]
    assert column(made, "dismiss_rate") == [(5 * 0.2 + 10 * 0.25) / 15, 0.25]


def test_profile_features_of_a_kind_are_used_as_they_are() -> None:
    """What is sent for a kind is that kind's value; other kinds are not touched."""
    sent = {"mean_dwell_s": 300.0, "completion_rate": 0.25, "preferred_hour": 7.5, "tip_volume": 100.0}
    made = vectors("v2", of("focus", "rest", profile_features={"focus": sent}), lived())
    plain = vectors("v2", of("focus", "rest"), lived())
    assert made.x[1].tolist() == plain.x[1].tolist()
    assert [column(made, name)[0] for name in ("completion_rate", "mean_dwell", "tip_volume")] == [
        0.25,
        0.5,
        1.0,
    ]
    assert column(made, "hour_alignment")[0] == pytest.approx(-1.0)
    assert column(made, "dismiss_rate") == column(plain, "dismiss_rate")


def test_what_is_not_known_is_marked() -> None:
    """Of somebody never seen, every dimension that v2 adds is 0 and marked; so are hour and tasks."""
    made = vectors("v2", of("focus", "rest", context=Context()), Profile())
    assert not made.x[:, 7:].any()
    assert made.absent == ("hour", "open_tasks", *FEATURES["v2"].names[7:])
    assert vectors("v1", request(), Profile()).absent == ()


def test_what_is_known_of_some_kinds_is_marked_for_the_others() -> None:
    """A feature that was sent for one kind only is marked for the kinds that lack it."""
    made = vectors("v2", of("focus", "rest", profile_features={"focus": {"dismiss_rate": 0.1}}), Profile())
    assert "dismiss_rate:rest" in made.absent
    assert "completion_rate" in made.absent
    assert "dismiss_rate" not in made.absent


def test_names_that_are_not_known_are_marked() -> None:
    """An unknown profile feature never fails a request."""
    made = vectors(
        "v2", of("focus", profile_features={"mood": 3.0, "focus": {"zest": 1.0, "none": None}}), lived()
    )
    assert made.absent == ("unknown:mood", "unknown:focus.zest", "unknown:focus.none")


def test_nulls_are_as_good_as_nothing() -> None:
    """Profile features that are null, empty or nested nulls change no number."""
    plain = vectors("v2", of("focus"), lived()).x.tolist()
    empty: list[Any] = [None, {}, {"completion_rate": None}, {"focus": {}}, {"focus": {"dismiss_rate": None}}]
    for said in empty:
        assert vectors("v2", of("focus", profile_features=said), lived()).x.tolist() == plain


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("completion_rate", 1.01),
        ("completion_rate", math.nan),
        ("dismiss_rate", -0.1),
        ("mean_dwell_s", -1.0),
        ("mean_dwell_s", math.inf),
        ("preferred_hour", 24.01),
        ("tip_volume", math.nan),
    ],
)
def test_profile_features_out_of_range_are_refused(name: str, bad: float) -> None:
    """A value that cannot be is refused by its name, flat or within a kind."""
    with pytest.raises(BadInput, match=f"^profile_features.{name} is"):
        vectors("v2", of("focus", profile_features={name: bad}), Profile())
    with pytest.raises(BadInput, match=f"^profile_features.focus.{name} is"):
        vectors("v1", of("focus", profile_features={"focus": {name: bad}}), Profile())


def test_midnight_may_be_told_either_way() -> None:
    """An hour of 24 is one of 0, in the profile as in the context."""
    said: list[Any] = [{"preferred_hour": 0.0}, {"preferred_hour": 24.0}]
    early, late = (vectors("v2", of("focus", profile_features=one), Profile()) for one in said)
    assert late.x == pytest.approx(early.x, abs=1e-12)
    assert late.absent == early.absent


def test_novelty_is_the_share_of_other_kinds() -> None:
    """Of the last tips, the share not of this kind; 1 for a user who saw none."""
    profile = Profile(recent=("focus", "rest", "focus", "admin"))
    assert column(vectors("v1", of("focus", "rest", "x"), profile), "novelty", "v1") == [0.5, 0.75, 1.0]
    assert column(vectors("v1", of("focus"), Profile()), "novelty", "v1") == [1.0]


def test_overlap_is_the_best_share_of_one_task() -> None:
    """A tip that names all words of a task overlaps fully, whatever else it says."""
    overlaps = column(vectors("v1", request(), Profile()), "task_overlap", "v1")
    assert overlaps == [1.0, 0.0, 1.0, 1.0, 0.0]


def test_a_number_of_open_tasks_is_a_load_without_words() -> None:
    """With a mere count, overlap is 0 and the missing texts are marked."""
    made = vectors("v1", request(context=Context(hour=9.0, open_tasks=4)), Profile())
    assert made.absent == ("task_texts",)
    assert not any(column(made, "task_overlap", "v1"))


@pytest.mark.parametrize("kind", formulae.SUITS)
def test_a_kind_fits_its_own_hour_best(kind: str) -> None:
    """The fit is 1 at the hour of the table, −1 twelve hours away, and 0 for a kind that has none."""
    hour = formulae.SUITS[kind]
    now = vectors("v1", of(kind, "of my own", context=Context(hour=hour)), Profile())
    opposite = vectors("v1", of(kind, context=Context(hour=(hour + 12) % 24)), Profile())
    assert column(now, "kind_hour_fit", "v1") == pytest.approx([1.0, 0.0])
    assert column(opposite, "kind_hour_fit", "v1") == pytest.approx([-1.0])


def test_midnight_is_midnight() -> None:
    """Hours 0 and 24 give the same numbers but for rounding."""
    early = vectors("v2", request(context=Context(hour=0.0)), lived()).x
    assert vectors("v2", request(context=Context(hour=24.0)), lived()).x == pytest.approx(early, abs=1e-12)
