"""Who may ask the service for what. Of a token only its hash is kept, and a beginning to know it by."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import unicodedata
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from tipbench.errors import BadSetting, NotFound, StoreUnusable
from tipbench.store.database import record

if TYPE_CHECKING:
    import sqlite3

    from tipbench.store.database import Database, Row

Role = Literal["admin", "judge", "service"]
ROLES: tuple[Role, ...] = get_args(Role)
PersonKind = Literal["human", "agent"]
KINDS: tuple[PersonKind, ...] = get_args(PersonKind)

_LONGEST_NAME = 80
_LONGEST_TOKEN = 200
_SHOWN = 6
_TOUCH_EVERY_MS = 60_000
# Counted as letters or symbols by Unicode, but nothing is to be seen of them.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_LETTERS = ("Ll", "Lm", "Lo", "Lt", "Lu")
# The first word of a letter's Unicode name is its script, but for these. Letters of no script are free.
_EAST_ASIAN = "Chinese, Japanese and Korean"
_SCRIPTS = {
    **dict.fromkeys(("CJK", "HANGUL", "HENTAIGANA", "HIRAGANA", "IDEOGRAPHIC", "KATAKANA"), _EAST_ASIAN),
    **dict.fromkeys(("MASU", "VERTICAL"), _EAST_ASIAN),
    **dict.fromkeys(("ROMAN", "TURNED"), "Latin"),
    **dict.fromkeys(("CARON", "MODIFIER"), None),
}
_TOKEN = re.compile(rf"\b(tb_(?:{'|'.join(ROLES)})_[\w-]{{{_SHOWN}}})[\w-]{{14,}}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Token:
    """A token without what is secret about it. `prefix` is how it begins.

    `kind` is what a judge who has it is: a person, or a program that judges as one.
    """

    token_id: int
    name: str
    role: Role
    prefix: str
    created_ms: int
    last_used_ms: int | None = None
    revoked_ms: int | None = None
    kind: PersonKind = "human"


class Tokens:
    """No two live tokens have the same name, nor names that differ only in case or in width.

    Names that earlier versions accepted stay as they are, and each of them can be revoked.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, name: str, role: Role, *, now_ms: int, kind: PersonKind = "human") -> str:
        """Make a token and return its plain text, which is stored nowhere.

        BadSetting if a live token has the same name, or a name that `name_key` does not tell from it.
        """
        name = token_name(name)
        _check_kind(role, kind)
        plain = f"tb_{role}_{secrets.token_urlsafe(32)}"
        with self._database.writing() as db:
            taken = _live_like(db, name)
            if taken:
                alike = "" if name in taken else f", and {name!r} counts as the same name"
                raise BadSetting(
                    "name",
                    f"there is a token named {taken[0]!r}{alike}; revoke it, or take another name",
                )
            db.execute(
                "INSERT INTO token (name, role, prefix, hash, created_ms, kind) VALUES (?, ?, ?, ?, ?, ?)",
                (name, role, _prefix(plain), _hash(plain), now_ms, kind),
            )
        return plain

    def create_first(self, name: str, role: Role, *, now_ms: int) -> str | None:
        """A new token where no live one has this role, whoever else asks at the same time; else None."""
        with self._database.writing() as db:
            if db.execute("SELECT 1 FROM token WHERE role = ? AND revoked_ms IS NULL", (role,)).fetchone():
                return None
            return self.create(name, role, now_ms=now_ms)

    def verify(self, plain: str, *, now_ms: int) -> Token | None:
        """Whose token this is; None where it is unknown or revoked. How long it takes tells nothing of it."""
        if len(plain) > _LONGEST_TOKEN:
            return None
        given = _hash(plain)
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT * FROM token WHERE prefix = ? AND revoked_ms IS NULL", (_prefix(plain),)
            ).fetchall()
        found = [row for row in rows if hmac.compare_digest(row["hash"], given)]
        return self._used(found[0], now_ms=now_ms) if found else None

    def get(self, token_id: int, *, now_ms: int | None = None) -> Token | None:
        """A token that is not revoked; with `now_ms`, this counts as a use of it."""
        with self._database.reading() as db:
            row = db.execute(
                "SELECT * FROM token WHERE token_id = ? AND revoked_ms IS NULL", (token_id,)
            ).fetchone()
        if row is None:
            return None
        return record(Token, row) if now_ms is None else self._used(row, now_ms=now_ms)

    def revoke(self, name: str, *, now_ms: int) -> Token:
        """End a token at once; its name is then free. NotFound where no live one has it."""
        name = unicodedata.normalize("NFC", name).strip()
        with self._database.writing() as db:
            row = _live(db, name)
            db.execute("UPDATE token SET revoked_ms = ? WHERE token_id = ?", (now_ms, row["token_id"]))
        return record(Token, row | {"revoked_ms": now_ms})

    def _used(self, row: Row, *, now_ms: int) -> Token:
        """Note the use, at most once a minute. A disk that is full need not keep anybody out."""
        last = row["last_used_ms"]
        if last is not None and abs(now_ms - last) < _TOUCH_EVERY_MS:
            return record(Token, row)
        with suppress(StoreUnusable), self._database.writing() as db:
            db.execute("UPDATE token SET last_used_ms = ? WHERE token_id = ?", (now_ms, row["token_id"]))
        return record(Token, row | {"last_used_ms": now_ms})

    def list(self, *, revoked: bool = False) -> tuple[Token, ...]:
        """The tokens by name; with `revoked`, those too that no longer hold."""
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT * FROM token WHERE revoked_ms IS NULL OR ? ORDER BY name, token_id", (revoked,)
            ).fetchall()
        return tuple(record(Token, row) for row in rows)


