"""One of the other libraries on the decisions of a file: `other_bandits.py PACKAGE FILE`, told as JSON.

Each is asked in its own way for what we answer: a candidate, by what it knows of the user. It is run by a
Python that need not have tipbench.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any


class Vowpal:
    """SquareCB over the features of the candidates, which is told who the user is."""

    def __init__(self, _arms: int) -> None:
        import vowpalwabbit  # type: ignore[import-not-found]  # noqa: PLC0415 - optional

        self._model = vowpalwabbit.Workspace("--cb_explore_adf --squarecb -q ua --quiet --random_seed 1")
        self._lines: list[str] = []
        self._shares: list[float] = []

    def pick(self, user: int, rows: list[list[float]]) -> int:
        said = [" ".join(f"f{place}:{value:.6g}" for place, value in enumerate(row)) for row in rows]
        self._lines = [f"shared |u user{user}", *(f"|a {line}" for line in said)]
        self._shares = list(self._model.predict(self._lines))
        return self._shares.index(max(self._shares))

    def learn(self, _user: int, _rows: list[list[float]], chosen: int, reward: float) -> None:
        lines = list(self._lines)
        lines[chosen + 1] = f"0:{-reward}:{self._shares[chosen]} {lines[chosen + 1]}"
        self._model.learn(lines)


class MabWiser:
    """LinUCB with an arm for each place: it has no features of candidates, only of the moment."""

    def __init__(self, arms: int) -> None:
        from mabwiser.mab import MAB, LearningPolicy  # type: ignore[import-not-found] # noqa: PLC0415 - optional

        self._model = MAB(list(range(arms)), LearningPolicy.LinUCB(alpha=0.2))
        self._begun = False

    def pick(self, _user: int, rows: list[list[float]]) -> int:
        return int(self._model.predict([rows[0]])) if self._begun else 0

    def learn(self, _user: int, rows: list[list[float]], chosen: int, reward: float) -> None:
        teach = self._model.partial_fit if self._begun else self._model.fit
        teach(decisions=[chosen], rewards=[reward], contexts=[rows[0]])
        self._begun = True


class River:
    """A Bayesian linear regression for each user, asked about each candidate."""

    def __init__(self, _arms: int) -> None:
        self._models: dict[int, Any] = {}

    def pick(self, user: int, rows: list[list[float]]) -> int:
        model = self._of(user)
        expected = [model.predict_one(dict(enumerate(row))) for row in rows]
        return expected.index(max(expected))

    def learn(self, user: int, rows: list[list[float]], chosen: int, reward: float) -> None:
        self._of(user).learn_one(dict(enumerate(rows[chosen])), reward)

    def _of(self, user: int) -> Any:  # noqa: ANN401 - one of river's models
        from river.linear_model import (  # type: ignore[import-not-found] # noqa: PLC0415 - optional
            BayesianLinearRegression,
        )

        if user not in self._models:
            self._models[user] = BayesianLinearRegression()
        return self._models[user]


LEARNERS: dict[str, Any] = {"vowpalwabbit": Vowpal, "mabwiser": MabWiser, "river": River}


def took(package: str, decisions: dict[str, Any]) -> dict[str, Any]:
    """CPU of a decision and of a lesson; the first tenth warms up."""
    many = len(decisions["user"])
    learner = LEARNERS[package](len(decisions["x"][0]))
    score_s, learn_s, warm = 0.0, 0.0, many // 10
    for number, (user, rows) in enumerate(zip(decisions["user"], decisions["x"], strict=True)):
        begun = time.process_time()
        chosen = learner.pick(user, rows)
        scored = time.process_time()
        learner.learn(user, rows, chosen, decisions["reward"][number][chosen])
        if number >= warm:
            score_s, learn_s = score_s + scored - begun, learn_s + time.process_time() - scored
    return {
        "score_us": score_s / (many - warm) * 1e6,
        "learn_us": learn_s / (many - warm) * 1e6,
        "version": importlib.metadata.version(package),
    }


def main(package: str, file: Path) -> None:
    if importlib.util.find_spec(package) is None:
        print(json.dumps({"missing": f"not here; `{sys.executable} -m pip install {package}` installs it"}))
    else:
        print(json.dumps(took(package, json.loads(file.read_text()))))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
