"""The spool: durable, in order, honest about damage, and free of passwords."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import zlib
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger_samples import sample_pin, sample_result
from tipbench.errors import PinConflict, SpoolUnusable
from tipbench.ledger import Spool, public_uri
from tipbench.ledger.codec import result_from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tipbench.records import CellResult

PIN = sample_pin()


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with Spool(tmp_path / "home" / "spool.db") as opened:
        yield opened


def taken(spool: Spool, experiment: str = "e", *, ledger: str = "", limit: int = 100) -> list[CellResult]:
    return [entry.result for entry in spool.take(ledger, experiment, limit=limit)]


def test_what_was_put_is_taken_in_order_by_anyone(spool: Spool) -> None:
    """Another opening of the same file takes the same results in the order they came."""
    results = [sample_result(n, error="x" if n == 1 else None) for n in (3, 1, 2)]
    for result in results:
        spool.put("", "e", PIN, result)
    with Spool(spool.path) as other:
        assert taken(other) == results
        assert taken(other, limit=2) == results[:2]
        assert other.known_pin("", "e") == PIN


def test_a_batch_is_bounded_in_bytes(spool: Spool) -> None:
    """Long replies make shorter batches, of one result at least."""
    for n in range(4):
        spool.put("", "e", PIN, sample_result(n, text="x" * 10_000))
    sizes = [len(spool.take("", "e", limit=9, most_bytes=most)) for most in (1, 15_000, 10**9)]
    assert sizes == [1, 2, 4]


def test_a_success_replaces_a_failure_that_waits(spool: Spool) -> None:
    """Of one cell one result waits: the success, or else the latest failure."""
    spool.put("", "e", PIN, sample_result(1, error="first"))
    spool.put("", "e", PIN, sample_result(1, error="second"))
    assert [result.error for result in taken(spool)] == ["second"]
    spool.put("", "e", PIN, sample_result(1))
    spool.put("", "e", PIN, sample_result(1, error="late"))
    spool.put("", "e", PIN, sample_result(1, text="another success"))
    assert taken(spool) == [sample_result(1)]


def test_what_replaced_a_failure_meanwhile_is_not_struck_out(spool: Spool) -> None:
    """A success that comes while its failure is being recorded still waits afterwards."""
    spool.put("", "e", PIN, sample_result(1, error="x"))
    being_recorded = spool.take("", "e", limit=9)
    spool.put("", "e", PIN, sample_result(1))
    spool.recorded(being_recorded)
    assert taken(spool) == [sample_result(1)]


def test_recorded_results_are_struck_out_and_remembered(spool: Spool) -> None:
    """What is recorded waits no longer; its successes stay known for planning without the ledger."""
    for n, error in ((1, None), (2, "x"), (3, None)):
        spool.put("", "e", PIN, sample_result(n, error=error))
    spool.recorded(spool.take("", "e", limit=2))
    keys = [sample_result(n).cell.key for n in (1, 2, 3)]
    assert taken(spool) == [sample_result(3)]
    assert spool.known_keys("", "e") == {keys[0], keys[2]}
    assert spool.pending_keys("", "e") == {keys[2]}
    assert spool.known_keys("", "another") == set()


def test_waiting_results_are_counted_by_ledger_and_experiment(spool: Spool) -> None:
    """What waits is told per ledger and experiment, the longest waiting first."""
    spool.put("http://host:5000", "b", PIN, sample_result(1))
    spool.put("", "a", PIN, sample_result(1))
    spool.put("", "a", PIN, sample_result(2))
    home = spool.path.parent
    assert [(w.ledger, w.experiment, w.count) for w in spool.pending()] == [
        ("http://host:5000", "b", 1),
        (public_uri("", home=home), "a", 2),
    ]
    assert [w.count for w in spool.pending("")] == [2]
    assert [w.count for w in spool.pending(public_uri("", home=home))] == [2]
    assert spool.pending("http://other:5000") == []


def test_what_is_discarded_is_generated_again_and_nothing_else(spool: Spool) -> None:
    """The cells that wait are deleted; recorded cells and other experiments stay known."""
    for experiment in ("e", "other"):
        for n in (1, 2):
            spool.put("http://a:1", experiment, PIN, sample_result(n))
    spool.recorded(spool.take("http://a:1", "e", limit=1))
    assert spool.discard("http://a:1", "e") == 1
    assert spool.known_keys("http://a:1", "e") == {sample_result(1).cell.key}
    assert spool.known_pin("http://a:1", "e") == PIN
    assert len(spool.known_keys("http://a:1", "other")) == 2
    assert spool.discard("http://a:1", "e") == 0


def test_an_experiment_without_cells_has_no_pin(spool: Spool) -> None:
    """Where all cells were discarded, the texts of the prompts may change."""
    spool.put("http://a:1", "e", PIN, sample_result(1))
    assert spool.discard("http://a:1", "e") == 1
    assert spool.known_pin("http://a:1", "e") is None
    changed = replace(PIN, prompts={"v1": "changed"})
    spool.put("http://a:1", "e", changed, sample_result(2))
    assert spool.known_pin("http://a:1", "e") == changed


def test_pins_are_widened_and_guarded(spool: Spool) -> None:
    """The known pin grows by new ids; a changed text is refused before anything is kept."""
    spool.put("", "e", sample_pin(prompts=["v1"]), sample_result(1))
    spool.put("", "e", sample_pin(prompts=["v2"]), sample_result(2))
    assert spool.known_pin("", "e") == sample_pin(prompts=["v1", "v2"])
    with pytest.raises(PinConflict, match="'v1'"):
        spool.put("", "e", replace(PIN, prompts={"v1": "changed"}), sample_result(3))
    assert len(taken(spool)) == 2
    assert spool.known_pin("", "unknown") is None


def test_what_the_ledger_said_is_remembered(spool: Spool) -> None:
    """Keys and pin read from a ledger are known later, when it cannot be reached."""
    spool.remember("http://host:5000", "e", PIN, ["k1", "k2"])
    spool.remember("http://host:5000/", "e", PIN, ["k2", "k3"])
    assert spool.known_keys("http://host:5000", "e") == {"k1", "k2", "k3"}
    assert spool.known_pin("http://host:5000", "e") == PIN


def test_a_rubric_that_the_ledger_changed_is_taken_over(spool: Spool) -> None:
    """What a person changed there on purpose is known here from then on; a result cannot change it."""
    spool.put("", "e", sample_pin(prompts=["v1"]), sample_result(1))
    changed = replace(sample_pin(prompts=["v2"]), rubric_id="tip-v2", rubric_hash="q" * 64, rubric_text="new")
    with pytest.raises(PinConflict, match="'tip-v2'"):
        spool.put("", "e", changed, sample_result(2))
    spool.remember("", "e", changed)
    assert spool.known_pin("", "e") == replace(changed, prompts=sample_pin(prompts=["v1", "v2"]).prompts)
    spool.put("", "e", changed, sample_result(2))
    with pytest.raises(PinConflict, match="'v1'"):
        spool.remember("", "e", replace(changed, prompts={"v1": "changed"}))


def test_passwords_are_not_stored(spool: Spool) -> None:
    """No file in the home holds the credentials of a ledger's address, and the ledger is still the same."""
    for url in ("http://ann:secretword@host:5000/", "postgresql://ann:secretword@db/x?password=secretword"):
        spool.put(url, "e", PIN, sample_result(1))
    assert [w.ledger for w in spool.pending()] == ["http://host:5000", "postgresql://db/x"]
    assert spool.pending_keys("http://bob:other@host:5000", "e") == {sample_result(1).cell.key}
    spool.close()
    for file in spool.path.parent.iterdir():
        assert b"secretword" not in file.read_bytes()


