"""Who is let in, how often somebody may try, and which addresses a request may name."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tipbench.errors import BadSetting
from tipbench.settings import Settings
from tipbench.store import Store
from tipbench.workflows.access import Access, NotAllowed
from tipbench.workflows.judging_names import tells_of
from tipbench.workflows.service_state import Service, ServiceConfig, on_this_machine

if TYPE_CHECKING:
    from pathlib import Path


def test_many_who_try_at_once_have_no_more_tries(tmp_path: Path) -> None:
    """Of twenty wrong logins in one moment, five are looked at."""
    with Store(tmp_path / "service.db") as store:
        access = Access(tokens=store.tokens, attempts=store.attempts, ended=store.seen, key=b"key")

        def status(_: int) -> int:
            with pytest.raises(NotAllowed) as refused:
                access.log_in("nope", address="here", now_ms=10**12)
            return refused.value.status

        with ThreadPoolExecutor(20) as pool:
            found = sorted(pool.map(status, range(20)))
    assert found == [401] * 5 + [429] * 15


def test_a_right_token_logs_in_after_too_many_failed_logins(tmp_path: Path) -> None:
    """At the limit of one address, or of all, a right token is accepted and a wrong one is not."""
    with Store(tmp_path / "service.db") as store:
        access = Access(tokens=store.tokens, attempts=store.attempts, ended=store.seen, key=b"key")
        right = store.tokens.create("anna", "judge", now_ms=1)
        revoked = store.tokens.create("bob", "judge", now_ms=1)
        store.tokens.revoke("bob", now_ms=2)

        def status(token: str, address: str) -> int:
            try:
                access.log_in(token, address=address, now_ms=10**12)
            except NotAllowed as refused:
                return refused.status
            return 303

        assert [status("nope", "here") for _ in range(6)] == [401] * 5 + [429]
        assert [status(right, "here"), status(revoked, "here"), status(right[:-1], "here")] == [303, 429, 429]
        assert [status("nope", f"10.0.0.{n}") for n in range(46)] == [401] * 45 + [429]
        assert [status(f" {right}\n", "elsewhere"), status("nope", "elsewhere")] == [303, 429]


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:11434",
        "http://127.0.0.1",
        "https://LOCALHOST:5000/mlflow",
        "http://[::1]:1",
        "http://user:p%40ss@localhost:5000",
    ],
)
def test_an_address_of_this_machine_is_one(url: str) -> None:
    """However it is written, with a port, a path or a login."""
    assert on_this_machine(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://evil.example\\@localhost",
        "http://evil.example:80\\@127.0.0.1:80/",
        "http://localhost@evil.example",
        "http://127.0.0.1:1@evil.example",
        "http://evil.example#@localhost",
        "http://evil.example?@localhost",
        "http://localhost.evil.example",
        "http://127.0.0.1.evil.example",
        "http://localhost:1\n.evil.example",
        "http://evil\u3002example@localhost",
        "http://2130706433",
        "http://0x7f.1",
        "http://127.1",
        "http://[::ffff:169.254.169.254]",
        "http://169.254.169.254",
        "http://localhost:1?to=evil.example",
        "ftp://localhost",
        "sqlite:////etc/passwd",
        "localhost",
        "",
    ],
)
def test_an_address_that_another_program_may_read_otherwise_is_none(url: str, home: Path) -> None:
    """Only what every program takes for this machine passes without being listed."""
    assert not on_this_machine(url)
    service = Service(ServiceConfig(settings=Settings.of({"ollama_url": "http://localhost:1"})), folder=home)
    if url:
        for name in ("mlflow_url", "ollama_url"):
            if "://" in url or name == "mlflow_url":
                with pytest.raises(BadSetting) as refused:
                    service.settings({name: url})
                assert refused.value.name == name
    service.close()


@pytest.mark.parametrize(
    "url",
    [
        "http://ann:hush@gpu.example:11434",
        "ann:hush@gpu.example",
        "http://hush@gpu.example/",
        "http://gpu.example:1/x?token=hush",
        "http://ann:hu%40sh@hush@gpu.example",
        "http://ann:hush@gpu.example:port",
        "http://ann:hush@gpu.example:99999/",
        "http://ann:hu/sh@gpu.example",
    ],
)
def test_a_refused_address_is_named_without_its_login(url: str, home: Path) -> None:
    """The message of the setting and the sentence for the caller name the host, and no part of the login."""
    service = Service(ServiceConfig(settings=Settings.of({"ollama_url": "http://localhost:1"})), folder=home)
    with pytest.raises(BadSetting) as refused:
        service.settings({"ollama_url": url})
    with pytest.raises(BadSetting) as of_hosts:
        service.asked_of_airflow([url], None)
    with pytest.raises(BadSetting, match="this is not a list of addresses") as of_no_list:
        service.asked_of_airflow([url, 1], None)
    service.close()
    assert "hush" not in str(of_no_list.value)
    for message in (str(refused.value), refused.value.message, str(of_hosts.value)):
        assert "gpu.example" in message
        assert "hush" not in message
        assert "ann" not in message


def test_the_address_that_pages_show_means_the_configured_one(home: Path) -> None:
    """A form gives the address back without its login; the service uses its own, login included."""
    own = Settings.of(
        {"ollama_url": "http://ann:hush@gpu:11434", "mlflow_url": "postgresql://ann:hush@db/x?sslmode=on"}
    )
    service = Service(ServiceConfig(settings=own), folder=home)
    found = service.settings({"ollama_url": "http://gpu:11434", "mlflow_url": "postgresql://db/x"})
    service.close()
    assert (found.ollama_url, found.mlflow_url) == (own.ollama_url, own.mlflow_url)


@pytest.mark.parametrize(
    ("name", "models", "tells"),
    [
        ("tips-may", ["qwen2.5:0.5b"], False),
        ("Qwen against the rest", ["qwen2.5:0.5b"], True),
        ("yi or not", ["yi:6b"], True),
        ("yield", ["yi:6b"], False),
        ("the 0.5b ones", ["qwen2.5:0.5b", "gemma3:1b"], True),
        ("r1", ["deepseek-r1:1.5b"], True),
        ("2024-05", ["llama3.2:3b"], False),
        ("tip-bench-3b", ["hf.co/x/llama3.2:3b"], True),
    ],
)
def test_a_name_that_tells_of_a_model_is_known(name: str, models: list[str], tells: bool) -> None:  # noqa: FBT001
    """Parts of three letters anywhere, shorter ones and sizes where they stand alone."""
    assert tells_of(name, models) is tells
