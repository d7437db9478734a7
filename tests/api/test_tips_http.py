"""Tips over real HTTP: what an app asks, what it is answered, and what is learned from what it tells."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tip_service import CANDIDATES, ONLY_TIPS, SCORED, SEED, TipService, serving
from tipbench.bandit import draws
from tipbench.bandit.features import FEATURES
from tipbench.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

POLICY = {"egreedy": "egreedy", "egreedy/v2": "egreedy-v2", "linucb": "linucb", "hybrid": "hybrid"}
FEATURE_SET = {"egreedy": "v1", "egreedy/v2": "v2", "linucb": "v1", "hybrid": "v2"}
FIELDS = {
    "decision_id",
    "tip_id",
    "scores",
    "propensities",
    "policy",
    "policy_version",
    "feature_version",
    "explored",
    "absent",
}
HOME = "tips"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tips-http") / HOME


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[TipService]:
    with serving(folder, *ONLY_TIPS) as one:
        yield one


def verbatim(*rows: list[float]) -> list[dict[str, Any]]:
    return [{"id": f"t{place}", "features": row} for place, row in enumerate(rows)]


def unit(place: int, dims: int) -> list[float]:
    return [float(at == place) for at in range(dims)]


@pytest.mark.parametrize("route", SCORED)
def test_every_score_route_answers_with_every_field(service: TipService, route: str) -> None:
    """A tip of the candidates, a score and a probability for each, who decided, and by what."""
    answer = service.score(route, f"fields-{route}")
    said = answer.json()
    ids = [one["id"] for one in CANDIDATES]
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert set(said) == FIELDS
    assert said["tip_id"] in ids
    assert list(said["scores"]) == list(said["propensities"]) == ids
    assert sum(said["propensities"].values()) == pytest.approx(1.0)
    assert min(said["propensities"].values()) > 0
    assert (said["policy"], said["feature_version"]) == (POLICY[route], FEATURE_SET[route])
    assert isinstance(said["explored"], bool)


@pytest.mark.parametrize("route", SCORED)
def test_a_repeated_request_has_the_same_bytes(service: TipService, route: str) -> None:
    """Also after the policy has learned; another user's request with the same id is another decision."""
    user = f"repeats-{route}"
    first = service.score(route, user, request_id="r-1")
    assert service.reward(first).json()["learned"]
    assert service.score(route, user, request_id="r-1").content == first.content
    assert service.score(route, user, request_id="r-1", candidates=CANDIDATES[:2]).content == first.content
    others = [service.score(route, "another", request_id="r-1"), service.score(route, user, request_id="r-2")]
    assert len({one.json()["decision_id"] for one in (first, *others)}) == 3
    counted = service.get(f"/stats/{route}", user_id=user)
    assert (counted["decisions"], counted["rewards"]) == (2, 1)


@pytest.mark.parametrize("route", SCORED)
def test_chance_is_replayed_from_the_seed(service: TipService, route: str) -> None:
    """The draw is a keyed hash of the server's seed and the request's id; both sides of it occur."""
    seed, user = draws.seed_of(SEED), f"replays-{route}"
    service.reward(service.score(route, user, request_id="first"))
    said = [service.score(route, user, request_id=f"q{number}").json() for number in range(60)]
    for number, one in enumerate(said):
        shares = list(one["propensities"].values())
        place = draws.pick_one(shares, draws.uniform(seed, f"q{number}"))
        assert one["tip_id"] == list(one["propensities"])[place]
        assert one["explored"] == (one["scores"][one["tip_id"]] < max(one["scores"].values()))
    assert one["decision_id"] == draws.decision_id(seed, policy=POLICY[route], user_id=user, request_id="q59")
    assert service.get(f"/stats/{route}", user_id=user)["explored"] == sum(one["explored"] for one in said)


@pytest.mark.parametrize(
    ("event", "worth"),
    [
        ({"event": "completed"}, 1.0),
        ({"event": "dismissed"}, 0.0),
        ({"event": "dismissed", "reward": 0.25}, 0.25),
        ({"event": "saved", "reward": 0.5, "dwell_s": 30}, 0.5),
    ],
)
def test_the_first_terminal_event_teaches_and_no_other(
    service: TipService, event: dict[str, Any], worth: float
) -> None:
    """Repeats and later events are 200 and say that they were ignored; the mean reward is its worth."""
    user = f"events-{json.dumps(event)}"
    made = service.score("egreedy", user)
    first = service.reward(made, "/reward/egreedy", **event)
    assert (first.status_code, first.json()["learned"], first.json()["ignored"]) == (200, True, False)
    later: list[dict[str, Any]] = [
        event,
        {"reward_id": "r2", "event": "completed"},
        {"reward_id": "r3", "event": "dismissed"},
    ]
    for one in later:
        again = service.reward(made, **one)
        assert again.status_code == 200
        assert (again.json()["learned"], again.json()["ignored"]) == (False, True)
        assert again.json()["reason"]
    counted = service.get("/stats/egreedy", user_id=user)
    assert (counted["rewards"], counted["mean_reward"]) == (1, worth)


