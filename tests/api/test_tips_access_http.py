"""Who may ask for tips: everybody on this machine, and with a service's token from elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shadow_world import until
from tip_service import AWAY, ONLY_TIPS, TipService, asked, serving, told
from tipbench.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

    from tipbench.workflows.access import Role

ROLES: tuple[Role, ...] = ("admin", "judge", "service")
EVERYWHERE = ("--host", "0.0.0.0", "--expose-to-the-network")  # noqa: S104 - what is tested
CALLS = (
    ("POST", "/score/egreedy"),
    ("POST", "/score/egreedy/v2"),
    ("POST", "/reward"),
    ("POST", "/reward/hybrid"),
    ("POST", "/recommend"),
    ("POST", "/reset"),
    ("GET", "/stats"),
    ("GET", "/stats/egreedy"),
)


def tokens_in(home: Path) -> dict[str, str]:
    home.mkdir(parents=True)
    store = Store(home / "service.db")
    made: dict[str, str] = {role: store.tokens.create(role, role, now_ms=0) for role in ROLES}
    store.close()
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("access")


@pytest.fixture(scope="module")
def here(folder: Path) -> Iterator[tuple[TipService, dict[str, str]]]:
    """The whole service, which only this machine can reach."""
    tokens = tokens_in(folder / "here")
    with serving(folder / "here", *AWAY) as service:
        yield service, tokens


@pytest.fixture(scope="module")
def exposed(folder: Path) -> Iterator[tuple[TipService, dict[str, str]]]:
    """A service that other machines can reach."""
    tokens = tokens_in(folder / "exposed")
    with serving(folder / "exposed", *ONLY_TIPS, *EVERYWHERE) as service:
        yield service, tokens


def call(service: TipService, method: str, path: str, **headers: str) -> httpx.Response:
    bodies = {"/reset": {"user_id": "x"}, "/reward": told("none"), "/reward/hybrid": told("none")}
    body = bodies.get(path, asked("x")) if method == "POST" else None
    return service.client.request(method, path, json=body, headers=headers)


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_this_machine_is_open_and_a_wrong_token_is_not_overlooked(
    here: tuple[TipService, dict[str, str]], method: str, path: str
) -> None:
    """Without a token, with a service's or an admin's: served. A judge's is 403, one that is none 401."""
    service, tokens = here
    served = {404} if path.startswith("/reward") else {200}
    for role in ("", "service", "admin"):
        headers = {"Authorization": f"Bearer {tokens[role]}"} if role else {}
        assert call(service, method, path, **headers).status_code in served, role
    assert call(service, method, path, Authorization=f"Bearer {tokens['judge']}").status_code == 403
    for strange in ("Bearer tb_service_x", "Bearer", "Basic cm9vdDo=", "nonsense"):
        refused = call(service, method, path, Authorization=strange)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer"), strange


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_from_elsewhere_a_services_token_is_needed(
    exposed: tuple[TipService, dict[str, str]], method: str, path: str
) -> None:
    """401 without one, 403 with a judge's, served with a service's: also on this machine."""
    service, tokens = exposed
    refused = call(service, method, path)
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert call(service, method, path, Authorization="Bearer no").status_code == 401
    assert call(service, method, path, Authorization=f"Bearer {tokens['judge']}").status_code == 403
    for role in ("service", "admin"):
        answer = call(service, method, path, Authorization=f"Bearer {tokens[role]}")
        assert answer.status_code == (404 if path.startswith("/reward") else 200)


def test_signals_have_the_same_door(
    here: tuple[TipService, dict[str, str]], exposed: tuple[TipService, dict[str, str]]
) -> None:
    """The stream is opened, or refused, by the same rules."""
    for (service, tokens), role, status in (
        (here, "", 200), (here, "judge", 403), (exposed, "", 401), (exposed, "judge", 403),
        (exposed, "service", 200),
    ):  # fmt: skip
        headers = {"Authorization": f"Bearer {tokens[role]}"} if role else {}
        with service.client.stream("GET", "/signals", headers=headers) as stream:
            assert stream.status_code == status


