"""Keys of the bodies that the serving routes take: an unknown key is refused by its name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tip_service import CANDIDATES, ONLY_TIPS, SCORED, TipService, asked, raw, serving, told

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTEXT = {"hour": 9.5, "weekday": 2, "open_tasks": ["write"]}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TipService]:
    with serving(tmp_path_factory.mktemp("keys") / "home", *ONLY_TIPS) as one:
        yield one


def candidate(**more: object) -> dict[str, Any]:
    return {"candidates": [CANDIDATES[0], {**CANDIDATES[1], **more}]}


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "misspelt": ({"contxt": CONTEXT}, "contxt", "did you mean 'context'?"),
    "in capitals": ({"User_Id": "x"}, "User_Id", "did you mean 'user_id'?"),
    "near nothing": ({"zzz": 1}, "zzz", "the keys here are user_id, "),
    "empty": ({"": 1}, "", "the keys here are user_id, "),
    "of the context": ({"scenario": "s1"}, "scenario", "it belongs in 'context'"),
    "a number, of the context": ({"hour": 9.5}, "hour", "it belongs in 'context'"),
    "of the profile": ({"tip_volume": 3}, "tip_volume", "it belongs in 'profile_features'"),
    "misspelt in context": ({"context": {"persna": "Maya"}}, "context.persna", "did you mean 'persona'?"),
    "of the body": ({"context": {"request_id": "r"}}, "context.request_id", "it belongs at the top level"),
    "in a candidate": (candidate(txt="x"), "candidates[1].txt", "did you mean 'text'?"),
    "in the profile": (
        {"profile_features": {"completion_rat": 0.5}},
        "profile_features.completion_rat",
        "did you mean 'completion_rate'?",
    ),
    "in a kind of the profile": (
        {"profile_features": {"focus": {"mean_dwell": 60}}},
        "profile_features.focus.mean_dwell",
        "did you mean 'mean_dwell_s'?",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("path", ["/recommend", "/score/egreedy/v2", "/score/random"])
def test_an_unknown_key_is_refused_with_its_place_and_a_suggestion(
    service: TipService, path: str, case: str
) -> None:
    """422 names the key, and the key that was probably meant."""
    body, name, hint = REFUSED[case]
    answer = service.post(path, asked("anna", **body))
    problem = answer.json()["error"]
    assert (answer.status_code, problem["code"]) == (422, "bad_input")
    assert f"{name}: unknown key; " in problem["message"]
    assert hint in problem["message"]


def test_a_refused_key_is_a_field_of_the_error(service: TipService) -> None:
    """Programs find the key in `fields`; a long key is cut."""
    fields = service.post("/recommend", asked(contxt={}, request_id="r")).json()["error"]["fields"]
    assert fields == {"contxt": "unknown key; did you mean 'context'?"}
    long = service.post("/recommend", {**asked(), "k" * 100_000: 1}).json()["error"]["fields"]
    assert [*long] == ["k" * 100]


def test_a_key_may_hold_anything(service: TipService) -> None:
    """A key that looks like the decoder's own message is refused like any other."""
    for key in ("a` - at `$.context", "x\ny", "\u202e", "🙂", "`"):
        status, found = raw(service, "/recommend", json.dumps({**asked(), key: 1}).encode())
        assert (status, found["error"]["code"]) == (422, "bad_input"), key
        assert "unknown key" in found["error"]["message"]


@pytest.mark.parametrize("route", SCORED)
def test_an_unknown_key_in_a_reward_changes_nothing(service: TipService, route: str) -> None:
    """422 names the key; the correct reward is learned afterwards."""
    made = service.score(route, f"reward-{route}")
    for path in ("/reward", f"/reward/{route}"):
        refused = service.reward(made, path, evnt="completed")
        assert refused.status_code == 422
        assert "evnt: unknown key; did you mean 'event'?" in refused.json()["error"]["message"]
    assert service.reward(made).json()["learned"]


@pytest.mark.parametrize("profile", [None, {}, {"completion_rate": None}, {"focus": {"tip_volume": 3}}])
def test_a_reward_takes_profile_features(service: TipService, profile: dict[str, Any] | None) -> None:
    """Profile features may stand in a reward, be null, or be missing, as in a score."""
    made = service.score("egreedy/v2", f"profile-{profile}", profile_features=profile)
    assert service.reward(made, "/reward/egreedy/v2", profile_features=profile).json()["learned"]


def test_a_null_context_is_a_missing_context(service: TipService) -> None:
    """The routes answer 200, and the decision marks the same features as absent."""
    contexts: list[dict[str, Any]] = [{}, {"context": None}, {"context": {}}]
    bodies = [
        {"user_id": f"user {number}", "candidates": CANDIDATES, **context}
        for number, context in enumerate(contexts)
    ]
    for path in ("/recommend", "/score/egreedy/v2", "/score/hybrid"):
        answers = [service.post(path, body) for body in bodies]
        assert [answer.status_code for answer in answers] == [200, 200, 200]
        assert len({tuple(answer.json()["absent"]) for answer in answers}) == 1
        assert "hour" in answers[0].json()["absent"]
    refused = service.post("/recommend", {"user_id": "nothing-shipped", "context": None})
    assert (refused.status_code, "tipbench ship" in refused.text) == (404, True)


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/json"])
def test_a_reset_is_read_whatever_its_content_type_is(service: TipService, kind: str) -> None:
    """A body without a JSON content type is read as JSON, as a reward is."""
    user = f"reset-{kind}"
    assert service.reward(service.score("egreedy", user)).json()["learned"]
    lines = (f"Content-Type: {kind}",) if kind else ()
    status, found = raw(service, "/reset", json.dumps({"user_id": user}).encode(), *lines)
    assert (status, found) == (200, {"reset": user})
    assert service.get("/stats/egreedy", user_id=user)["rewards"] == 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"usr_id": "x"}', "usr_id: unknown key; did you mean 'user_id'?"),
        (b'{"user_id": "x", "all": true}', "all: unknown key; the keys here are user_id, everybody"),
        (b'{"user_id": 7}', "user_id: Expected"),
        (b"user_id=x", "body: JSON is malformed"),
        (b"", "body: "),
        (b"{}", 'user_id: name one user, or send "everybody": true'),
    ],
)
def test_a_reset_that_cannot_be_used_is_refused(service: TipService, body: bytes, message: str) -> None:
    """422 names the key, and nobody is forgotten."""
    service.reward(service.score("egreedy", "x"))
    before = service.get("/stats/egreedy", user_id="x")
    for kind in ("application/json", "text/plain"):
        status, found = raw(service, "/reset", body, f"Content-Type: {kind}")
        assert status == 422
        assert message in found["error"]["message"]
    assert service.get("/stats/egreedy", user_id="x") == before


def test_a_large_reset_is_refused(service: TipService) -> None:
    """413 beyond 1 MB, as for a reward."""
    for path, body in (("/reset", {"user_id": "x"}), ("/reward", told("none"))):
        large = json.dumps(body).encode() + b" " * 1_000_000
        assert raw(service, path, large)[0] == 413
