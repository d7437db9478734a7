"""The file: made once, for its owner alone, brought up to date, safe between threads and processes."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest

from store_processes import at_once, let_go, started
from tipbench.errors import StoreUnusable
from tipbench.store import Store
from tipbench.store.schema import APPLICATION_ID, VERSION

if TYPE_CHECKING:
    from pathlib import Path

VERSION_1 = """
PRAGMA application_id = 0x74697073;
PRAGMA user_version = 1;
CREATE TABLE token (
    token_id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, role TEXT NOT NULL, prefix TEXT NOT NULL,
    hash BLOB NOT NULL, created_ms INTEGER NOT NULL, last_used_ms INTEGER, revoked_ms INTEGER
);
CREATE UNIQUE INDEX token_name ON token (name) WHERE revoked_ms IS NULL;
CREATE INDEX token_prefix ON token (prefix);
CREATE TABLE audit (
    entry_id INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, who TEXT NOT NULL, role TEXT NOT NULL,
    action TEXT NOT NULL, target TEXT NOT NULL, detail TEXT NOT NULL, ip TEXT NOT NULL
);
CREATE TABLE job (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT NOT NULL UNIQUE, revision INTEGER NOT NULL,
    kind TEXT NOT NULL, title TEXT NOT NULL, experiment TEXT NOT NULL, params TEXT NOT NULL,
    state TEXT NOT NULL, pid INTEGER, pid_started REAL, exit_code INTEGER,
    created_ms INTEGER NOT NULL, started_ms INTEGER, ended_ms INTEGER,
    folder TEXT NOT NULL, "by" TEXT NOT NULL
);
CREATE TABLE draft (
    batch_id TEXT NOT NULL, judge TEXT NOT NULL, item_id TEXT NOT NULL, answer TEXT NOT NULL,
    updated_ms INTEGER NOT NULL, PRIMARY KEY (batch_id, judge, item_id)
) WITHOUT ROWID;
INSERT INTO draft VALUES ('b', 'anna', 'i', '{"use": 2}', 5);
INSERT INTO audit (at_ms, who, role, action, target, detail, ip) VALUES (1, 'w', 'r', 'a', '', '', '');
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def test_only_the_owner_may_read_it(store: Store) -> None:
    """The folder, the file and what SQLite lays beside it are closed to others, whatever the umask."""
    before = os.umask(0)
    try:
        store.tokens.create("anna", "judge", now_ms=1)
    finally:
        os.umask(before)
    assert mode(store.path.parent) == 0o700
    beside = list(store.path.parent.iterdir())
    assert {path.name for path in beside} == {"service.db", "service.db-wal", "service.db-shm"}
    assert {mode(path) for path in beside} == {0o600}


def test_a_copy_that_others_may_read_is_narrowed(path: Path) -> None:
    """A file that was put back with too wide permissions is closed when it is next opened."""
    with Store(path) as store:
        store.tokens.list()
    path.chmod(0o664)
    with Store(path) as store:
        store.tokens.list()
        assert mode(path) == 0o600


def test_a_folder_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    """Whoever made the folder may share the rest of it."""
    tmp_path.chmod(0o755)
    with Store(tmp_path / "service.db") as store:
        store.tokens.list()
    assert mode(tmp_path) == 0o755


def test_nothing_is_made_before_it_is_needed(path: Path) -> None:
    """A store that nobody asks anything leaves no trace."""
    Store(path).close()
    assert not path.parent.exists()


def test_it_is_durable_and_waits_for_others(store: Store) -> None:
    """Writes go to the disk itself, beside readers, and wait for another process's."""
    with store._database.reading() as db:
        asked = {
            name: next(iter(db.execute(f"PRAGMA {name}").fetchone().values()))
            for name in ("journal_mode", "synchronous", "busy_timeout", "application_id", "user_version")
        }
    assert asked == {
        "journal_mode": "wal",
        "synchronous": 2,
        "busy_timeout": 30_000,
        "application_id": APPLICATION_ID,
        "user_version": VERSION,
    }


