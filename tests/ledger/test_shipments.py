"""What was shipped, on every ledger: versions that are whole, an alias that alone decides."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ledger_samples import sample_pin, sample_result
from ledger_servers import Proxy
from tipbench.errors import BadInput, LedgerUnreachable, NotFound
from tipbench.ledger import open_ledger
from tipbench.ledger.shipments import from_tags, model_name, to_tags
from tipbench.records import Sampling, Shipped

if TYPE_CHECKING:
    from pathlib import Path

    from ledger_servers import MlflowServer, Request
    from tipbench.ledger import MemoryLedger, MlflowLedger

    from .conftest import Place

    AnyLedger = MlflowLedger | MemoryLedger


@pytest.fixture
def suite(experiment: str) -> str:
    """A suite of its own: the stores are shared by all tests."""
    return experiment.replace(" ", "-")


def shipped(suite: str, model: str = "tiny:1b") -> Shipped:
    return Shipped(
        suite_id=suite,
        suite_hash="s" * 64,
        experiment="bench – may",
        model=model,
        digest="d" * 64,
        prompt_id="v1",
        prompt_hash="p" * 64,
        n_tips=3,
        sampling=Sampling(temperature=0.1 + 0.2, num_ctx=2048, num_predict=400, think=True),
        ground="human",
        because="recommended",
        mean=14.123456789012345,
        low=None,
        high=16.0,
        cautions=tuple(f"The {n}th thing:\nto know – ä" for n in range(12)),
        shipped_ms=1_700_000_000_000,
        label=f"{model} · v1 · t=0.3",
    )


def test_a_version_without_a_label_is_read() -> None:
    """Tags that an earlier version wrote have none."""
    tags = to_tags(shipped("tip"))
    assert tags.pop("tipbench.label") == "tiny:1b · v1 · t=0.3"
    assert from_tags(4, tags, where="here") == replace(shipped("tip"), version=4, label="")


def test_a_version_is_read_back_whole(place: Place, suite: str) -> None:
    """Another opening of the ledger finds all that was written, and nothing is in force yet."""
    given = shipped(suite)
    made = place.open().add_shipment(given)
    assert made == replace(given, version=1)
    assert place.open().shipments(suite) == [made]
    assert place.open().shipped(suite) is None


def test_the_alias_decides_what_is_in_force(place: Place, suite: str) -> None:
    """It moves forth and back between versions, and other suites are not touched."""
    ledger = place.open()
    first = ledger.add_shipment(shipped(suite))
    second = ledger.add_shipment(replace(shipped(suite, "other:1b"), replaces=first.version))
    for one in (first, second, first):
        ledger.set_shipped(suite, one.version)
        assert place.open().shipped(suite) == one
    assert place.open().shipments(suite) == [first, second]
    assert ledger.shipped(f"{suite}-else") is None
    assert ledger.shipments(f"{suite}-else") == []


def test_a_version_that_is_not_there_cannot_be_put_in_force(ledger: AnyLedger, suite: str) -> None:
    """It is named, and what was in force stays so."""
    made = ledger.add_shipment(shipped(suite))
    ledger.set_shipped(suite, made.version)
    for name, version in ((suite, 7), (f"{suite}-else", 1)):
        with pytest.raises(NotFound, match=f"version {version} of the registered model 'tipbench-{name}'"):
            ledger.set_shipped(name, version)
    assert ledger.shipped(suite) == made


def test_the_options_of_runs_are_known(ledger: AnyLedger, experiment: str) -> None:
    """Each run has the sampling options that it was generated with."""
    results = [sample_result(1), sample_result(2)]
    ledger.pin(experiment, sample_pin())
    ledger.record(experiment, results)
    known = {run.key: run.sampling for run in ledger.runs(experiment)}
    assert known == {result.cell.key: result.cell.sampling for result in results}


def test_names_that_a_registry_refuses_are_made_plain(ledger: AnyLedger) -> None:
    """A suite's id may hold what stands for something else in a search or an address."""
    assert model_name("a/b:c 'd'") == "tipbench-a_b_c__d_"
    made = ledger.add_shipment(shipped("a/b:c 'd'"))
    ledger.set_shipped("a/b:c 'd'", made.version)
    assert ledger.shipped("a/b:c 'd'") == made


def test_what_somebody_else_registered_is_left_alone(mlflow_ledger: MlflowLedger, suite: str) -> None:
    """A stranger's version is not among ours; the alias on it is an error that says so."""
    client = mlflow_ledger._store._client
    client.create_registered_model(model_name(suite))
    client.create_model_version(model_name(suite), "theirs:/model", tags={"a": "b"})
    made = mlflow_ledger.add_shipment(shipped(suite))
    assert (made.version, mlflow_ledger.shipments(suite)) == (2, [made])
    client.set_registered_model_alias(model_name(suite), "shipped", "1")
    with pytest.raises(BadInput, match="on version 1, which tipbench did not write"):
        mlflow_ledger.shipped(suite)


def test_a_version_that_lost_its_tags_is_named(mlflow_ledger: MlflowLedger, suite: str) -> None:
    """Nobody serves by halves what was written whole."""
    made = mlflow_ledger.add_shipment(shipped(suite))
    mlflow_ledger.set_shipped(suite, made.version)
    mlflow_ledger._store._client.delete_model_version_tag(model_name(suite), "1", "tipbench.digest")
    with pytest.raises(BadInput, match=r"version 1 at .* lacks what tipbench wrote there"):
        mlflow_ledger.shipped(suite)


def test_a_lost_answer_makes_no_second_version(server: MlflowServer, tmp_path: Path, suite: str) -> None:
    """Whichever answer is lost, there is one version for each shipping, and it is in force."""
    direct = open_ledger(server.url, home=tmp_path / "direct")
    for lost in range(5):

        def decide(request: Request, lost: int = lost) -> str:
            return "drop after" if request.number % 5 == lost else "pass"

        with Proxy(server.port, decide=decide).running() as proxy:
            ledger = open_ledger(proxy.url, home=tmp_path / "home")
            made = ledger.add_shipment(shipped(suite, f"m{lost}"))
            ledger.set_shipped(suite, made.version)
        assert direct.shipped(suite) == made
    assert [one.model for one in direct.shipments(suite)] == [f"m{n}" for n in range(5)]


def test_a_server_that_is_away_is_named(tmp_path: Path, suite: str) -> None:
    """Every verb of shipping says where the ledger should be and what to do."""
    ledger = open_ledger("http://127.0.0.1:9", home=tmp_path)
    deeds = (
        lambda: ledger.add_shipment(shipped(suite)),
        lambda: ledger.set_shipped(suite, 1),
        lambda: ledger.shipped(suite),
        lambda: ledger.shipments(suite),
    )
    with ThreadPoolExecutor(len(deeds)) as pool:
        for deed in [pool.submit(deed) for deed in deeds]:
            with pytest.raises(LedgerUnreachable, match=r"127.0.0.1:9 cannot be reached; start it"):
                deed.result()
