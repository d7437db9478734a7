"""Every route, asked by everybody: who may call it, and what those are told who may not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from api_world import EXPERIMENT, SECRET, Api
from tipbench import api as the_api
from tipbench.workflows.access import COOKIE

if TYPE_CHECKING:
    from collections.abc import Iterator

EVERYBODY = ("nobody", "program", "ann", "root")
# By route: who may call it. A route that is not here fails the first test.
MAY: dict[tuple[str, str], tuple[str, ...]] = {
    ("GET", "/health"): EVERYBODY,
    ("GET", "/api/health"): ("root",),
    ("GET", "/api/me"): ("program", "ann", "root"),
    ("GET", "/api/tokens"): ("root",),
    ("POST", "/api/tokens"): ("root",),
    ("DELETE", "/api/tokens/{name}"): ("root",),
    ("GET", "/api/audit"): ("root",),
    ("GET", "/api/bench/options"): ("root",),
    ("GET", "/api/bench/models"): ("root",),
    ("POST", "/api/bench/estimate"): ("root",),
    ("POST", "/api/bench/run"): ("root",),
    ("GET", "/api/bench/experiments"): ("root",),
    ("GET", "/api/bench/runs/{experiment}"): ("root",),
    ("GET", "/api/bench/runs/{experiment}/{run}"): ("root",),
    ("GET", "/api/bench/leaderboard/{experiment}"): ("root",),
    ("GET", "/api/jobs"): ("root",),
    ("GET", "/api/jobs/{job_id}"): ("root",),
    ("POST", "/api/jobs/{job_id}/cancel"): ("root",),
    ("POST", "/api/jobs/{job_id}/resume"): ("root",),
    ("GET", "/api/jobs/{job_id}/log"): ("root",),
    ("GET", "/api/jobs/{job_id}/events"): ("root",),
    ("GET", "/api/judge"): ("ann", "root"),
    ("GET", "/api/judge/{experiment}/status"): ("ann", "root"),
    ("GET", "/api/judge/{experiment}/batch"): ("ann", "root"),
    ("GET", "/api/judge/{experiment}/export"): ("ann", "root"),
    ("POST", "/api/judge/{experiment}/auto"): ("root",),
    ("POST", "/api/judge/apply"): ("ann", "root"),
    ("PUT", "/api/judge/batches/{batch}/items/{item}"): ("ann", "root"),
    ("POST", "/api/judge/batches/{batch}/submit"): ("ann", "root"),
    ("GET", "/api/hooks/deliveries"): ("root",),
    # Open to whoever has the secret: 401 without a signature, whatever the token.
    ("POST", "/api/hooks/batch"): (),
}


def declared() -> Iterator[tuple[str, str]]:
    for router in the_api.routers():
        for route in router.routes:
            for method in sorted(getattr(route, "methods", None) or {"?"}):
                yield method, str(getattr(route, "path", route))


def filled(path: str) -> str:
    """The path with something in its places: an experiment that is there, and other things that are not."""
    values = {"{experiment}": EXPERIMENT, "{run}": "nope", "{job_id}": "nope", "{name}": "nope"}
    for place, value in (values | {"{batch}": "nope", "{item}": "nope"}).items():
        path = path.replace(place, value)
    return path


def test_every_route_says_who_may_call_it() -> None:
    """A new route without an entry in the table fails here."""
    assert set(declared()) == set(MAY)


def test_the_application_has_no_other_programs_route(api: Api) -> None:
    """What the application documents is what the routers have."""
    paths: dict[str, dict[str, Any]] = api.app.openapi()["paths"]
    assert {(method.upper(), path) for path, held in paths.items() for method in held} == set(MAY)


@pytest.mark.parametrize("caller", EVERYBODY)
def test_nobody_reaches_what_is_not_for_them(api: Api, caller: str) -> None:
    """401 without a token, 403 with one of another role, anything else for who may; one shape for all."""
    client = api.caller(None if caller == "nobody" else caller)
    for (method, path), may in MAY.items():
        if caller in may and path in {
            "/api/bench/models",
            "/api/bench/estimate",
            "/api/bench/run",
            "/api/health",
        }:
            continue  # slow, and tested by themselves
        answer = client.request(method, filled(path))
        if caller in may:
            assert answer.status_code not in {401, 403}, (method, path)
            continue
        signed = path == "/api/hooks/batch"
        assert answer.status_code == (401 if caller == "nobody" or signed else 403), (method, path)
        assert set(answer.json()) == {"error"}
        assert set(answer.json()["error"]) == {"code", "message"}
        if answer.status_code == 401:
            assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "header", ["Bearer", "Bearer ", "Bearer tb_admin_x", "Basic cm9vdA==", "Bearer \xff", "\x01"]
)
def test_a_token_that_is_none_opens_nothing(api: Api, header: str) -> None:
    """401, whatever stands in the header."""
    answer = api.nobody.get("/api/me", headers={b"Authorization": header.encode("latin-1")})
    assert answer.status_code == 401


def test_a_revoked_token_opens_nothing_at_once(api: Api) -> None:
    """The token, and the cookie that it was traded for."""
    _, cookie = api.service.access.log_in(api.tokens["ann"], address="", now_ms=2**41)
    browser = {"Cookie": f"{COOKIE}={cookie}"}
    assert api.nobody.get("/api/me", headers=browser).json()["via"] == "cookie"
    assert api.admin.delete("/api/tokens/ann").json()["revoked_ms"]
    assert api.ann.get("/api/me").status_code == 401
    assert api.nobody.get("/api/me", headers=browser).status_code == 401
    assert api.admin.delete("/api/tokens/ann").status_code == 404


def test_a_cookie_changes_nothing_from_another_site(api: Api) -> None:
    """A page of somebody else's cannot make a browser change anything; our own can."""
    _, cookie = api.service.access.log_in(api.tokens["root"], address="", now_ms=2**41)
    browser = {"Cookie": f"{COOKIE}={cookie}"}
    body = {"name": "eve", "role": "admin"}
    for strange in (
        {},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        refused = api.nobody.post("/api/tokens", json=body, headers=browser | strange)
        assert refused.status_code == 403, strange
    ours = browser | {"Origin": "http://localhost"}
    assert api.nobody.post("/api/tokens", json=body, headers=ours).status_code == 201


def test_a_new_token_is_shown_once_and_works(api: Api) -> None:
    """It is in the answer, in no list and in no log; its making is audited."""
    made = api.admin.post("/api/tokens", json={"name": "eva", "role": "judge"})
    token = made.json()["token"]
    assert made.headers["cache-control"] == "no-store"
    assert api.nobody.get("/api/me", headers={"Authorization": f"Bearer {token}"}).json()["name"] == "eva"
    listed, audit = api.admin.get("/api/tokens"), api.admin.get("/api/audit")
    assert token not in listed.text + audit.text
    entry = audit.json()[0]
    assert (entry["who"], entry["action"], entry["target"]) == ("root", "token.create", "eva")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "", "role": "judge"}, "name"),
        ({"name": "ann", "role": "judge"}, "name"),
        ({"name": "x\x00y", "role": "judge"}, "name"),
        ({"name": 5, "role": "judge"}, "name"),
        ({"name": "x", "role": "king"}, "role"),
        ({"name": "x"}, "role"),
        ({"name": "x", "role": "judge", "more": 1}, "more"),
    ],
)
def test_a_token_that_cannot_be_made_names_the_field(api: Api, body: dict[str, Any], field: str) -> None:
    """422 with a message for the field, and no token."""
    refused = api.admin.post("/api/tokens", json=body)
    assert refused.status_code == 422
    assert field in refused.json()["error"]["fields"]
    assert len(api.admin.get("/api/tokens").json()) == 4


def test_no_answer_holds_a_secret(api: Api) -> None:
    """Neither the webhook's secret nor any token is in what an admin can ask for."""
    for (method, path), may in MAY.items():
        if method == "GET" and "root" in may and path not in {"/api/bench/models", "/api/health"}:
            text = api.admin.get(filled(path)).text
            assert SECRET not in text
            assert not [name for name, token in api.tokens.items() if token in text]


def test_audit_is_read_a_page_at_a_time(api: Api) -> None:
    """The newest first; `before` goes on where the last page ended."""
    for number in range(5):
        api.admin.post("/api/tokens", json={"name": f"n{number}", "role": "service"})
    first = api.admin.get("/api/audit?limit=2").json()
    assert [one["target"] for one in first] == ["n4", "n3"]
    rest = api.admin.get(f"/api/audit?before={first[-1]['entry_id']}").json()
    assert [one["target"] for one in rest] == ["n2", "n1", "n0"]