def test_the_embedded_ledger_moves_with_its_home(spool: Spool) -> None:
    """What waits for the embedded store waits for the one beside the spool, wherever both are."""
    spool.put("", "e", PIN, sample_result(1))
    spool.close()
    home = spool.path.parent
    moved = home.rename(home.parent / "moved")
    with Spool(moved / "spool.db") as again:
        assert [w.ledger for w in again.pending()] == [public_uri("", home=moved)]
        assert again.pending_keys("", "e") == {sample_result(1).cell.key}


@given(
    text=st.text(st.characters(codec=None), max_size=50),
    tips=st.lists(st.text(st.characters(codec=None), max_size=20), max_size=3),
    number=st.floats(allow_nan=False),
)
@settings(max_examples=60)
def test_results_survive_without_loss(text: str, tips: list[str], number: float) -> None:
    """Any text, lone surrogates included, and any number come back equal from JSON."""
    result = sample_result(text=text, thinking=text, tips=tips)
    assert result.completion is not None
    result = replace(result, completion=replace(result.completion, tokens_per_s=number, cut="reply"))
    back = result_from_json(to_json(result))
    assert back == result
    assert back.cell.key == result.cell.key
    failure = sample_result(error=text)
    assert result_from_json(to_json(failure)) == failure


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "no database": lambda _: b"this is not a database" * 100,
    "torn off": lambda data: data[: len(data) // 2],
    "zeros in the middle": lambda data: data[:4096] + bytes(len(data) - 4096),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_spool_is_never_an_empty_start(spool: Spool, how: str) -> None:
    """A file that is not whole is an error that names it, whatever is asked of it."""
    for n in range(30):
        spool.put("", "e", PIN, sample_result(n, text="x" * 3000))
    spool.close()
    spool.path.write_bytes(DAMAGE[how](spool.path.read_bytes()))
    with Spool(spool.path) as again, pytest.raises(SpoolUnusable, match=r"spool\.db"):
        again.take("", "e", limit=100)


def test_a_flipped_bit_is_noticed(spool: Spool) -> None:
    """A result whose bytes changed on disk is not recorded as if it were what the model said."""
    spool.put("", "e", PIN, sample_result(text="the quick brown fox"))
    spool.close()
    data = spool.path.read_bytes()
    assert data.count(b"quick brown") == 1
    spool.path.write_bytes(data.replace(b"quick brown", b"quick brawn"))
    with Spool(spool.path) as again, pytest.raises(SpoolUnusable, match="checksum"):
        again.take("", "e", limit=1)


def test_a_result_from_before_machines_were_recorded_is_read(spool: Spool) -> None:
    """What an older tipbench left in the spool lacks the newer fields, and is recorded without them."""
    result = sample_result()
    spool.put("", "e", PIN, result)
    spool.close()
    with closing(sqlite3.connect(spool.path)) as db:
        (text,) = db.execute("SELECT result FROM pending").fetchone()
        old = json.loads(text)
        del old["vram_share"], old["host"]["machine"], old["host"]["hardware"]
        text = json.dumps(old)
        db.execute("UPDATE pending SET result = ?, crc = ?", (text, zlib.crc32(text.encode())))
        db.commit()
    with Spool(spool.path) as again:
        (entry,) = again.take("", "e", limit=1)
    assert entry.result == result


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    """A SQLite file that is not a spool is left alone."""
    path = tmp_path / "spool.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE pending (x)")
    with Spool(path) as spool, pytest.raises(SpoolUnusable, match="another program"):
        spool.pending()


