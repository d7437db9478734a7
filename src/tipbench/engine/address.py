"""The address of a host: what of it may be shown and kept, who logs in there, and what the host is called."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from tipbench.engine.lock import is_loopback
from tipbench.text import without_login

if TYPE_CHECKING:
    from urllib.parse import SplitResult

UNRECORDED = "unknown host"
_PORTS = {"http": 80, "https": 443}


def login_of(url: str) -> tuple[str, str] | None:
    """The user and password in an address, None where it has none."""
    parts = urlsplit(url)
    if not parts.username and not parts.password:
        return None
    return unquote(parts.username or ""), unquote(parts.password or "")


def is_here(url: str) -> bool:
    """Whether the address means the machine that it is used on, so another one on every machine."""
    if is_loopback(url):
        return True
    name = urlsplit(url).hostname or ""
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name.endswith(".localhost")


@lru_cache(maxsize=1000)
def place_name(*, kind: str, url: str, machine: str) -> str:
    """What a host is called; two cells are of one host where this is the same.

    A machine's own name stands for `localhost`. The embedded engine has another port each time, so it is
    known by its machine alone. Where no machine was recorded, the address is all there is.
    """
    if kind == "embedded":
        return f"{machine} (embedded)" if machine else "embedded"
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 80)
    except ValueError:
        return without_login(url)
    if not parts.hostname:
        return url or UNRECORDED
    return f"{machine or _name(url, parts)}:{port}{parts.path.rstrip('/')}"


def _name(url: str, parts: SplitResult) -> str:
    if is_here(url):
        return "localhost"
    name = parts.hostname or ""
    return f"[{name}]" if ":" in name else name.rstrip(".")
