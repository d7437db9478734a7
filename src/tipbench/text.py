"""Text from outside, made safe to show: control characters do not act, and addresses hold no login."""

from __future__ import annotations

import re
from urllib.parse import unquote

# C0 without tab and newline, DEL, C1, and the characters that change the direction of writing.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Return the text with control characters as backslash escapes."""
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


def visible_json(text: str) -> str:
    """Return JSON that holds the same values, with control characters as JSON escapes."""
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


_ADDRESS = re.compile(r"""(?<![A-Za-z0-9+.-])[A-Za-z0-9+.-]+://[^\s"<>]+""")
# A user, a password and a host without a scheme; but no model with its digest, such as gemma3:1b@0c4f2a91.
_BARE_LOGIN = re.compile(
    r"""(?<![^\s"'`<>(=,;])[^\s"'`<>(=,;:/@]{1,100}:(?!//)[^\s"'`<>@]{1,200}@"""
    r"""(?=[\w\[])(?![0-9a-fA-F]{8,}(?![\w.-])|sha256:|\w+://)"""
)
# How a login may go on behind the blank, quote or angle bracket at which its address seems to end: with the
# rest of a user and a password, or with the rest of a password that begins as a port does.
_REST_OF_USER = re.compile(r"""[\s"'<>][^\s:@"<>]+:[^\s@][^\n@]{0,200}@""")
_REST_OF_PASSWORD = re.compile(r"""[\s"'<>](?![,;:)}\]])[^\s@"<>]+@""")
_LONGEST_LOGIN = 200
_HOST = re.compile(r"""[^\s"<>@]+""")
_AROUND = "'`)]}.,;:!?"  # punctuation that follows an address in a sentence
_PLACE = re.compile(r"(?P<host>\[[^\[\]@]*\]|[^:@\[\]]*)(?P<port>:\d{1,5})?")
_SHORTEST_SECRET = 4


def has_login(address: str) -> bool:
    """Whether a user, and perhaps a password, stand before the host of an address with or without scheme."""
    _, mark, rest = address.partition("://")
    login = _login_in(rest, has_scheme=True) if mark else _login_in(address, has_scheme=False)
    return login.endswith("@")


def without_login(address: str, *, is_wrong: bool = False) -> str:
    """Return the address without user, password, query and fragment.

    Where an address `is_wrong`, everything before its last @ may be a password.
    """
    scheme, mark, rest = address.partition("://")
    if not mark:
        scheme, rest = "", address
    login = "".join(rest.rpartition("@")[:2]) if is_wrong else _login_in(rest, has_scheme=bool(mark))
    return f"{scheme}{mark}{re.split('[?#]', rest[len(login) :])[0]}"


def hide_logins(text: str, *, of: str = "") -> str:
    """Return a message without the logins and queries of the addresses in it.

    `of` is an address with secrets, parts of which the message may repeat outside of an address.
    """
    for secret in _secrets_in(of):
        text = text.replace(secret, "…")
    if "://" in text:
        text = _hide_in_addresses(text)
    return _BARE_LOGIN.sub("", text) if "@" in text else text


def _hide_in_addresses(text: str) -> str:
    parts, done = [], 0
    for found in _ADDRESS.finditer(text):
        if found.start() < done:  # it is a part of the address before it
            continue
        end = _end_of_address(text, found)
        parts += [text[done : found.start()], without_login(text[found.start() : end])]
        done = end
    return "".join([*parts, text[done:]])


def _end_of_address(text: str, found: re.Match[str]) -> int:
    """Return where an address ends, also if its login holds blanks, quotes or angle brackets."""
    address = found[0].rstrip(_AROUND)
    end = found.start() + len(address)
    rest = address.partition("://")[2]
    if "@" in rest:
        return end
    place = _PLACE.fullmatch(re.split(r"[/?#\\]", rest, maxsplit=1)[0])
    if place is None:  # what seems to be a port is none, so it may begin a password
        at = text.find("@", end, end + _LONGEST_LOGIN)
        more = text[end : at + 1]
        is_login = at >= 0 and "\n" not in more and "://" not in more
    else:
        is_root = place.end() == len(rest)
        pattern = _REST_OF_PASSWORD if place["port"] else _REST_OF_USER
        login = pattern.match(text, end) if is_root and place["host"] else None
        at, is_login = (login.end() - 1, True) if login else (end, False)
    if not is_login:
        return end
    host = _HOST.match(text, at + 1)
    return at + 1 + len(host[0].rstrip(_AROUND)) if host else end


def _login_in(rest: str, *, has_scheme: bool) -> str:
    """Return what stands before the host, with its @.

    A password may hold /, ? and # although an address must not: then no host and port end before them. An @
    in the path of a good address is no login's.
    """
    head = re.split(r"[/?#\\]", rest, maxsplit=1)[0]
    login, at, place = head.rpartition("@")
    found = _PLACE.fullmatch(place)
    has_place = found is not None and (bool(found["host"]) or not at)
    is_sure = has_place and (not at or bool(found and found["port"]) or "@" not in rest[len(head) :])
    if not has_scheme and not rest.startswith(("/", ".", "~")):
        is_sure = is_sure and bool(at)
    return login + at if is_sure else "".join(rest.rpartition("@")[:2])


def _secrets_in(address: str) -> list[str]:
    """Return the login of an address, its password, its query and the values there, the longest first.

    The user is a word like any other, so only in quotes.
    """
    rest = address.partition("://")[2] or address
    login = _login_in(rest, has_scheme="://" in address)
    query = re.split("[?]", rest[len(login) :], maxsplit=1)[1:]
    user, _, password = login.removesuffix("@").partition(":")
    values = [pair.rpartition("=")[2] for part in query for pair in part.split("&")]
    quoted = [f'"{user}"', f"'{user}'"] if user else []
    found = {one for text in (login, password, *query, *values, *quoted) for one in (text, unquote(text))}
    return sorted((one for one in found if len(one) >= _SHORTEST_SECRET), key=len, reverse=True)


# What pydantic and click write about a value, and the same in the words of all other messages.
_SENTENCES = (
    (r".*exceeded maximum size.*", "has too many digits"),
    (r".*valid integer.*", "must be a whole number"),
    (r".*valid (number|float).*", "must be a number"),
    (r".*valid boolean.*", "must be true or false"),
    (r".*valid string.*", "must be text"),
    (r".*not in the range x>=(\S+?)\.?", r"must be at least \1"),
    (r".*not in the range x<=(\S+?)\.?", r"must be at most \1"),
    (r".*not in the range (\S+)<=x<=(\S+?)\.?", r"must be from \1 to \2"),
    (r"\w+ should be greater than or equal to (.+)", r"must be at least \1"),
    (r"\w+ should be less than or equal to (.+)", r"must be at most \1"),
    (r"\w+ should (.+?)( after validation.*)?", r"must \1"),
)


def plain_problem(message: str) -> str:
    """Return what is wrong with a value without the words of the library that checked it.

    A sentence of a check of tipbench stays as it is, without the prefix that pydantic puts before it.
    """
    own = message.removeprefix("Value error, ")
    if own == message:
        for pattern, sentence in _SENTENCES:
            found = re.fullmatch(pattern, message, re.DOTALL)
            if found:
                return found.expand(sentence)
    return own.rstrip(".")
