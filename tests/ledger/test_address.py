"""What people write for a ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from tipbench.errors import BadInput
from tipbench.ledger import open_ledger, public_uri
from tipbench.ledger.address import parse_address

HOME = Path("/state/tipbench")


@pytest.mark.parametrize(
    ("written", "kind", "public"),
    [
        ("", "embedded", "sqlite:////state/tipbench/mlflow.db"),
        ("  ", "embedded", "sqlite:////state/tipbench/mlflow.db"),
        ("sqlite:////state/tipbench/mlflow.db", "embedded", "sqlite:////state/tipbench/mlflow.db"),
        ("sqlite:////elsewhere/m.db", "sqlite", "sqlite:////elsewhere/m.db"),
        ("http://localhost:5000/", "server", "http://localhost:5000"),
        ("HTTPS://Host/mlflow/", "server", "https://host/mlflow"),
        ("http://h:5000/#/experiments/3", "server", "http://h:5000"),
        ("http://ann:p%40ss@h:5000/mlflow", "server", "http://h:5000/mlflow"),
        ("http://[::1]:5000", "server", "http://[::1]:5000"),
        ("postgresql://ann:pw@db:5432/x?sslmode=on", "database", "postgresql://db:5432/x"),
        ("postgresql+psycopg2://db/x", "database", "postgresql+psycopg2://db/x"),
        ("postgresql://ann:p/w@DB/x?password=pw", "database", "postgresql://db/x"),
    ],
)
def test_addresses_are_understood(written: str, kind: str, public: str) -> None:
    """Every form that MLflow takes has a form without credentials, which stays what it is."""
    address = parse_address(written, home=HOME)
    assert (address.kind, address.public) == (kind, public)
    assert public_uri(public, home=HOME) == public


def test_a_relative_file_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer runs elsewhere, so a relative path is fixed at once."""
    monkeypatch.chdir(tmp_path)
    assert public_uri("sqlite:///m.db", home=HOME) == f"sqlite:///{tmp_path}/m.db"


def test_a_home_that_no_database_address_can_name_is_refused() -> None:
    """A question mark would silently cut the path short."""
    with pytest.raises(BadInput, match="question mark"):
        open_ledger("", home=Path("/what?/home"))


@pytest.mark.parametrize("written", ["", "http://h:5000", "sqlite:////a/b%2Fc.db"])
@pytest.mark.parametrize("home", ["/h%20pct", "/h%c3%BC/x"])
def test_a_percent_escape_in_a_path_is_refused_at_once(written: str, home: str) -> None:
    """It would be read as another character, and another file be opened; the sentence names the escape."""
    with pytest.raises(BadInput, match=r"because %(20|c3) would be read.*; set TIPBENCH_HOME"):
        open_ledger(written, home=Path(home))


def test_a_percent_escape_in_a_file_of_ones_own_is_refused() -> None:
    """`sqlite:///` is followed by a path as it is, not by an encoded one."""
    with pytest.raises(BadInput, match=r"because %2F would be read.*; name another file"):
        open_ledger("sqlite:////a/b%2Fc.db", home=HOME)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("localhost:5000", "did you mean http://localhost:5000 ?"),
        ("./mlruns", "'./mlruns' is not a ledger"),
        ("file:///data/mlruns", "'file:///data/mlruns' is not a ledger"),
        ("databricks", "'databricks' is not a ledger"),
        ("databricks://profile", "is not a ledger"),
        ("mysql://u:pw@h/db", "'mysql://h/db' is not a ledger"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("http://", "not the address of an MLflow server"),
        ("http://h:99999", "not the address of an MLflow server"),
        ("http://h:port", "not the address of an MLflow server"),
        ("http://u:pw@h:5000/?a=b", "'http://h:5000/' with a query (?…) is not the address"),
        ("http://u:p/w@h:5000", "'http://h:5000' is not the address"),
        ("postgresql://u:pw@[h/db", "'postgresql://[h/db' is not the address of a database"),
        ("http://a host:5000", "not the address of an MLflow server"),
    ],
)
def test_what_cannot_be_a_ledger_is_refused_at_once(written: str, says: str) -> None:
    """The refusal repeats what was written, without credentials, and says what to write instead."""
    with pytest.raises(BadInput) as refusal:
        open_ledger(written, home=HOME)
    assert says in str(refusal.value)
    assert "pw" not in str(refusal.value)