def _live(db: sqlite3.Connection, name: str) -> Row:
    asked = name.encode("utf-8", "replace").decode()  # a database refuses text that is not UTF-8
    row: Row | None = db.execute(
        "SELECT * FROM token WHERE name = ? AND revoked_ms IS NULL", (asked,)
    ).fetchone()
    if row is None:
        alike = "".join(f" Did you mean {one!r}?" for one in _live_like(db, name)[:1])
        raise NotFound(f"there is no token named {name!r}; see `tipbench token list`.{alike}".rstrip("."))
    return row


def _live_like(db: sqlite3.Connection, name: str) -> list[str]:
    """The names of live tokens that count as the same name as this one."""
    rows = db.execute("SELECT name FROM token WHERE revoked_ms IS NULL ORDER BY token_id").fetchall()
    return [row["name"] for row in rows if name_key(row["name"]) == name_key(name)]


def _check_kind(role: Role, kind: PersonKind) -> None:
    if role not in ROLES:
        raise BadSetting("role", f"{role!r} is not one of {', '.join(ROLES)}")
    if kind not in KINDS:
        raise BadSetting("kind", f"{kind!r} is not one of {', '.join(KINDS)}")
    if kind == "agent" and role != "judge":
        raise BadSetting("kind", f"agent is for the role judge, not for {role}")


def token_name(given: str) -> str:
    """Return the name as it is stored. BadSetting where no token may have it."""
    name = unicodedata.normalize("NFC", given).strip()
    if not 1 <= len(name) <= _LONGEST_NAME:
        raise BadSetting("name", f"a name has 1 to {_LONGEST_NAME} characters, not {len(name)}")
    if name in {".", ".."}:
        raise BadSetting("name", f"{name!r} cannot stand in an address; take another name")
    unseen = next((char for char in name if not char.isprintable() or char in _BLANK), None)
    if unseen is None and not name_key(name):
        unseen = name[0]
    if unseen is not None:
        raise BadSetting("name", f"the character {unseen!a} cannot be seen; leave it out")
    if _TOKEN.search(name):
        raise BadSetting("name", "this is a token, not a name; revoke it if it was shown to others")
    _check_script(name)
    return name


def name_key(name: str) -> str:
    """Return a text that is the same for two names which differ only in case, width or spaces.

    Unseen characters do not count. Letters of one script that look alike, such as l and I, do.
    """
    seen = "".join(char for char in name if not _is_unseen(char))
    for _ in range(2):  # to fold case may make text that NFKC changes again
        seen = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", seen).casefold())
    return " ".join(seen.split())


def _is_unseen(char: str) -> bool:
    is_selector = "VARIATION SELECTOR" in unicodedata.name(char, "")
    return is_selector or char in _BLANK or unicodedata.category(char) == "Cf"


def _check_script(name: str) -> None:
    """Refuse letters of two scripts: a Cyrillic А among Latin letters looks like a Latin one.

    A Roman numeral counts as its letters: ⅽ looks like the Latin c.
    """
    letters = "".join(char for char in name if unicodedata.category(char) in {*_LETTERS, "Nl"})
    found: dict[str | None, str] = {}
    for char in unicodedata.normalize("NFKC", letters):
        found.setdefault(_script(char), char)
    found.pop(None, None)
    if len(found) > 1:
        each = " and ".join(f"{script} ({char!r})" for script, char in found.items())
        raise BadSetting("name", f"{name!r} mixes letters of {each}; use the letters of one script")


def _script(char: str) -> str | None:
    """Return the script of a letter. None for a character of no script, such as ʻ or a combining mark."""
    if unicodedata.category(char) not in _LETTERS:
        return None
    word = re.split(r"[ -]", unicodedata.name(char, ""), maxsplit=1)[0]
    return _SCRIPTS.get(word, word.title())


def without_tokens(text: str) -> str:
    """The text with tokens cut down to how they begin."""
    return _TOKEN.sub(r"\1…", text)


def _prefix(plain: str) -> str:
    """What is shown of a token: too little to guess the rest from."""
    kind, role, rest = [*plain.split("_", 2), "", ""][:3]
    return f"{kind}_{role}_{rest[:_SHOWN]}".encode("utf-8", "replace").decode()


def _hash(plain: str) -> bytes:
    # A fast hash will do: what is hashed is 32 random bytes, which nobody can try out.
    return hashlib.sha256(plain.encode("utf-8", "replace")).digest()
