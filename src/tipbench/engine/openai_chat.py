"""A server that speaks OpenAI's chat route: one question, one reply, everything else refused in a sentence.

The key is sent and never shown: it is cut out of whatever a server says before anybody reads it.
"""

from __future__ import annotations

import asyncio
import random
import re
from contextlib import asynccontextmanager
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tipbench.engine.lock import is_loopback
from tipbench.engine.runner import FIRST_PAUSE_S, LONGEST_PAUSE_S
from tipbench.errors import BadInput, BadSetting, EngineUnreachable, ModelRefused, Unavailable
from tipbench.settings import is_unknown_host

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    import httpx

    from tipbench.records import Emit, Message

DEFAULT_URL = "https://api.openai.com/v1"
_CONNECT_S = 10.0
_LONGEST_WAIT_S = 60.0


class _Passing(Exception):
    """What may be gone at the next try.

    `final` is raised when no try is left; `wait_s` is what the server asked for, if anything.
    """

    def __init__(self, final: Unavailable, *, wait_s: float | None = None) -> None:
        super().__init__(str(final))
        self.final = final
        self.wait_s = wait_s


class OpenAIServer:
    """One server. Made by `open_server`, which closes its connections."""

    def __init__(self, client: httpx.AsyncClient, *, url: str, key: str, retries: int, emit: Emit) -> None:
        self._client = client
        self._url = url
        self._key = key
        self._retries = retries
        self._emit = emit
        self._rung = 0
        self._has_replied = False

    @property
    def name(self) -> str:
        """Where it is, for people: the host without anything secret that its address may hold."""
        parts = urlsplit(self._url)
        return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)

    async def chat(
        self, model: str, messages: Sequence[Message], *, schema: Mapping[str, Any], seed: int
    ) -> str:
        """The reply's text. Passing faults are waited out; Unavailable when they do not pass."""
        for attempt in range(self._retries + 1):
            try:
                return await self._simpler_if_refused(model, messages, schema=schema, seed=seed)
            except _Passing as fault:
                if attempt == self._retries:
                    raise fault.final from None
                jitter = random.uniform(0.5, 1.5)  # noqa: S311
                pause = fault.wait_s or min(FIRST_PAUSE_S * 2**attempt, LONGEST_PAUSE_S) * jitter
                said = {"event": "retry", "what": model, "error": str(fault), "pause_s": round(pause, 1)}
                self._emit(said)
                await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    async def _simpler_if_refused(
        self, model: str, messages: Sequence[Message], *, schema: Mapping[str, Any], seed: int
    ) -> str:
        """Ask with all options; a server that refuses some is asked without them, now and from now on."""
        body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": message.role, "content": message.content} for message in messages],
            "temperature": 0,
        }
        form = {"type": "json_schema", "json_schema": {"name": "scores", "strict": True, "schema": schema}}
        rungs: list[dict[str, Any]] = [{"seed": seed, "response_format": form}, {"seed": seed}, {}]
        for rung in range(self._rung, len(rungs)):
            reply = await self._post(body | rungs[rung])
            if reply.status_code not in {400, 422}:
                text = self._read(reply, model=model)
                self._rung, self._has_replied = rung, True
                return text
        return self._refused(f"{self.name} refuses to ask {model}: {self._said(reply)}")

    def _refused(self, sentence: str) -> str:
        """A server that has replied before objects to this one question: there is no reply to it."""
        if not self._has_replied:
            raise ModelRefused(sentence)
        self._emit({"event": "notice", "message": f"{sentence}; these texts stay unjudged"})
        return ""

    async def _post(self, body: Mapping[str, Any]) -> httpx.Response:
        import httpx

        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            return await self._client.post(f"{self._url}/chat/completions", json=body, headers=headers)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            reason = self._clean(str(error) or type(error).__name__)
            unreachable = EngineUnreachable(f"nothing answers at {self.name} ({reason}); check --base-url")
            raise unreachable if is_unknown_host(reason) else _Passing(unreachable) from None
        except httpx.InvalidURL as error:
            raise BadSetting("base_url", f"this is not an address ({self._clean(str(error))})") from None
        except httpx.TimeoutException:
            raise _Passing(
                EngineUnreachable(f"{self.name} gave no reply in time; try again later, or raise --timeout")
            ) from None
        except (httpx.HTTPError, OSError) as error:
            broken = f"the connection to {self.name} broke ({type(error).__name__}); try again"
            raise _Passing(EngineUnreachable(broken)) from None

    def _read(self, reply: httpx.Response, *, model: str) -> str:
        """The text of a good reply; what any other status means, in a sentence."""
        status = reply.status_code
        if reply.is_success:
            return self._text(reply)
        if status in {408, 409, 425, 429} or status >= 500:
            words = (
                f"{self.name} answers {status}: {self._said(reply)}; wait a while, then run the same command"
            )
            raise _Passing(Unavailable(words), wait_s=_wait_s(reply.headers.get("retry-after", "")))
        if status == 401:
            what = "refuses the key in OPENAI_API_KEY" if self._key else "wants a key: set OPENAI_API_KEY"
            raise BadInput(f"{self.name} {what} ({self._said(reply)})")
        if status == 404:
            raise ModelRefused(
                f"{self.name} has no {model}, or no /chat/completions at this address: {self._said(reply)}; "
                "check the name, and --base-url (it often ends in /v1)"
            )
        raise BadInput(f"{self.name} refuses to ask {model} ({status}): {self._said(reply)}")

    def _text(self, reply: httpx.Response) -> str:
        try:
            content = reply.json()["choices"][0]["message"]["content"]
        except (ValueError, LookupError, TypeError, RecursionError):
            raise _Passing(
                EngineUnreachable(
                    f"{self.name} does not reply as OpenAI does ({self._said(reply)}); "
                    "check --base-url (it often ends in /v1)"
                )
            ) from None
        if isinstance(content, list):
            return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
        return content if isinstance(content, str) else ""

    def _said(self, reply: httpx.Response) -> str:
        """The server's own words, in one line and without the key."""
        text = reply.text.strip()
        try:
            value = reply.json()
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            text = _message_of(value) or text
        said = "a web page" if text.startswith("<") else " ".join(text.split())
        return self._clean(said)[:300] or "nothing more"

    def _clean(self, text: str) -> str:
        return text.replace(self._key, "(the key)") if self._key else text


