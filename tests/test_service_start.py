"""The service as it is started: where it listens, who is let in, and what its first start shows."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
import pytest

from command import start
from tipbench.errors import BadInput
from tipbench.service import check_reach, main
from tipbench.settings import Settings
from tipbench.workflows.service_state import ServiceConfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EVERYWHERE = ("0.0.0.0", "::", "", "192.168.1.5", "box.example", "127.0.0.1.example", "0", "[::]")  # noqa: S104


@pytest.mark.parametrize("host", EVERYWHERE)
def test_other_machines_are_let_in_only_where_that_is_spelled_out_and_there_is_a_token(host: str) -> None:
    """Without the flag it is refused, with it too while there is no token; both have a sentence."""
    with pytest.raises(BadInput, match="--expose-to-the-network"):
        check_reach(host, exposed=False, has_token=True)
    with pytest.raises(BadInput, match="needs a token first"):
        check_reach(host, exposed=True, has_token=False)
    check_reach(host, exposed=True, has_token=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_this_machine_needs_no_flag(host: str) -> None:
    """Loopback is reached by nobody else."""
    check_reach(host, exposed=False, has_token=False)


def test_every_interface_is_refused_before_anything_listens(home: Path) -> None:
    """The whole start ends with the sentence."""
    with pytest.raises(BadInput, match="lets other machines in"):
        main(ServiceConfig(host="0.0.0.0", port=0), exposed=False)  # noqa: S104 - refused
    assert home.exists()


@pytest.mark.parametrize(
    ("url", "secret", "word"),
    [
        ("http://h/x", "", "SECRET"),
        ("nonsense", "s", "URL"),
        ("ftp://h/", "s", "URL"),
        ("http://", "s", "URL"),
    ],
)
def test_a_webhook_that_would_announce_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch, url: str, secret: str, word: str
) -> None:
    """An address without a secret, or one that is none, is told when the service is started."""
    monkeypatch.setenv("TIPBENCH_WEBHOOK_URL", url)
    monkeypatch.setenv("TIPBENCH_WEBHOOK_SECRET", secret)
    with pytest.raises(BadInput, match=f"TIPBENCH_WEBHOOK_{word}"):
        ServiceConfig.from_environment(host="127.0.0.1", port=0, settings=Settings.of({}))


@contextmanager
def served(*arguments: str) -> Iterator[tuple[str, list[str]]]:
    """The real command on a free port: its address, and the lines that it said before."""
    process = start("serve", "--port", "0", *arguments)
    try:
        said: list[str] = []
        assert process.stdout is not None
        while not (said and said[-1].startswith("tipbench is at ")):
            line = process.stdout.readline()
            assert line, "the service ended"
            said.append(line.strip())
        yield said.pop().rpartition(" ")[2], said
    finally:
        process.terminate()
        process.communicate(timeout=30)


@pytest.mark.usefixtures("home")
def test_the_first_token_is_of_use_where_nobody_can_log_in() -> None:
    """Where nothing but tips is served there is no login page: the token goes with each request."""
    with served("--only", "tips") as (url, said):
        sentence, token = said
        assert "log in" not in sentence
        assert "'Authorization: Bearer TOKEN'" in sentence
        assert httpx.get(f"{url}/login").status_code == 404
        headers = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{url}/stats", headers=headers).status_code == 200


def test_the_first_admin_token_is_shown_once_and_kept_nowhere(home: Path) -> None:
    """The first start prints it, the second does not; no file holds it; a forged address gains nothing."""
    with served() as (url, said):
        token = said[-1]
        assert re.fullmatch(r"tb_admin_[\w-]{40,}", token)
        me = httpx.get(f"{url}/api/me", headers={"Authorization": f"Bearer {token}"})
        assert me.json()["role"] == "admin"
        codes = [
            httpx.post(
                f"{url}/login", data={"token": "x"}, headers={"Origin": url, "X-Forwarded-For": f"10.0.0.{n}"}
            ).status_code
            for n in range(6)
        ]
        assert codes == [401] * 5 + [429]
        audit = httpx.get(f"{url}/api/audit", headers={"Authorization": f"Bearer {token}"}).json()
        assert {one["ip"] for one in audit if one["action"] == "login.refused"} == {"127.0.0.1"}
    with served() as (_, said):
        assert said == []
    assert not [file for file in home.rglob("*") if file.is_file() and token.encode() in file.read_bytes()]
