"""What a host is called, and what of its address is never shown."""

from __future__ import annotations

import pytest

from tipbench.engine.address import is_here, login_of, place_name
from tipbench.text import without_login


@pytest.mark.parametrize(
    ("kind", "url", "machine", "name"),
    [
        ("ollama", "http://localhost:11434", "box", "box:11434"),
        ("ollama", "http://127.0.0.1:11434/", "box", "box:11434"),
        ("ollama", "http://localhost:11434", "", "localhost:11434"),
        ("ollama", "http://[::1]:11434", "", "localhost:11434"),
        ("ollama", "http://127.0.0.3:11434", "", "localhost:11434"),
        ("ollama", "http://GPU-1:11434", "", "gpu-1:11434"),
        ("ollama", "https://user:secret@gpu.example", "", "gpu.example:443"),
        ("ollama", "http://gate/first", "", "gate:80/first"),
        ("ollama", "http://[fd00::1]:11434", "", "[fd00::1]:11434"),
        ("embedded", "http://127.0.0.1:40001", "box", "box (embedded)"),
        ("embedded", "http://127.0.0.1:40002", "", "embedded"),
        ("", "", "", "unknown host"),
        ("ollama", "u", "", "u"),
        ("ollama", "http://gpu-1:port", "", "http://gpu-1:port"),
    ],
)
def test_a_host_is_called_by_its_machine_or_its_address(kind: str, url: str, machine: str, name: str) -> None:
    """However an address was written; an embedded engine's port says nothing, nor does a login."""
    assert place_name(kind=kind, url=url, machine=machine) == name


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://localhost:11434", True),
        ("http://127.9.9.9:1", True),
        ("http://[::1]:1", True),
        ("http://ollama.localhost", True),
        ("http://192.168.1.5:11434", False),
        ("http://gpu-1:11434", False),
    ],
)
def test_a_loopback_address_means_this_machine(url: str, *, here: bool) -> None:
    """It names another machine on every machine; any other address names one."""
    assert is_here(url) is here


@pytest.mark.parametrize(
    ("url", "login", "shown"),
    [
        ("http://gpu-1:11434", None, "http://gpu-1:11434"),
        ("http://me:p%40ss@gpu-1:11434/a@b", ("me", "p@ss"), "http://gpu-1:11434/a@b"),
        ("https://me@gpu-1", ("me", ""), "https://gpu-1"),
    ],
)
def test_a_login_is_read_and_not_shown(url: str, login: tuple[str, str] | None, shown: str) -> None:
    """What is before the host's name, with its escapes resolved."""
    assert login_of(url) == login
    assert without_login(url) == shown