def test_a_service_that_can_be_reached_says_to_everybody_that_it_is_alive(
    exposed: tuple[TipService, dict[str, str]], here: tuple[TipService, dict[str, str]]
) -> None:
    """A health check has no token and may call it by any name."""
    for service, _ in (exposed, here):
        answer = service.client.get("/health", headers={"Host": "anything.example"})
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_a_revoked_token_is_refused_within_a_moment(
    exposed: tuple[TipService, dict[str, str]], folder: Path
) -> None:
    """It is remembered for a second at most."""
    service, _ = exposed
    store = Store(folder / "exposed" / "service.db")
    token = store.tokens.create("short-lived", "service", now_ms=0)
    headers = {"Authorization": f"Bearer {token}"}
    assert call(service, "POST", "/score/egreedy", **headers).status_code == 200
    store.tokens.revoke("short-lived", now_ms=1)
    store.close()
    codes = {call(service, "POST", "/score/egreedy", **headers).status_code for _ in range(3)}
    assert codes <= {200, 401}
    until(lambda: call(service, "POST", "/score/egreedy", **headers).status_code == 401)


@pytest.mark.parametrize(("method", "path"), [one for one in CALLS if one[0] == "POST"])
def test_a_page_of_another_site_is_refused(
    here: tuple[TipService, dict[str, str]], method: str, path: str
) -> None:
    """A browser that visits it would carry its wishes to this machine; our own pages may ask."""
    service, tokens = here
    for strange in (
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"}, {"Origin": f"http://127.0.0.1:{service.port + 1}"},
    ):  # fmt: skip
        assert call(service, method, path, **strange).status_code == 403, strange
        with_token = strange | {"Authorization": f"Bearer {tokens['service']}"}
        assert call(service, method, path, **with_token).status_code == 403, strange
    assert call(service, method, path, Origin=service.url).status_code in {200, 404}


@pytest.mark.parametrize(("method", "path"), CALLS)
@pytest.mark.parametrize("host", ["evil.example", "", "127.0.0.1.evil.example", "[", "localhost."])
def test_a_name_that_is_not_ours_is_refused(
    here: tuple[TipService, dict[str, str]], method: str, path: str, host: str
) -> None:
    """421: somebody's name may have been made to point here."""
    service, _ = here
    assert call(service, method, path, Host=host).status_code == 421


def test_any_port_may_stand_behind_our_name(here: tuple[TipService, dict[str, str]]) -> None:
    """A proxy or a tunnel has another one; so many are not remembered."""
    service, _ = here
    codes = {
        call(service, "POST", "/score/egreedy", Host=f"localhost:{port}").status_code
        for port in range(1, 200)
    }
    assert codes == {200}


def test_the_whole_service_has_tips_beside_its_pages(here: tuple[TipService, dict[str, str]]) -> None:
    """Pages, the bench, the description of all routes and tips, in one process."""
    service, tokens = here
    admin = {"Authorization": f"Bearer {tokens['admin']}"}
    assert service.client.get("/login").status_code == 200
    assert service.client.get("/api/me", headers=admin).json()["role"] == "admin"
    paths = service.client.get("/openapi.json", headers=admin).json()["paths"]
    assert {"/score/egreedy", "/score/egreedy/v2", "/reward", "/recommend", "/reset", "/signals"} <= set(
        paths
    )
    assert service.score("hybrid").status_code == 200
    assert service.get("/health") == {"status": "ok"}


def test_a_reset_is_audited_with_who_and_where(here: tuple[TipService, dict[str, str]], folder: Path) -> None:
    """The token's name and the address."""
    service, tokens = here
    service.post("/reset", {"user_id": "forget-me"}, Authorization=f"Bearer {tokens['service']}")
    store = Store(folder / "here" / "service.db")
    (entry,) = [one for one in store.audit.page() if one.target == "forget-me"]
    store.close()
    assert (entry.who, entry.role, entry.action, entry.ip) == (
        "service",
        "service",
        "tips.reset",
        "127.0.0.1",
    )
