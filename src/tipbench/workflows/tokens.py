"""`token`: who may ask the service for what. Every change is in the audit log, or is not made."""

from __future__ import annotations

import itertools
import os
import pwd
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tipbench.settings import home
from tipbench.store import FILE_NAME, Store, name_key, token_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tipbench.store import PersonKind, Role, Token


@dataclass(frozen=True, kw_only=True)
class Doer:
    """Who makes a change, as the audit log names them."""

    who: str
    role: str
    ip: str = ""


def open_store() -> Store:
    """The store in tipbench's home."""
    return Store(home() / FILE_NAME)


def os_user() -> Doer:
    """The user that this process runs as."""
    number = os.getuid()
    try:
        return Doer(who=pwd.getpwuid(number).pw_name, role="local")
    except KeyError:
        return Doer(who=f"uid {number}", role="local")


def create_token(store: Store, *, name: str, role: Role, by: Doer, kind: PersonKind = "human") -> str:
    """A new token in plain text, to be shown this once."""
    kept = token_name(name)
    with store.together():
        plain = store.tokens.create(kept, role, now_ms=_now_ms(), kind=kind)
        _note(store, by, "token.create", kept, f"role {role}" + (", an agent" if kind == "agent" else ""))
    return plain


def create_first_token(store: Store, *, by: Doer) -> str | None:
    """An admin's token in plain text, where there is no admin yet: two services make one between them."""
    with store.together():
        taken = {name_key(token.name) for token in store.tokens.list()}
        name = next(one for one in _first_names() if name_key(one) not in taken)
        plain = store.tokens.create_first(name, "admin", now_ms=_now_ms())
        if plain is not None:
            _note(store, by, "token.create", name, "role admin, made on the first start")
    return plain


def _first_names() -> Iterator[str]:
    yield "admin"
    yield from (f"admin-{number}" for number in itertools.count(2))


def revoke_token(store: Store, name: str, *, by: Doer) -> Token:
    """End a token and all that it was traded for."""
    with store.together():
        token = store.tokens.revoke(name, now_ms=_now_ms())
        _note(store, by, "token.revoke", token.name, f"role {token.role}")
    return token


def _note(store: Store, by: Doer, action: str, target: str, detail: str) -> None:
    store.audit.add(
        who=by.who, role=by.role, action=action, target=target, detail=detail, ip=by.ip, now_ms=_now_ms()
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