def test_dwell_feeds_the_profile_and_never_trains(service: TipService) -> None:
    """No weight comes of it; the next decision knows of it, and the first end still counts."""
    made = service.score("egreedy/v2", "dweller")
    assert "mean_dwell" in made.json()["absent"]
    said = service.reward(made, event="dwell", dwell_s=120, reward_id="d").json()
    assert (said["learned"], said["ignored"]) == (False, False)
    assert service.get("/stats/egreedy/v2", user_id="dweller")["weights"] is None
    assert "mean_dwell" not in service.score("egreedy/v2", "dweller").json()["absent"]
    assert service.reward(made).json()["learned"]
    assert service.get("/stats/egreedy/v2", user_id="dweller")["rewards"] == 1


def test_no_event_is_missing_and_never_nought(service: TipService) -> None:
    """Decisions without an event have no mean reward."""
    for _ in range(3):
        service.score("linucb", "silent")
    counted = service.get("/stats/linucb", user_id="silent")
    assert (counted["decisions"], counted["rewards"], counted["mean_reward"]) == (3, 0, None)


def test_another_policys_reward_is_a_conflict(service: TipService) -> None:
    """409 at every other route, and nothing learned; then at its own, or where any may be told, 200."""
    for route in SCORED:
        made = service.score(route, "crossed")
        for other in (one for one in SCORED if one != route):
            refused = service.reward(made, f"/reward/{other}")
            assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
        assert service.reward(made, f"/reward/{route}").json()["learned"]


@pytest.mark.parametrize("path", ["/score/nope", "/score/egreedy/", "/reward/nope", "/score", "/recommend/x"])
def test_an_unknown_route_is_answered_with_those_that_there_are(service: TipService, path: str) -> None:
    """404, and what could be meant."""
    answer = service.client.post(path, json={})
    assert answer.status_code == 404
    message = answer.json()["error"]["message"]
    assert message.startswith(f"there is no {path}; ")
    assert "/score/egreedy/v2" in message


@pytest.mark.parametrize("text", ["Ah, take a walk", "anhour", "Tenmin of nothing", "\u00bdh", "-h"])
def test_any_words_can_be_scored(service: TipService, text: str) -> None:
    """What merely looks like a duration is no reason to fail, in a tip or in a task."""
    body = {
        "user_id": "wordy",
        "context": {"hour": 8.5, "open_tasks": [text]},
        "candidates": [{"id": "a", "text": text}, {"id": "b", "text": "Have a rest"}],
    }
    answers = [service.client.post(path, json=body) for path in ("/score/egreedy", "/recommend")]
    assert [answer.status_code for answer in answers] == [200, 200]


def test_an_unknown_decision_is_not_found(service: TipService) -> None:
    """404 wherever it is told."""
    for path in ("/reward", *(f"/reward/{route}" for route in SCORED)):
        assert service.reward("nobody-made-this", path).status_code == 404


def test_an_expired_decision_is_a_conflict(service: TipService, folder: Path) -> None:
    """409 once a decision is older than a week; nothing is learned from it."""
    made = service.score("egreedy", "late").json()["decision_id"]
    with sqlite3.connect(folder / "tips.db", timeout=30) as db:
        db.execute("UPDATE log SET ms = ms - 8 * 86400000 WHERE decision_id = ?", (made,))
    db.close()
    refused = service.reward(made)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
    assert "expired" in refused.json()["error"]["message"]
    assert service.get("/stats/egreedy", user_id="late")["rewards"] == 0


@pytest.mark.parametrize("route", SCORED)
def test_statistics_name_every_weight(service: TipService, route: str) -> None:
    """Per user and overall: counts, shares, agreement of shadows, and weights by name."""
    user = f"counted-{route}"
    for number in range(4):
        service.reward(service.score(route, user, request_id=f"s{number}"), reward=number / 4)
    mine, all_ = service.get(f"/stats/{route}", user_id=user), service.get(f"/stats/{route}")
    every = service.get("/stats", user_id=user)
    assert (every["user_id"], every["policies"][mine["policy"]]["rewards"]) == (user, mine["rewards"])
    assert every["policies"][mine["policy"]]["weights"] == mine["weights"]
    names = FEATURES[FEATURE_SET[route]].names
    assert (mine["decisions"], mine["rewards"], mine["mean_reward"]) == (4, 4, pytest.approx(0.375))
    assert mine["exploration_share"] == mine["explored"] / 4
    assert all_["decisions"] >= 4
    assert set(all_) >= {"decisions", "rewards", "mean_reward", "exploration_share", "weights", "shadows"}
    learned = mine["pooled_weights"] if route == "hybrid" else mine["weights"]
    assert tuple(learned) == names
    assert any(learned.values())
    assert set(mine["weights"]) <= set(names)
    shadow = mine["shadows"]["egreedy-v2-shadow"]
    assert (shadow["enabled"], shadow["agreement"], shadow["dropped"]) == (False, None, 0)


