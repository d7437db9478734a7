"""Who is asking the service: a bearer token, or a cookie that a token was traded for at the login page."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import threading
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Literal, Protocol
from urllib.parse import urlsplit

from tipbench.errors import TipbenchError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

Role = Literal["admin", "judge", "service"]
PersonKind = Literal["human", "agent"]

COOKIE = "tipbench_session"
SESSION_MS = 12 * 3600 * 1000
_WINDOW_MS = 60_000
_MOST_BY_ADDRESS = 5
_MOST_OVERALL = 50
_LOCAL_HOST = re.compile(rb"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]*)?", re.IGNORECASE)
_FORWARDING = frozenset({b"forwarded", b"x-real-ip", b"via"})
_FORWARDING_PREFIX = b"x-forwarded"


class NotAllowed(TipbenchError):
    """Somebody who is not known, or who may not do this; `status` is HTTP's word for it."""

    def __init__(self, message: str, *, status: int, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, kw_only=True)
class Principal:
    """Who is asking, and from which address. Revoking the token ends what it was traded for.

    `kind` is what a judge of this name is. `session` names what a cookie was made for.
    """

    name: str
    role: Role
    token_id: int
    via: Literal["bearer", "cookie"]
    kind: PersonKind = "human"
    ip: str = ""
    session: str = ""


class Known(Protocol):
    """What access asks of a token."""

    @property
    def token_id(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def role(self) -> Role: ...

    @property
    def kind(self) -> PersonKind: ...


class Tokens(Protocol):
    """What access asks of the store's tokens."""

    def verify(self, plain: str, *, now_ms: int) -> Known | None: ...

    def get(self, token_id: int, *, now_ms: int | None = None) -> Known | None:
        """A token that is not revoked; with `now_ms`, this counts as a use of it."""


class Attempts(Protocol):
    """What access asks of the store about failed logins."""

    def count(self, *, since_ms: int, address: str | None = None) -> int: ...

    def add(self, address: str, *, now_ms: int) -> None: ...


class Ended(Protocol):
    """What access asks of the store about sessions that were left."""

    def first_time(self, nonce: str, now_ms: int, *, keep_ms: int) -> bool: ...

    def has(self, nonce: str, now_ms: int) -> bool: ...


class Access:
    """Checks who is asking. Cookies are signed with a key of the store's own."""

    def __init__(self, *, tokens: Tokens, attempts: Attempts, ended: Ended, key: bytes) -> None:
        self._tokens = tokens
        self._attempts = attempts
        self._ended = ended
        self._key = key
        self._door = threading.Lock()

    def principal(self, *, authorization: str, cookie: str, now_ms: int, ip: str = "") -> Principal | None:
        """Who the headers speak for; a bearer token goes before a cookie. None for nobody."""
        scheme, _, plain = authorization.partition(" ")
        if scheme.lower() == "bearer" and plain.strip():
            return _principal(self._tokens.verify(plain.strip(), now_ms=now_ms), via="bearer", ip=ip)
        token_id, session = (self._opened(cookie, now_ms=now_ms) if cookie else None) or (None, "")
        if token_id is None or self._ended.has(_word(session), now_ms):
            return None
        return _principal(self._tokens.get(token_id, now_ms=now_ms), via="cookie", ip=ip, session=session)

    def log_in(self, plain: str, *, address: str, now_ms: int) -> tuple[Principal, str]:
        """Trade a token for a cookie. Too many failures from one address, or from all, close the door a
        while.
        """
        # One after the other: of many that come at once, no more are let through than of those that do not.
        with self._door:
            found = self._verified(plain, address=address, now_ms=now_ms)
        if found.role == "service":
            raise NotAllowed(
                "a service token is for programs; log in with an admin's or a judge's", status=403
            )
        until = now_ms + SESSION_MS
        return found, self._sealed({"token": found.token_id, "until": until, "id": secrets.token_urlsafe(16)})

    def log_out(self, who: Principal, *, now_ms: int) -> None:
        """End the session for good: whoever has kept its cookie can do nothing with it."""
        if who.session:
            self._ended.first_time(_word(who.session), now_ms, keep_ms=SESSION_MS)

    def _verified(self, plain: str, *, address: str, now_ms: int) -> Principal:
        since = now_ms - _WINDOW_MS
        failed = self._attempts.count(since_ms=since, address=address)
        if failed >= _MOST_BY_ADDRESS or self._attempts.count(since_ms=since) >= _MOST_OVERALL:
            raise NotAllowed(
                "too many failed logins; wait a minute and try again", status=429, retry_after_s=60
            )
        found = _principal(self._tokens.verify(plain.strip(), now_ms=now_ms), via="cookie", ip=address)
        if found is None:
            self._attempts.add(address, now_ms=now_ms)
            raise NotAllowed("that token is not known, or was revoked", status=401)
        return found

    def _sealed(self, session: Mapping[str, int | str]) -> str:
        body = base64.urlsafe_b64encode(json.dumps(session).encode()).decode()
        return f"{body}.{self._signature(body)}"

    def _opened(self, cookie: str, *, now_ms: int) -> tuple[int, str] | None:
        body, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(body).encode()):
            return None
        session = json.loads(base64.urlsafe_b64decode(body))
        if session["until"] <= now_ms:
            return None
        return int(session["token"]), str(session.get("id", ""))

    def _signature(self, body: str) -> str:
        return hmac.new(self._key, f"session {body}".encode(), hashlib.sha256).hexdigest()