def test_version_1_is_brought_up_with_what_it_holds(path: Path) -> None:
    """A file of the first version keeps its rows and gets what came later."""
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as db:
        db.executescript(VERSION_1)
    with Store(path) as store:
        assert store.drafts.get("b", "anna") == {"i": {"use": 2}}
        assert [entry.who for entry in store.audit.page()] == ["w"]
        assert store.seen.first_time("n", 1)
        assert len(store.secrets.get("session")) == 32
    assert version_of(path) == VERSION


def test_several_processes_bring_it_up_once(path: Path) -> None:
    """Whoever comes second finds it done, and nobody fails."""
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as db:
        db.executescript(VERSION_1)
    assert len(set(at_once(path, "print(store.secrets.get('session').hex())", count=4))) == 1
    assert version_of(path) == VERSION


def test_several_processes_make_it_once(path: Path) -> None:
    """Of several that find no file, all end up with the same one."""
    printed = at_once(path, "print(store.secrets.get('session').hex())", count=4)
    assert len(set(printed)) == 1
    assert len(printed[0].strip()) == 64


def test_a_step_that_fails_leaves_the_file_as_it_was(path: Path) -> None:
    """A file that cannot be brought up whole is not brought up in part."""
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as db:
        db.executescript(VERSION_1 + "CREATE TABLE attempt (something_else);")
    with Store(path) as store, pytest.raises(StoreUnusable, match=r"service\.db"):
        store.tokens.list()
    assert version_of(path) == 1
    with closing(sqlite3.connect(path)) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    assert not tables & {"seen", "delivery", "secret"}


def test_a_newer_file_is_refused(path: Path) -> None:
    """What a later tipbench made is left alone, and one sentence says so."""
    with Store(path) as store:
        store.tokens.list()
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {VERSION + 1}")
    with Store(path) as store, pytest.raises(StoreUnusable) as told:
        store.tokens.list()
    assert str(told.value) == f"{path} was made by a newer tipbench; use that one"
    assert version_of(path) == VERSION + 1


@pytest.mark.parametrize(
    "content", [b"not a database", b"x" * 5000, b"SQLite format 3\x00" + b"\xff" * 2000, b"\x00" * 4096]
)
def test_a_file_that_is_no_database_is_told_and_kept(path: Path, content: bytes) -> None:
    """The sentence names the file and what to do; not a byte of it is changed."""
    path.parent.mkdir()
    path.write_bytes(content)
    with Store(path) as store, pytest.raises(StoreUnusable, match=r"service\.db is damaged.*restore it"):
        store.tokens.create("anna", "judge", now_ms=1)
    assert path.read_bytes() == content


@pytest.mark.parametrize("application", [0, 0x7469_7062])
def test_another_programs_database_is_left_alone(path: Path, application: int) -> None:
    """A SQLite file that is not ours is refused before anything in it is changed."""
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as db:
        db.executescript(f"PRAGMA application_id = {application}; CREATE TABLE mine (x)")
    content = path.read_bytes()
    with Store(path) as store, pytest.raises(StoreUnusable, match="another program"):
        store.tokens.list()
    assert path.read_bytes() == content


def test_damage_inside_is_told(path: Path) -> None:
    """Pages that were overwritten are found when they are read, and named as damage."""
    with Store(path) as store:
        for number in range(200):
            store.audit.add(who="w" * 100, role="r", action="a", now_ms=number)
    content = bytearray(path.read_bytes())
    content[4096:] = b"\x5a" * (len(content) - 4096)
    path.write_bytes(content)
    with Store(path) as store, pytest.raises(StoreUnusable, match="damaged"):
        store.audit.page()


def test_a_table_that_is_gone_is_told(path: Path) -> None:
    """A file whose tables somebody took away is damaged, not a crash."""
    with Store(path) as store:
        store.tokens.list()
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE token")
    with Store(path) as store, pytest.raises(StoreUnusable, match=r"damaged.*no such table"):
        store.tokens.list()


def test_an_empty_file_is_a_new_one(path: Path) -> None:
    """What was ended right after it made the file did not spoil it."""
    path.parent.mkdir()
    path.touch()
    with Store(path) as store:
        store.tokens.create("anna", "judge", now_ms=1)
    with Store(path) as store:
        assert [token.name for token in store.tokens.list()] == ["anna"]