def test_a_spool_of_a_newer_version_is_refused(spool: Spool) -> None:
    """A spool that a newer tipbench made is not guessed at."""
    spool.put("", "e", PIN, sample_result())
    spool.close()
    with closing(sqlite3.connect(spool.path)) as db:
        db.execute("PRAGMA user_version = 99")
    with Spool(spool.path) as again, pytest.raises(SpoolUnusable, match="newer tipbench"):
        again.pending()


@pytest.mark.parametrize("where", ["file/home/spool.db", "folder"])
def test_a_place_that_cannot_hold_a_spool_is_named(where: str, tmp_path: Path) -> None:
    """A home that is no folder, or a folder in the spool's place, is told in one sentence."""
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with Spool(tmp_path / where) as spool, pytest.raises(SpoolUnusable, match="TIPBENCH_HOME") as refusal:
        spool.put("", "e", PIN, sample_result())
    assert str(tmp_path / where) in str(refusal.value)


def test_threads_may_share_a_spool(spool: Spool) -> None:
    """Several threads that put at once lose nothing."""

    def fill(start: int) -> None:
        for n in range(start, start + 20):
            spool.put("", "e", PIN, sample_result(n))

    threads = [threading.Thread(target=fill, args=(start,)) for start in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken(spool)) == 60


