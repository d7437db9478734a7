"""Servers that are down, slow, busy or something else altogether: one sentence each, and soon."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from ledger_samples import sample_pin, sample_result
from ledger_servers import Proxy, free_port
from tipbench.errors import BadInput, LedgerUnreachable, TipbenchError
from tipbench.ledger import open_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from ledger_servers import Deed, MlflowServer, Request

HTML = "text/html"
JSON = "application/json"
BUSY = (
    400,
    JSON,
    b'{"error_code": "BAD_REQUEST", "message": "QueuePool limit of size 5 overflow 10 reached"}',
)


def said_by(proxy: Proxy, home: Path) -> TipbenchError:
    with pytest.raises(TipbenchError) as refusal:
        open_ledger(proxy.url.replace("://", "://ann:secretword@"), home=home).pinned("e")
    message = str(refusal.value)
    assert proxy.url in message
    assert "secretword" not in message
    assert "\n" not in message
    return refusal.value


@pytest.mark.parametrize(
    ("deed", "kind", "says"),
    [
        ((500, HTML, b"<h1>oops"), LedgerUnreachable, "answers HTTP 500"),
        ((503, JSON, b"{}"), LedgerUnreachable, "answers HTTP 503"),
        ((429, HTML, b"slow down"), LedgerUnreachable, "answers HTTP 429"),
        ((404, HTML, b"404 page not found"), LedgerUnreachable, "not as an MLflow server does"),
        ((404, JSON, b'{"detail": "Not Found"}'), LedgerUnreachable, "not as an MLflow server does"),
        ((200, HTML, b"<html>Welcome</html>"), LedgerUnreachable, "not as an MLflow server does"),
        ((200, JSON, b"{}"), LedgerUnreachable, "not as an MLflow server does"),
        ((200, JSON, b'{"experiment": 7}'), LedgerUnreachable, "the MLflow server"),
        ((200, JSON, b"[1, 2]"), LedgerUnreachable, "not as an MLflow server does"),
        ((302, HTML, b""), LedgerUnreachable, "not as an MLflow server does"),
        ((401, HTML, b"You are not authenticated."), LedgerUnreachable, "MLFLOW_TRACKING_USERNAME"),
        ((403, JSON, b'{"error_code": "PERMISSION_DENIED"}'), LedgerUnreachable, "MLFLOW_TRACKING_PASSWORD"),
        ((403, "text/plain", b"Invalid Host header - possible"), LedgerUnreachable, "--mlflow-host-header"),
        (BUSY, LedgerUnreachable, "too busy"),
        ("drop before", LedgerUnreachable, "cannot be reached"),
        ((400, JSON, b'{"error_code": "INVALID_PARAMETER_VALUE", "message": "bad"}'), BadInput, "refused"),
    ],
)
def test_each_trouble_has_its_sentence(deed: Deed, kind: type, says: str, tmp_path: Path) -> None:
    """Whatever answers at the address, the person reads what it was and what to do."""
    with Proxy(decide=lambda _: deed).running() as proxy:
        error = said_by(proxy, tmp_path)
    assert isinstance(error, kind)
    assert says in str(error)


def test_a_server_that_is_down_is_noticed_within_seconds(tmp_path: Path) -> None:
    """A refused connection is not waited for."""
    address = f"http://127.0.0.1:{free_port()}"
    ledger = open_ledger(address, home=tmp_path)
    with pytest.raises(LedgerUnreachable, match=f"{address} cannot be reached"):
        ledger.pinned("e")
    started = time.monotonic()
    with pytest.raises(LedgerUnreachable):
        ledger.pinned("e")
    assert time.monotonic() - started < 30


def test_a_server_that_says_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that accepts and then hangs is asked once, for as long as MLflow's own setting says."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with Proxy(decide=lambda _: "hang").running() as proxy:
        assert "does not answer in time" in str(said_by(proxy, tmp_path))
        assert len(proxy.seen) == 1


def test_a_name_that_does_not_exist_is_unreachable(tmp_path: Path) -> None:
    """A host that no resolver knows is told like a server that is down."""
    with pytest.raises(LedgerUnreachable, match=r"nowhere\.invalid:5000 cannot be reached"):
        open_ledger("http://nowhere.invalid:5000", home=tmp_path).pinned("e")


def stumbling(server: MlflowServer, deed: Deed, *paths: str) -> Proxy:
    """A proxy that does the deed the first time each path is asked for, and passes everything else on."""
    left = list(paths)

    def decide(request: Request) -> Deed:
        for path in left:
            if path in request.path:
                left.remove(path)
                return deed
        return "pass"

    return Proxy(server.port, decide=decide)


STEPS = (
    "experiments/get-by-name",
    "runs/search",
    "runs/create",
    "runs/log-batch",
    "artifacts/",
    "runs/update",
)


@pytest.mark.parametrize("deed", ["drop before", "drop after", BUSY, (503, HTML, b"wait")])
def test_what_fails_for_a_moment_is_tried_again_and_done_once(
    server: MlflowServer, tmp_path: Path, experiment: str, deed: Deed
) -> None:
    """Connections that break before or after the server acted, and busy answers, leave one run per cell."""
    with stumbling(server, deed, *STEPS).running() as proxy:
        ledger = open_ledger(proxy.url, home=tmp_path)
        ledger.pin(experiment, sample_pin())
        ledger.record(experiment, [sample_result(1), sample_result(2)])
        found = ledger._store.experiment(experiment)
        assert found is not None
        rows = ledger._store.cells(found.experiment_id)
    assert sorted(row.status for row in rows) == ["FINISHED", "FINISHED"]
    assert len({row.tags["tipbench.cell"] for row in rows}) == 2


def test_artifacts_that_cannot_be_stored_become_tags(
    server: MlflowServer, tmp_path: Path, experiment: str
) -> None:
    """A server whose artifact store is broken still gets the texts, in the run's tags."""

    def decide(request: Request) -> Deed:
        return (500, HTML, b"no bucket") if request.method == "PUT" else "pass"

    with Proxy(server.port, decide=decide).running() as proxy:
        ledger = open_ledger(proxy.url, home=tmp_path)
        ledger.pin(experiment, sample_pin())
        ledger.record(experiment, [sample_result(text="kept")])
        (run,) = ledger.runs(experiment)
        assert ledger.run(run.run_id)[1].raw == "kept"


def test_a_store_that_cuts_values_is_noticed(server: MlflowServer, tmp_path: Path, experiment: str) -> None:
    """What was written is read back before a run counts: a shortened tag leaves it uncounted."""

    def decide(request: Request) -> Deed:
        return (200, JSON, b"{}") if cutting and request.path.endswith("runs/search") else "pass"

    cutting: list[bool] = []
    with Proxy(server.port, decide=decide).running() as proxy:
        ledger = open_ledger(proxy.url, home=tmp_path)
        ledger.pin(experiment, sample_pin())
        cutting.append(True)
        with pytest.raises(LedgerUnreachable, match="did not keep the tag"):
            ledger.record(experiment, [sample_result()])
        cutting.clear()
        assert ledger.runs(experiment) == []
        ledger.record(experiment, [sample_result()])
        assert [run.status for run in ledger.runs(experiment)] == ["done"]