def test_the_remains_of_a_file_that_was_taken_away_do_no_harm(path: Path) -> None:
    """Whoever moves the file away and forgets what lay beside it begins with an empty one."""
    process = started(
        path, "store.tokens.create('anna', 'judge', now_ms=1); print('x', flush=True); time.sleep(60)"
    )
    with process:
        let_go(process)
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    assert path.with_name("service.db-wal").stat().st_size
    path.unlink()
    with Store(path) as store:
        assert store.tokens.list() == ()


@pytest.mark.parametrize("where", ["a-file/service.db", "a-folder"])
def test_a_place_where_no_file_can_be_is_told(tmp_path: Path, where: str) -> None:
    """A folder in the file's place, or a file in the folder's, gets a sentence with what to do."""
    (tmp_path / "a-file").touch()
    (tmp_path / "a-folder").mkdir()
    with (
        Store(tmp_path / where) as store,
        pytest.raises(StoreUnusable, match=r"cannot be used.*TIPBENCH_HOME"),
    ):
        store.tokens.list()


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_file_that_may_not_be_written_is_told(path: Path) -> None:
    """Somebody else's file gets a sentence, and can still be read."""
    with Store(path) as store:
        store.tokens.list()
    path.chmod(0o400)
    path.parent.chmod(0o500)
    try:
        with Store(path) as store, pytest.raises(StoreUnusable, match="cannot be used"):
            store.tokens.create("anna", "judge", now_ms=1)
    finally:
        path.parent.chmod(0o700)


def test_a_full_disk_is_told_and_costs_nothing_that_was_there(store: Store) -> None:
    """What does not fit is refused with a sentence; what was kept before stays as it was."""
    store.drafts.put("b", "anna", "i", {"note": "short"}, now_ms=1)
    with store._database.writing() as db:
        pages = db.execute("PRAGMA page_count").fetchone()["page_count"]
        db.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StoreUnusable, match="full"):
        store.drafts.put("b", "anna", "i", {"note": "x" * 100_000}, now_ms=2)
    assert store.drafts.get("b", "anna") == {"i": {"note": "short"}}


def test_a_block_is_kept_as_a_whole_or_not_at_all(store: Store) -> None:
    """What was written before the block failed is taken back, and the store goes on."""
    with suppress(KeyboardInterrupt), store.together():
        store.tokens.create("anna", "judge", now_ms=1)
        assert [token.name for token in store.tokens.list()] == ["anna"], "the block sees its own writes"
        raise KeyboardInterrupt
    assert store.tokens.list() == ()
    with store.together():
        store.tokens.create("anna", "judge", now_ms=1)
        store.audit.add(who="w", role="r", action="a", now_ms=1)
    assert len(store.tokens.list()) == len(store.audit.page()) == 1


def test_threads_share_a_store(store: Store) -> None:
    """Many threads read and write at once; nothing is lost and nobody is turned away."""
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(10):
                store.drafts.put("b", "anna", f"{number}-{turn}", {"use": turn}, now_ms=turn)
                store.tokens.verify("tb_judge_unknown", now_ms=1)
                store.drafts.get("b", "anna")
        except BaseException as error:  # noqa: BLE001 - told below
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(store.drafts.get("b", "anna")) == 120


def test_readers_do_not_wait_for_a_writer(store: Store) -> None:
    """What is being written by another thread is not seen, and does not hold up who reads."""
    store.drafts.put("b", "anna", "i", {"use": 1}, now_ms=1)
    seen: list[object] = []
    with store.together():
        store.drafts.put("b", "anna", "i", {"use": 2}, now_ms=2)
        thread = threading.Thread(target=lambda: seen.append(store.drafts.get("b", "anna")))
        thread.start()
        thread.join(timeout=5)
        assert seen == [{"i": {"use": 1}}]
    assert store.drafts.get("b", "anna") == {"i": {"use": 2}}


def test_a_store_can_be_closed_and_used_again(store: Store) -> None:
    """Closing lets go of the file; the next question opens it."""
    store.tokens.create("anna", "judge", now_ms=1)
    store.close()
    assert not store.path.with_name("service.db-wal").exists(), "nothing is left beside the file"
    assert len(store.tokens.list()) == 1