def test_what_was_learned_moves_the_scores(service: TipService) -> None:
    """With one feature for each tip, the completed one comes out above the dismissed one, on every route."""
    for route in SCORED:
        dims, user = FEATURES[FEATURE_SET[route]].dims, f"moves-{route}"
        tips = verbatim(unit(1, dims), unit(2, dims))
        for number in range(8):
            for place, event in ((0, "completed"), (1, "dismissed")):
                made = service.score(route, user, candidates=[tips[place]], request_id=f"{place}-{number}")
                assert service.reward(made, event=event).json()["learned"]
        scores = service.score(route, user, candidates=tips).json()["scores"]
        assert scores["t0"] > scores["t1"] + 0.2


def test_features_are_used_as_they_are_sent(service: TipService) -> None:
    """What the log keeps of a decision is the vector that was sent, with the version of its features."""
    rows = [[1.0, -0.5, 0.25, 0.125, 0.0, 1.0, -1.0], [1.0, 0.5, 3.5, -2.0, 0.0, 0.0, 1e6]]
    made = service.score("linucb", "verbatim", candidates=verbatim(*rows)).json()
    assert (made["feature_version"], made["absent"]) == ("v1", [])
    wrong = [
        verbatim(*(row[:-1] for row in rows)),
        verbatim(*(row * 2 for row in rows)),
        [*verbatim(*rows), CANDIDATES[0]],
    ]
    for candidates in wrong:
        assert service.score("linucb", "verbatim", candidates=candidates).status_code == 422
    assert service.score("egreedy/v2", "verbatim", candidates=verbatim(*rows)).status_code == 422


def test_profile_features_may_be_flat_or_by_kind_or_absent(service: TipService) -> None:
    """Each form is taken; what is missing or not known is marked in the decision and fails nothing."""
    flat: dict[str, Any] = {
        "completion_rate": 0.5,
        "dismiss_rate": 0.2,
        "mean_dwell_s": 60,
        "preferred_hour": 8,
        "tip_volume": 3,
    }
    by_kind = dict.fromkeys(("focus", "break", "movement", "admin"), flat)
    absent = {
        "nothing": service.score("egreedy/v2", "p0"),
        "flat": service.score("egreedy/v2", "p1", profile_features=flat),
        "kinds": service.score("egreedy/v2", "p2", profile_features=by_kind),
        "nulls": service.score("egreedy/v2", "p3", profile_features=dict.fromkeys(flat)),
        "odd": service.score("egreedy/v2", "p4", profile_features={"mood": 3}),
    }
    assert {one.status_code for one in absent.values()} == {200}
    marks = {name: one.json()["absent"] for name, one in absent.items()}
    assert marks["nothing"] == marks["nulls"] == list(FEATURES["v2"].names[7:])
    assert marks["flat"] == marks["kinds"] == []
    assert "unknown:mood" in marks["odd"]
    assert service.score("egreedy/v2", "p5", context={}).status_code == 200
    for bad in ({"completion_rate": 1.5}, {"focus": {"dismiss_rate": -1}}, [1], {"mean_dwell_s": "long"}):
        assert service.score("egreedy/v2", "p6", profile_features=bad).status_code == 422


def test_a_recommendation_has_the_tip_itself(service: TipService) -> None:
    """Of the candidates that the app sends, by the active policy, with all that a score has."""
    made = service.recommend("app", request_id="one")
    said = made.json()
    assert set(said) == FIELDS | {"tip", "source"}
    assert said["tip"] in CANDIDATES
    assert (said["tip"]["id"], said["source"], said["policy"]) == (said["tip_id"], "given", "egreedy")
    assert service.recommend("app", request_id="one").content == made.content
    assert service.reward(made, "/reward/egreedy").json()["learned"]


