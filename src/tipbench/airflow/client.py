"""One Airflow, asked over HTTP. Whatever goes wrong is told in one sentence, and a password in none.

AirflowUnreachable is for what may pass by waiting: nobody answers, or somebody who is no Airflow. Everything
else is final: a password that is wrong, a name that is not there, a value that is refused.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from tipbench.errors import AirflowUnreachable, BadInput, Conflict, NotFound
from tipbench.text import without_login

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

_TIMEOUT_S = 30.0
_LARGEST = 20_000_000
_LONGEST_REASON = 300
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _CONFLICT = 401, 403, 404, 409
_TO_TRY_AGAIN = frozenset({408, 425, 429})
_STALE_TOKEN = "invalid jwt token"  # noqa: S105 - what Airflow says of one that has run out


class Client:
    """Asks one Airflow as one user. A token is fetched when it is needed, and anew when it has run out.

    Without user and password it asks for the token that an Airflow without logins gives to everybody.
    """

    def __init__(
        self, url: str, *, user: str = "", password: str = "", timeout_s: float = _TIMEOUT_S
    ) -> None:
        self.url = url.rstrip("/")
        self._login = {"username": user, "password": password} if user else None
        self._timeout_s = timeout_s
        self._token = ""

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str | int] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever JSON holds
        """What Airflow answers under `/api/v2`; None where it answers with nothing."""
        fresh = not self._token
        if fresh:
            self._token = self._log_in()
        status, said = self._send(method, f"/api/v2{path}", body=body, query=query)
        if not fresh and _is_stale(status, said):
            self._token = self._log_in()
            status, said = self._send(method, f"/api/v2{path}", body=body, query=query)
        self._check(status, said, what=f"{method} {path}")
        return said

    def _log_in(self) -> str:
        method = "POST" if self._login else "GET"
        status, said = self._send(method, "/auth/token", body=self._login)
        if status in {_UNAUTHORIZED, _FORBIDDEN}:
            raise BadInput(
                f"Airflow at {self.url} does not let {self._login['username']!r} in; correct "
                "TIPBENCH_AIRFLOW_USER and TIPBENCH_AIRFLOW_PASSWORD"
                if self._login
                else f"Airflow at {self.url} asks for a login; set TIPBENCH_AIRFLOW_USER and "
                "TIPBENCH_AIRFLOW_PASSWORD"
            )
        if status == _NOT_FOUND:
            raise self._no_airflow("it has no /auth/token")
        self._check(status, said, what="the login")
        token = said.get("access_token") if isinstance(said, dict) else None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise self._no_airflow("it gave no token")
        return token

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str | int] | None = None,
    ) -> tuple[int, Any]:
        """Status and answer. No redirect is followed: it would take the login along."""
        import httpx

        headers = {"Accept": "application/json", "User-Agent": "tipbench"}
        if self._token and path != "/auth/token":
            headers["Authorization"] = f"Bearer {self._token}"
        # Certificates take longer to load than an answer takes; without TLS there is nothing to verify.
        verify = self.url.lower().startswith("https:")
        try:
            with (
                httpx.Client(timeout=self._timeout_s, follow_redirects=False, verify=verify) as client,
                client.stream(method, f"{self.url}{path}", json=body, params=query, headers=headers) as reply,
            ):
                self._refuse_redirect(reply)
                return reply.status_code, self._answer(reply.status_code, self._whole(reply))
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as error:
            why = " ".join(str(error).split()) or type(error).__name__
            raise AirflowUnreachable(f"Airflow at {self.url} cannot be reached ({why})") from None

    def _refuse_redirect(self, reply: httpx.Response) -> None:
        if reply.is_redirect:
            to = without_login(_one_line(reply.headers.get("location", "")))
            raise BadInput(
                f"{self.url} sends on to {to or 'elsewhere'}, which is not followed; set "
                "TIPBENCH_AIRFLOW_URL to the address that Airflow itself answers at"
            )

    def _whole(self, reply: httpx.Response) -> bytes:
        """All of an answer, unless it has no end."""
        until, parts, size = time.monotonic() + 2 * self._timeout_s, [], 0
        for part in reply.iter_bytes():
            parts.append(part)
            size += len(part)
            if size > _LARGEST or time.monotonic() > until:
                raise self._no_airflow("its answer has no end")
        return b"".join(parts)

    def _answer(self, status: int, content: bytes) -> Any:  # noqa: ANN401 - whatever JSON holds
        try:
            return json.loads(content) if content.strip() else None
        except (ValueError, RecursionError):
            if status >= 500 or status in _TO_TRY_AGAIN:
                return None
            raise self._no_airflow(f"it answered {status} and no JSON") from None

    def _no_airflow(self, why: str) -> AirflowUnreachable:
        return AirflowUnreachable(
            f"what answers at {self.url} is no Airflow 3: {why}; look at TIPBENCH_AIRFLOW_URL"
        )

    def _check(self, status: int, said: object, *, what: str) -> None:
        if status < 300:
            return
        reason = reason_of(said)
        if status >= 500 or status in _TO_TRY_AGAIN:
            raise AirflowUnreachable(f"Airflow at {self.url} answers {status}{_more(reason)}")
        if status in {_UNAUTHORIZED, _FORBIDDEN}:
            raise BadInput(
                f"Airflow at {self.url} does not allow this user {what}{_more(reason)}; "
                "give it a role that may"
            )
        sentence = reason or f"{what} was answered {status}"
        if status == _NOT_FOUND:
            raise NotFound(f"Airflow at {self.url}: {sentence}")
        if status == _CONFLICT:
            raise Conflict(f"Airflow at {self.url}: {sentence}")
        raise BadInput(f"Airflow at {self.url} refuses this: {sentence}")


def reason_of(said: object) -> str:
    """Why Airflow refused, as the first line of what it said: the rest is a schema or a trace."""
    detail = said.get("detail", said.get("error")) if isinstance(said, dict) else None
    if isinstance(detail, list):
        return "; ".join(_field_reason(one) for one in detail[:3])[:_LONGEST_REASON]
    if isinstance(detail, dict):
        detail = detail.get("reason") or detail.get("message")
    return _one_line(detail) if isinstance(detail, str) else ""


def _field_reason(one: object) -> str:
    if not isinstance(one, dict):
        return _one_line(str(one))
    loc = one.get("loc")
    where = ".".join(map(str, loc[1:] or loc)) if isinstance(loc, list) else ""
    return _one_line(f"{where}: {one.get('msg')}" if where else str(one.get("msg")))


def _one_line(text: str) -> str:
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    first = "".join(letter for letter in lines[0] if letter.isprintable()) if lines else ""
    return first[:_LONGEST_REASON].rstrip(".")


def _more(reason: str) -> str:
    return f" ({reason})" if reason else ""


def _is_stale(status: int, said: object) -> bool:
    """Whether a token was refused and not its user; Airflow answers 403 to one it cannot read."""
    stale = _STALE_TOKEN in reason_of(said).lower() or "expired" in reason_of(said).lower()
    return status == _UNAUTHORIZED or (status == _FORBIDDEN and stale)
