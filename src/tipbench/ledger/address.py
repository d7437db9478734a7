"""Where a ledger is: the address people give, what MLflow is handed, and what may be shown and stored."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

from tipbench.errors import BadInput
from tipbench.settings import login_needs_scheme
from tipbench.text import has_login, without_login

Kind = Literal["embedded", "sqlite", "database", "server"]

_ADVICE = "give the address of an MLflow server (http://localhost:5000), or nothing for the embedded store"


@dataclass(frozen=True, kw_only=True)
class Address:
    """`uri` is for MLflow alone, since it may hold a password; `public` is the same without one."""

    kind: Kind
    uri: str
    public: str
    path: Path | None = None

    @property
    def is_server(self) -> bool:
        return self.kind == "server"


def parse_address(uri: str, *, home: Path) -> Address:
    """The address behind what a person wrote; nothing is opened. Empty is the embedded store."""
    text = uri.strip()
    scheme = text.partition("://")[0].lower() if "://" in text else ""
    _see_that_it_can_be_named(_embedded_path(home), "set TIPBENCH_HOME to another folder")
    if not text or text == _embedded_uri(home):
        return Address(
            kind="embedded", uri=_embedded_uri(home), public=_embedded_uri(home), path=_embedded_path(home)
        )
    if scheme in {"http", "https"}:
        return Address(kind="server", uri=_server_uri(text), public=_without_credentials(_server_uri(text)))
    if scheme == "sqlite":
        return _sqlite(text)
    if re.fullmatch(r"postgresql(\+\w+)?", scheme):
        return Address(kind="database", uri=text, public=_without_credentials(text))
    if "://" not in text and has_login(text):
        raise BadInput(login_needs_scheme(text))
    shown = without_login(text, is_wrong=True)
    raise BadInput(f"{shown!r} is not a ledger that tipbench can use: {_ADVICE}{_guess(shown)}")


def public_uri(uri: str, *, home: Path) -> str:
    """The address without user and password: what messages show and files hold. Given twice, it stays."""
    return parse_address(uri, home=home).public


def _see_that_it_can_be_named(path: Path, advice: str) -> None:
    """MLflow hands a path on inside an address, where some of it would be read as something else."""
    if "?" in str(path):
        raise BadInput(f"{path} cannot be MLflow's database, because of the question mark; {advice}")
    escape = re.search(r"%[0-9A-Fa-f]{2}", str(path))
    if escape:
        raise BadInput(
            f"{path} cannot be MLflow's database, because {escape[0]} would be read as another character; "
            f"{advice}"
        )


def _embedded_path(home: Path) -> Path:
    return home.expanduser().absolute() / "mlflow.db"


def _embedded_uri(home: Path) -> str:
    return f"sqlite:///{_embedded_path(home)}"


def _server_uri(text: str) -> str:
    """The address up to its path: what a browser shows behind it (`/#/experiments/3`) is not part of it."""
    try:
        parts = urlsplit(text)
        port_ok = parts.port is None or parts.port > 0
    except ValueError:
        port_ok = False
    if not port_ok or not parts.hostname or parts.query or any(c.isspace() for c in text):
        shown = repr(without_login(text, is_wrong=True)) + (" with a query (?…)" if "?" in text else "")
        raise BadInput(f"{shown} is not the address of an MLflow server: {_ADVICE}")
    return urlunsplit((parts.scheme.lower(), parts.netloc, parts.path.rstrip("/"), "", ""))


def _without_credentials(uri: str) -> str:
    """Scheme, host, port and path. A database's query may hold a password too, so it goes as well."""
    try:
        parts = urlsplit(without_login(uri))
    except ValueError:
        shown = without_login(uri, is_wrong=True)
        raise BadInput(f"{shown!r} is not the address of a database (postgresql://host/name)") from None
    return urlunsplit((parts.scheme, parts.netloc.lower(), parts.path, "", ""))


def _sqlite(text: str) -> Address:
    """A SQLite file, made absolute: the writer is another process and may run in another folder."""
    name = text[len("sqlite:///") :] if text.lower().startswith("sqlite:///") else ""
    if not name or name == ":memory:" or name.startswith("file:") or "?" in name:
        raise BadInput(f"{text!r} names no file of its own; write sqlite:////folder/mlflow.db")
    path = Path(name).expanduser().absolute()
    _see_that_it_can_be_named(path, "name another file")
    uri = f"sqlite:///{path}"
    return Address(kind="sqlite", uri=uri, public=uri, path=path)


def _guess(text: str) -> str:
    if re.fullmatch(r"[\w.-]+(:\d+)(/.*)?", text) or text.startswith("localhost"):
        return f" (did you mean http://{text} ?)"
    return ""