PUT_AND_SAY = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from ledger_samples import sample_pin, sample_result
from tipbench.ledger import Spool
pin = sample_pin()
with Spool(Path(sys.argv[2])) as spool:
    for n in range(int(sys.argv[3]), 10**9):
        spool.put("", "e", pin, sample_result(n, text="x" * (n % 5000)))
        print(n, flush=True)
"""


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Killed at any moment, a process has left every result it acknowledged, whole, while others read."""
    path = tmp_path / "spool.db"
    tests = str(request.config.rootpath / "tests")
    rng = random.Random(7)  # noqa: S311 - moments, not secrets
    acknowledged: list[int] = []
    for round_ in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", PUT_AND_SAY, tests, str(path), str(round_ * 100_000)],
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        acknowledged.append(int(child.stdout.readline()))
        with Spool(path) as reader:
            assert reader.pending()
        time.sleep(rng.uniform(0.01, 0.3))
        os.kill(child.pid, signal.SIGKILL)
        acknowledged += [int(line) for line in child.stdout.read().split(b"\n")[:-1]]
        child.wait()
        child.stdout.close()
    with Spool(path) as spool:
        there = {entry.result for entry in spool.take("", "e", limit=10**6, most_bytes=10**12)}
    assert len(acknowledged) > 8
    expected = {sample_result(n, text="x" * (n % 5000)) for n in acknowledged}
    assert expected <= there
    assert len(there) <= len(acknowledged) + 4


def test_a_sealed_spool_changes_no_more(spool: Spool) -> None:
    """Reads go on, and every write through this object is refused; other processes go on."""
    spool.put("", "e", PIN, sample_result(0))
    (entry,) = spool.take("", "e", limit=1)
    spool.seal()
    with pytest.raises(SpoolUnusable):
        spool.put("", "e", PIN, sample_result(1))
    with pytest.raises(SpoolUnusable):
        spool.recorded([entry])
    assert [one.count for one in spool.pending()] == [1]
    with Spool(spool.path) as other:
        other.recorded([entry])
    assert spool.pending() == []


def made_old(spool: Spool, *, version: int) -> None:
    """Turn the file into one of an older version, which lacks tables."""
    spool.close()
    with closing(sqlite3.connect(spool.path)) as db:
        db.execute("DROP TABLE unchecked")
        if version == 1:
            db.execute("DROP TABLE late_mark")
        db.execute(f"PRAGMA user_version = {version}")


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_spool_is_converted(spool: Spool, version: int) -> None:
    """Its results stay, and it takes marks; many processes may open it at once."""
    result = sample_result()
    spool.put("", "e", PIN, result)
    made_old(spool, version=version)
    problems: list[Exception] = []

    def use(n: int) -> None:
        try:
            with Spool(spool.path) as opened:
                opened.add_marks("", "e", {f"key{n}": ["digest-changed"]})
        except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
            problems.append(error)

    threads = [threading.Thread(target=use, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    with Spool(spool.path) as again:
        assert taken(again) == [result]
        assert again.unchecked("", "e") == []
        again.put("", "e", PIN, sample_result(1))
        assert [cell.key for cell in again.unchecked("", "e")] == [sample_result(1).cell.key]
        assert set(again.marks("", "e")) == {f"key{n}" for n in range(4)}


def test_marks_wait_by_experiment_until_they_are_recorded(spool: Spool) -> None:
    """The same mark counts once; a mark that came later stays when earlier ones are struck out."""
    spool.add_marks("", "e", {"k": ["possibly-truncated"], "other": ["digest-changed"]})
    spool.add_marks("", "e", {"k": ["possibly-truncated"]})
    first = spool.marks("", "e")
    spool.add_marks("", "e", {"k": ["digest-changed"]})
    with Spool(spool.path) as other:
        assert other.marks("", "e") == {
            "k": ("digest-changed", "possibly-truncated"),
            "other": ("digest-changed",),
        }
        assert [(one.experiment, one.count, one.marks) for one in other.waiting()] == [("e", 0, 3)]
        other.marks_recorded("", "e", first)
        assert other.marks("", "e") == {"k": ("digest-changed",)}
        assert other.pending() == []