def _word(session: str) -> str:
    """How an ended session is told from the other words that are remembered."""
    return f"session {session}"


def _principal(
    token: Known | None, *, via: Literal["bearer", "cookie"], ip: str, session: str = ""
) -> Principal | None:
    if token is None:
        return None
    return Principal(
        name=token.name,
        role=token.role,
        token_id=token.token_id,
        via=via,
        kind=token.kind,
        ip=ip,
        session=session,
    )


def check_origin(*, origin: str, referer: str, fetch_site: str, host: str, must_say: bool) -> None:
    """Refuse a change that a browser was made to send by a page of somebody else's.

    A browser says where a request comes from; where `must_say`, one that does not say so is refused too.
    """
    check_fetch_site(fetch_site)
    said = origin if origin and origin != "null" else referer
    if not said:
        if fetch_site == "same-origin" or not (must_say or origin):
            return
        raise NotAllowed("this request does not say where it comes from (no Origin header)", status=403)
    if urlsplit(said).netloc.lower() != host.lower():
        raise NotAllowed("this request came from another site", status=403)


def check_fetch_site(fetch_site: str) -> None:
    """Refuse what a browser says it was made to ask for by a page of another site, or of another port."""
    if fetch_site and fetch_site not in {"same-origin", "none"}:
        raise NotAllowed("this request came from another site", status=403)


def check_host(host: str, *, allowed: Collection[str]) -> None:
    """Refuse a name that is not ours: somebody else's may have been made to point here."""
    name = host.lower()
    name = name.rpartition(":")[0] if name.rpartition(":")[2].isdecimal() else name
    if name.strip("[]") not in allowed:
        raise NotAllowed(
            f"this service is not known as {name!r}; add it to TIPBENCH_ALLOWED_HOSTS if it is", status=421
        )


def is_local_request(scope: Mapping[str, Any]) -> bool:
    """Whether a request comes directly from this machine, by what its ASGI scope shows.

    The client address and every Host are loopback, and no header of a proxy is there.
    """
    client = scope.get("client")
    if not client or not is_loopback(client[0]):
        return False
    has_host = False
    for name, value in scope["headers"]:
        if name in _FORWARDING or name.startswith(_FORWARDING_PREFIX):
            return False
        if name == b"host":
            has_host = True
            if not _LOCAL_HOST.fullmatch(value):
                return False
    return has_host


@lru_cache(maxsize=1000)
def is_loopback(address: str) -> bool:
    """Whether an IP address is in 127.0.0.0/8, ::1, or one of the former within IPv6."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


def is_loopback_name(host: str) -> bool:
    """Whether a host name, with or without a port, can only mean this machine."""
    return _LOCAL_HOST.fullmatch(host.encode(errors="replace")) is not None or is_loopback(host.strip("[]"))
