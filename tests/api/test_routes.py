"""Every route, asked by everybody: who may call it, and what those are told who may not."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from api_world import EXPERIMENT, SECRET, Api
from tipbench import api as the_api
from tipbench.service import create_app
from tipbench.workflows.access import COOKIE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fastapi import APIRouter

EVERYBODY = ("nobody", "program", "ann", "root")
# By route: who may call it. A route that is not here fails the first test.
MAY: dict[tuple[str, str], tuple[str, ...]] = {
    ("GET", "/health"): EVERYBODY,
    ("GET", "/openapi.json"): ("root",),
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
    ("POST", "/api/judge/batches/{batch}/release"): ("root",),
    ("GET", "/api/hooks/deliveries"): ("root",),
    ("GET", "/api/policies"): ("root",),
    ("POST", "/api/policies/promote"): ("root",),
    ("POST", "/api/policies/rollback"): ("root",),
    ("GET", "/api/gates"): ("root",),
    ("GET", "/api/gates/{gate_id}"): ("root",),
    ("POST", "/api/gates"): ("root",),
    ("POST", "/api/simulations"): ("root",),
    # On this machine nobody needs a token for these; a token of another role is refused all the same.
    ("GET", "/stats"): ("nobody", "program", "root"),
    ("GET", "/stats/{policy}"): ("nobody", "program", "root"),
    ("POST", "/reset"): ("nobody", "program", "root"),
    ("GET", "/signals"): ("nobody", "program", "root"),
    ("POST", "/recommend"): ("nobody", "program", "root"),
    ("POST", "/reward"): ("nobody", "program", "root"),
    **{
        ("POST", f"/{verb}/{route}"): ("nobody", "program", "root")
        for verb in ("score", "reward")
        for route in ("egreedy", "egreedy/v2", "linucb", "hybrid", "thompson", "random")
    },
    # Open to whoever has the secret: 401 without a signature, whatever the token.
    ("POST", "/api/hooks/batch"): (),
}
# Those that are there only where the service was started with an Airflow.
MAY_WITH_AIRFLOW: dict[tuple[str, str], tuple[str, ...]] = {
    ("POST", "/api/bench/run-on-airflow"): ("root",),
}


def declared(routers: Sequence[APIRouter]) -> Iterator[tuple[str, str]]:
    for router in routers:
        for route in router.routes:
            for method in sorted(getattr(route, "methods", None) or {"?"}):
                yield method, str(getattr(route, "path_format", route))


def filled(path: str) -> str:
    """The path with something in its places: an experiment that is there, and other things that are not."""
    values = {"{experiment}": EXPERIMENT, "{run}": "nope", "{job_id}": "nope", "{name}": "nope"}
    for place, value in (values | {"{batch}": "nope", "{item}": "nope", "{gate_id}": "nope"}).items():
        path = path.replace(place, value)
    return path


def test_every_route_says_who_may_call_it() -> None:
    """A new route without an entry in the table fails here."""
    tips = {("POST", path) for path in the_api.TIP_PATHS}
    assert set(declared(the_api.routers())) | tips == set(MAY)
    assert set(declared(the_api.airflow_routers())) == set(MAY_WITH_AIRFLOW)


def test_the_application_has_no_other_programs_route(api: Api) -> None:
    """What the application documents is what the routers have, but for the document itself."""
    paths: dict[str, dict[str, Any]] = api.admin.get("/openapi.json").json()["paths"]
    told = {(method.upper(), path) for path, held in paths.items() for method in held}
    assert told == set(MAY) - {("GET", "/openapi.json")}


def test_routes_of_airflow_are_there_only_with_one(api: Api) -> None:
    """Without one they are not described and not found; with one they are for the same people as others."""
    api.service.config = replace(api.service.config, airflow_url="http://127.0.0.1:1")
    with_one = replace(api, app=create_app(api.service))
    paths = with_one.admin.get("/openapi.json").json()["paths"]
    for (method, path), may in MAY_WITH_AIRFLOW.items():
        assert method.lower() in paths[path]
        assert api.admin.request(method, path).status_code in {404, 405}
        for caller in EVERYBODY:
            answer = with_one.caller(None if caller == "nobody" else caller).request(method, path)
            refused = 401 if caller == "nobody" else 403
            assert answer.status_code == (422 if caller in may else refused), (caller, path)


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
            "/signals",
        }:
            continue  # slow or without an end, and tested by themselves
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


@pytest.mark.parametrize(
    "strange",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"},
     {"Sec-Fetch-Site": "same-site"}, {"Referer": "http://evil.example/x"}],
)  # fmt: skip
def test_a_change_that_says_to_come_from_elsewhere_is_refused_with_any_token(
    api: Api, strange: dict[str, str]
) -> None:
    """Also where the token is in a header: programs do not say where they come from, and pages are ours."""
    body = {"name": "eve", "role": "admin"}
    assert api.admin.post("/api/tokens", json=body, headers=strange).status_code == 403
    assert api.admin.post("/api/tokens", json=body, headers={"Origin": "http://localhost"}).status_code == 201


def test_a_page_on_another_port_cannot_ask_with_somebodys_cookie(api: Api) -> None:
    """Browsers send the cookie along to every port of a machine; asking for a batch takes it."""
    _, cookie = api.service.access.log_in(api.tokens["ann"], address="", now_ms=2**41)
    browser = {"Cookie": f"{COOKIE}={cookie}"}
    batch = f"/api/judge/{EXPERIMENT}/batch"
    assert api.nobody.get(batch, headers=browser | {"Sec-Fetch-Site": "same-site"}).status_code == 403
    assert api.nobody.get(batch, headers=browser | {"Sec-Fetch-Site": "same-origin"}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "[", "localhost.", "", "localhost/health?", "127.0.0.1.x"])
def test_a_name_that_is_not_ours_is_refused(api: Api, host: str) -> None:
    """421 for any of them; whether the service is alive is told under every name."""
    assert api.admin.get("/api/me", headers={"Host": host}).status_code == 421
    assert api.nobody.get("/health", headers={"Host": host}).status_code == 200


def test_a_name_with_a_slash_can_be_revoked(api: Api) -> None:
    """Whatever may be a token's name may stand in the address that ends it."""
    name = "Zoë / 100 % <b>"
    assert api.admin.post("/api/tokens", json={"name": name, "role": "judge"}).status_code == 201
    assert api.admin.delete(f"/api/tokens/{quote(name, safe='')}").json()["name"] == name


