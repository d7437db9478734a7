from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tipbench.compare.scores import gather
from tipbench.errors import BadInput


def test_values_of_one_scenario_are_averaged() -> None:
    """A scenario counts once, however many tips or repeats it has."""
    scores = gather([("m", "p", "s1", 1), ("m", "p", "s1", 4), ("m", "p", "s2", 9)])
    assert scores.value.tolist() == [2.5, 9]
    assert scores.judged == (3,)


def test_unjudged_rows_are_counted_and_left_out() -> None:
    """None is no value and no zero."""
    scores = gather([("m", "p", "s", 3), ("m", "p", "s", None), ("n", "p", "s", None)])
    assert scores.value.tolist() == [3]
    assert scores.unjudged == {("m", "p"): 1, ("n", "p"): 1}


def test_numpy_numbers_and_numbered_scenarios_are_fine() -> None:
    """Rows as they come out of a data frame need no conversion."""
    rows: list[Any] = [("m", "p", 1, np.float32(2)), ("m", "p", 2, np.int64(3))]
    scores = gather(rows)
    assert scores.scenarios == ("1", "2")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (("m", "p", "s", math.nan), "row 2 (m, p, s): the value is nan"),
        (("m", "p", "s", -math.inf), "row 2 (m, p, s): the value is -inf"),
        (("m", "p", "s", "4"), "row 2 (m, p, s): the value is '4'"),
        (("m", "p", "s", 1e200), "row 2 (m, p, s): the value 1e+200 is too large"),
        (("m", "p", "s"), "row 2 is not (model, prompt, scenario, value) but ('m', 'p', 's')"),
        (7, "row 2 is not (model, prompt, scenario, value) but 7"),
        ((None, "p", "s", 1), "row 2: the model is None"),
        (("m", "p", math.nan, 1), "row 2: the scenario is nan"),
    ],
)
def test_a_bad_row_is_named(row: Any, words: str) -> None:  # noqa: ANN401 - anything may be in a row
    """What is wrong with a row is said with its number and what it is about."""
    with pytest.raises(BadInput) as caught:
        gather([("m", "p", "s", 1), row])
    assert str(caught.value).startswith(words)