@pytest.mark.parametrize("route", ["", *(f"/{route}" for route in SCORED)])
def test_statistics_of_an_unknown_user_are_not_found(service: TipService, route: str) -> None:
    """404 and the sentence of `bandit stats --user`; a user with one decision is known, after a reset too."""
    refused = service.client.get(f"/stats{route}", params={"user_id": "nobody"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "not_found")
    assert "no such user 'nobody'" in refused.json()["error"]["message"]
    user = f"seen{route}"
    service.score("egreedy", user)
    assert service.get(f"/stats{route}", user_id=user)["user_id"] == user
    service.post("/reset", {"user_id": user})
    assert service.get(f"/stats{route}", user_id=user)["user_id"] == user


def test_nothing_shipped_says_what_to_do(service: TipService) -> None:
    """Without candidates there is nothing to recommend yet."""
    refused = service.post("/recommend", {"user_id": "app"})
    assert refused.status_code == 404
    assert "tipbench ship" in refused.json()["error"]["message"]


def test_a_reset_forgets_one_user_with_every_policy(service: TipService, folder: Path) -> None:
    """v2 too; it is audited with the address; rewards for what was served before are ignored; others stay."""
    kept = service.score("egreedy/v2", "stays")
    service.reward(kept)
    before = {route: service.score(route, "goes", request_id="b") for route in SCORED}
    late = {route: service.score(route, "goes", request_id="late") for route in SCORED}
    for made in before.values():
        assert service.reward(made).json()["learned"]
    assert service.post("/reset", {"user_id": "goes"}).json() == {"reset": "goes"}
    for route in SCORED:
        counted = service.get(f"/stats/{route}", user_id="goes")
        assert (counted["decisions"], counted["rewards"], counted["weights"]) == (0, 0, None)
        ignored = service.reward(late[route]).json()
        assert (ignored["learned"], ignored["ignored"]) == (False, True)
        assert "reset" in ignored["reason"]
    assert "completion_rate" in service.score("egreedy/v2", "goes").json()["absent"]
    assert service.get("/stats/egreedy/v2", user_id="stays")["rewards"] == 1
    (entry,) = [one for one in audit(folder) if one.target == "goes"]
    assert (entry.action, entry.ip) == ("tips.reset", "127.0.0.1")


def audit(folder: Path) -> list[Any]:
    store = Store(folder / "service.db")
    try:
        return list(store.audit.page())
    finally:
        store.close()


@pytest.mark.parametrize(
    "body", [{}, {"user_id": "x", "everybody": True}, {"user_id": None}, {"user_id": ""}, {"who": "x"}, []]
)
def test_a_reset_must_say_whom(service: TipService, body: object) -> None:
    """Nobody is forgotten by mistake: 422."""
    assert service.post("/reset", body).status_code == 422


def test_alone_it_serves_tips_and_nothing_else(service: TipService) -> None:
    """No page, no bench, no login; health, statistics and signals are there."""
    assert service.get("/health") == {"status": "ok"}
    for path in (
        "/",
        "/login",
        "/docs",
        "/openapi.json",
        "/api/me",
        "/api/bench/experiments",
        "/experiments",
        "/static/app.css",
    ):
        assert service.client.get(path).status_code == 404, path
    assert set(service.get("/stats")["policies"]) >= set(POLICY.values())


def test_a_policy_that_is_not_there_is_named(service: TipService) -> None:
    """404 with those that are."""
    assert service.client.get("/stats/nope").status_code == 404
    assert service.score("nope").status_code == 404
    assert "egreedy/v2" in service.client.get("/stats/nope").json()["error"]["message"]


def test_concurrent_rewards_of_one_user_lose_nothing(service: TipService) -> None:
    """Sixty at a time, each sent twice: each counts once."""
    import asyncio

    made = [service.score("egreedy", "busy", request_id=f"c{number}") for number in range(60)]

    async def tell_all() -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=service.url, trust_env=False, timeout=60) as client:
            bodies = [
                {"decision_id": one.json()["decision_id"], "reward_id": "r", "event": "completed"}
                for one in made * 2
            ]
            return list(await asyncio.gather(*(client.post("/reward", json=body) for body in bodies)))

    answers = asyncio.run(tell_all())
    assert [one.status_code for one in answers] == [200] * 120
    assert sum(one.json()["learned"] for one in answers) == 60
    assert service.get("/stats/egreedy", user_id="busy")["rewards"] == 60


def test_a_reset_of_everybody_forgets_what_is_shared(service: TipService, folder: Path) -> None:
    """What the hybrid has learned from all is gone too, and decisions of before teach nobody."""
    late = service.score("hybrid", "one of all")
    service.reward(service.score("hybrid", "another of all"))
    assert service.get("/stats/hybrid")["pooled_weights"] is not None
    assert service.post("/reset", {"everybody": True}).json() == {"reset": "everybody"}
    assert service.get("/stats/hybrid")["pooled_weights"] is None
    assert service.get("/stats/hybrid")["weights"] is None
    assert service.reward(late).json()["ignored"]
    assert service.reward(service.score("hybrid", "one of all")).json()["learned"]
    assert [one.ip for one in audit(folder) if one.target == "everybody"] == ["127.0.0.1"]