def test_a_session_that_was_left_opens_nothing(api: Api) -> None:
    """Whoever has kept the cookie can do nothing with it; other sessions with the token go on."""
    now = time.time_ns() // 1_000_000
    mine, other = (api.service.access.log_in(api.tokens["ann"], address="", now_ms=now)[1] for _ in range(2))
    left = {"Cookie": f"{COOKIE}={mine}"}
    api.nobody.post("/logout", headers=left | {"Origin": "http://localhost"})
    assert api.nobody.get("/api/me", headers=left).status_code == 401
    assert api.nobody.get("/api/me", headers={"Cookie": f"{COOKIE}={other}"}).status_code == 200
    last = api.admin.get("/api/audit").json()[0]
    assert (last["who"], last["action"], last["ip"]) == ("ann", "logout", "127.0.0.1")


def test_a_file_that_cannot_be_used_is_told_in_the_one_shape(api: Api) -> None:
    """503 with a sentence, and with the headers of every answer; the service is still alive."""
    api.service.store.close()
    api.service.store.path.write_bytes(b"no database" * 1000)
    answer = api.admin.get("/api/me")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
    assert "Content-Security-Policy" in answer.headers
    assert api.admin.get("/health").status_code == 200


def test_a_login_is_a_short_message(api: Api) -> None:
    """Nobody who is not known can have much read."""
    headers = {"Origin": "http://localhost"}
    assert api.nobody.post("/login", data={"token": "x" * 200_000}, headers=headers).status_code == 413


def test_failed_logins_are_counted_and_the_log_is_not_filled_with_them(api: Api) -> None:
    """The log has five refused logins of the address, and the limit refuses no right token."""
    headers = {"Origin": "http://localhost"}
    codes = [api.nobody.post("/login", data={"token": "x"}, headers=headers).status_code for _ in range(8)]
    assert codes == [401] * 5 + [429] * 3
    right = api.nobody.post(
        "/login", data={"token": api.tokens["ann"]}, headers=headers, follow_redirects=False
    )
    assert right.status_code == 303
    assert api.caller("ann").get("/api/me").json()["name"] == "ann"
    refused = [one for one in api.admin.get("/api/audit").json() if one["action"] == "login.refused"]
    assert [one["ip"] for one in refused] == ["127.0.0.1"] * 5


@pytest.mark.parametrize(("role", "status"), [("judge", 201), ("admin", 422), ("service", 422)])
def test_a_judge_may_be_an_agent(api: Api, role: str, status: int) -> None:
    """The token says so, and no other role has a kind."""
    made = api.admin.post("/api/tokens", json={"name": "robot", "role": role, "kind": "agent"})
    assert made.status_code == status
    listed = {one["name"]: one["kind"] for one in api.admin.get("/api/tokens").json()}
    assert (listed["ann"], listed.get("robot")) == ("human", "agent" if status == 201 else None)


@pytest.mark.parametrize("name", ["ANN", "\uff21nn", "\u0410nn", " ann "])
def test_the_api_refuses_a_name_that_looks_like_another(api: Api, name: str) -> None:
    """The API applies the rule of the command line, and names the field."""
    refused = api.admin.post("/api/tokens", json={"name": name, "role": "judge"})
    assert refused.status_code == 422
    assert "name" in refused.json()["error"]["fields"]


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
        if method == "GET" and "root" in may and path not in {"/api/bench/models", "/api/health", "/signals"}:
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