def _message_of(value: Mapping[str, Any]) -> str:
    """Where servers put their words: `error.message`, `error`, `message` or `detail`."""
    error = value.get("error")
    inner = error.get("message") if isinstance(error, dict) else error
    found = (inner, value.get("message"), value.get("detail"))
    return next((text for text in found if isinstance(text, str) and text), "")


def _wait_s(header: str) -> float | None:
    """`Retry-After` in seconds, as a number or a date; None where it says nothing that can be used."""
    try:
        seconds = float(header)
    except ValueError:
        seconds = _seconds_until(header)
    return min(seconds, _LONGEST_WAIT_S) if seconds > 0 else None


def _seconds_until(date: str) -> float:
    try:
        when = parsedate_to_datetime(date)
    except ValueError:
        return 0.0
    aware = when if when.tzinfo else when.replace(tzinfo=timezone.utc)
    return (aware - datetime.now(timezone.utc)).total_seconds()


@asynccontextmanager
async def open_server(
    url: str, *, key: str, timeout_s: float, retries: int, emit: Emit
) -> AsyncIterator[OpenAIServer]:
    """The server at that address. Nothing is sent before the first question."""
    import httpx

    url, key = _checked_url(url), _checked_key(key)
    async with httpx.AsyncClient(
        timeout=httpx.Timeout(timeout_s, connect=_CONNECT_S), trust_env=not is_loopback(url)
    ) as client:
        yield OpenAIServer(client, url=url, key=key, retries=retries, emit=emit)


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url.strip())
        named = bool(parts.hostname) and not re.search(r"\s", url.strip())
        good = parts.scheme in {"http", "https"} and named and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise BadSetting("base_url", f"this is not an address such as {DEFAULT_URL}")
    return url.strip().rstrip("/").removesuffix("/chat/completions")


def _checked_key(key: str) -> str:
    """A key that no header can carry is refused here, where it is certain not to be printed."""
    if not key.strip().isascii() or not key.strip().isprintable():
        raise BadInput("OPENAI_API_KEY holds characters that no key has; copy it anew")
    return key.strip()
