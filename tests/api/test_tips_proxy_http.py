"""The serving routes behind a proxy: they need a token, by every way that a proxy can be noticed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from starlette.testclient import TestClient

from forwarding_proxy import proxy_to
from tip_service import AWAY, ONLY_TIPS, TipService, asked, head, parsed, sent, serving, told
from tipbench.service import create_app
from tipbench.store import Store
from tipbench.workflows.access import is_loopback
from tipbench.workflows.service_state import Service, ServiceConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fastapi import FastAPI

    Application = Callable[..., FastAPI]

CALLS: tuple[tuple[str, str, object], ...] = (
    ("POST", "/recommend", asked("x")),
    ("POST", "/score/egreedy", asked("x")),
    ("POST", "/score/egreedy/v2", asked("x")),
    ("POST", "/reward", told("none")),
    ("POST", "/reward/linucb", told("none")),
    ("POST", "/reset", {"everybody": True}),
    ("GET", "/stats", None),
    ("GET", "/stats/egreedy", None),
    ("GET", "/signals?after=x", None),  # a token comes before the mistake: an open stream has no end
)
OPEN = {"/reward": 404, "/reward/linucb": 404, "/signals?after=x": 422}
SAID = "Programs on this machine need no token"


def statuses(client: httpx.Client, **headers: str) -> dict[str, int]:
    """The status of each serving route."""
    return {
        path: client.request(method, path, json=body, headers=headers).status_code
        for method, path, body in CALLS
    }


def all_open(found: dict[str, int]) -> bool:
    return found == {path: OPEN.get(path, 200) for _, path, _ in CALLS}


def all_closed(found: dict[str, int]) -> bool:
    return set(found.values()) == {401}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("proxies")


def token_in(home: Path) -> dict[str, str]:
    home.mkdir(parents=True)
    store = Store(home / "service.db")
    token = store.tokens.create("app", "service", now_ms=0)
    store.close()
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture(scope="module", params=["only tips", "all"])
def direct(request: pytest.FixtureRequest, folder: Path) -> Iterator[tuple[TipService, dict[str, str]]]:
    """A service with the default settings, without and with pages."""
    home = folder / request.param
    token = token_in(home)
    with serving(home, *(ONLY_TIPS if request.param == "only tips" else AWAY)) as service:
        yield service, token


def test_programs_on_this_machine_need_no_token(direct: tuple[TipService, dict[str, str]]) -> None:
    """Every serving route answers a direct request, and the start prints one line that says so."""
    service, _ = direct
    assert all_open(statuses(service.client))
    assert service.process.stdout is not None
    line = service.process.stdout.readline()
    assert line.startswith(SAID)
    assert "--require-token" in line


@pytest.mark.parametrize(
    "added",
    ["X-Forwarded-For: 203.0.113.9", "Via: 1.1 proxy", "Forwarded: for=203.0.113.9", "x-real-ip: 127.0.0.1"],
)
def test_behind_a_proxy_that_names_its_client_a_token_is_needed(
    direct: tuple[TipService, dict[str, str]], added: str
) -> None:
    """A real proxy on this machine: 401 without a token, the usual answers with one."""
    service, token = direct
    with proxy_to(service.port, added, host="localhost") as url, httpx.Client(base_url=url) as client:
        assert all_closed(statuses(client))
        assert all_open(statuses(client, **token))
        assert client.get("/health").status_code == 200


FORGED = (
    *("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Server"),
    *(
        "X-Forwarded-Prefix",
        "X-Forwarded-Anything",
        "X-Real-IP",
        "Via",
        "vIA",
        "X-REAL-IP",
        "x-forwarded-for",
    ),
)


@pytest.mark.parametrize("name", FORGED)
@pytest.mark.parametrize("values", [("127.0.0.1",), ("",), ("127.0.0.1", "::1")])
def test_one_forwarding_header_closes_a_route(
    direct: tuple[TipService, dict[str, str]], name: str, values: tuple[str, ...]
) -> None:
    """401 for each name alone, in any case, with any value, once or more often."""
    service, _ = direct
    lines = [f"{name}: {value}" for value in values]
    assert parsed(sent(service, head("/stats", "Connection: close", *lines, method="GET")))[0] == 401
    start = head("/reward", "Connection: close", "Content-Length: 2", *lines)
    assert parsed(sent(service, start, b"{}"))[0] == 401


REFUSED = {401, 421}
HOSTS: dict[tuple[str, ...], set[int]] = {
    ("localhost",): {200},
    ("LOCALHOST:80",): {200},
    ("127.0.0.1:8701",): {200},
    ("[::1]",): {200},
    ("[::1]:8701",): {200},
    ("localhost", "127.0.0.1"): {200},
    ("[localhost]",): {401},
    ("[127.0.0.1]:80",): {401},
    ("localhost", "evil.example"): REFUSED,
    ("evil.example", "localhost"): REFUSED,
    ("evil.example",): {421},
    (): {421},
}


@pytest.mark.parametrize("hosts", HOSTS)
def test_only_a_loopback_host_needs_no_token(
    direct: tuple[TipService, dict[str, str]], hosts: tuple[str, ...]
) -> None:
    """With and without a port. Of several Host lines, each must be loopback."""
    service, _ = direct
    body = json.dumps(asked("hosts")).encode()
    lines = [
        *(f"Host: {host}" for host in hosts),
        "Connection: close",
        f"Content-Length: {len(body)}",
        "",
        "",
    ]
    for first in ("GET /stats HTTP/1.1", "POST /score/egreedy HTTP/1.1"):
        status, _ = parsed(sent(service, "\r\n".join([first, *lines]).encode(), body))
        assert status in HOSTS[hosts], first


def test_the_documented_proxy_needs_a_token(folder: Path) -> None:
    """FORWARDED_ALLOW_IPS and a foreign host name: 401 through the proxy and beside it."""
    token = token_in(folder / "documented")
    env = {"FORWARDED_ALLOW_IPS": "127.0.0.1", "TIPBENCH_ALLOWED_HOSTS": "tips.example"}
    with (
        serving(folder / "documented", *AWAY, **env) as service,
        proxy_to(service.port, "X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: https") as url,
        httpx.Client(base_url=url, headers={"Host": "tips.example"}) as client,
    ):
        assert all_closed(statuses(client))
        assert all_open(statuses(client, **token))
        assert all_closed(statuses(service.client))
        assert client.get("/health").status_code == 200
        said = stopped(service)
    assert SAID not in said


def test_a_proxy_that_adds_no_header_needs_require_token(folder: Path) -> None:
    """Such a proxy sends the Host of its target, and its requests look like direct ones."""
    token = token_in(folder / "silent")
    with (
        serving(folder / "silent", *ONLY_TIPS, "--require-token") as service,
        proxy_to(service.port, host=f"127.0.0.1:{service.port}") as url,
        httpx.Client(base_url=url) as client,
    ):
        assert all_closed(statuses(client))
        assert all_open(statuses(client, **token))
        assert all_closed(statuses(service.client))
        said = stopped(service)
    assert SAID not in said


def stopped(service: TipService) -> str:
    """The rest of what the service prints, until its end."""
    service.process.terminate()
    assert service.process.stdout is not None
    return service.process.stdout.read()


@pytest.fixture
def app_of(fresh_home: Path) -> Iterator[Application]:
    """Makes the application for a configuration."""
    services: list[Service] = []

    def made(config: ServiceConfig, *, only_tips: bool = False) -> FastAPI:
        services.append(Service(config))
        return create_app(services[-1], only_tips=only_tips)

    yield made
    for service in services:
        service.close()


def stats_and_reward(app: FastAPI, address: str) -> set[int]:
    """The statuses of a route of either kind for a direct request from this address."""
    client = TestClient(app, base_url="http://localhost", client=(address, 1))
    return {client.get("/stats").status_code, client.post("/reward", json=told("none")).status_code}


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"])
def test_a_loopback_client_needs_no_token(app_of: Application, address: str) -> None:
    """All of 127.0.0.0/8 is this machine, also written as IPv6."""
    assert stats_and_reward(app_of(ServiceConfig()), address) == {200, 404}


@pytest.mark.parametrize("address", ["192.168.1.5", "::ffff:10.0.0.1", "fe80::1", "testclient", ""])
def test_another_client_needs_a_token(app_of: Application, address: str) -> None:
    """401 for every address that is not loopback, and for none."""
    assert not is_loopback(address)
    assert stats_and_reward(app_of(ServiceConfig()), address) == {401}


@pytest.mark.parametrize(
    ("changes", "is_open"),
    [
        ({}, True),
        ({"host": "localhost"}, True),
        ({"host": "::1"}, True),
        ({"allowed_hosts": ("localhost", "127.0.0.1", "[::1]", "::1", "localhost:80", "127.0.0.2")}, True),
        ({"allowed_hosts": ("localhost", "tips.example")}, False),
        ({"allowed_hosts": ("localhost.example",)}, False),
        ({"allowed_hosts": ("192.168.1.5",)}, False),
        ({"host": "::"}, False),
        ({"host": "192.168.1.5"}, False),
        ({"require_token": True}, False),
        ({"behind_proxy": True}, False),
    ],
)
@pytest.mark.parametrize("only_tips", [True, False])
def test_one_setting_closes_the_routes(
    app_of: Application,
    changes: dict[str, Any],
    *,
    is_open: bool,
    only_tips: bool,
) -> None:
    """The listening address, a proxy's address, a host name and the option each close them."""
    config = replace(ServiceConfig(), **changes)
    assert config.serves_without_token is is_open
    app = app_of(config, only_tips=only_tips)
    assert stats_and_reward(app, "127.0.0.1") == ({200, 404} if is_open else {401})
    assert TestClient(app, client=("192.168.1.5", 1)).get("/health").status_code == 200


@pytest.mark.parametrize("value", ["127.0.0.1", "*", ""])
def test_the_environment_closes_the_routes(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """FORWARDED_ALLOW_IPS counts as set whatever its value is."""
    assert ServiceConfig().serves_without_token
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", value)
    assert not ServiceConfig().serves_without_token
