"""State that cannot be read is an error that names it, never an empty start. A full disk passes."""

from __future__ import annotations

import re
import shutil
import sqlite3
import threading
from typing import TYPE_CHECKING
from urllib.parse import quote

import psycopg
import pytest

from tipbench.bandit.asked import RewardReply, ScoreReply
from tipbench.bandit.asks import Reset
from tipbench.bandit.opening import open_books as open_at
from tipbench.bandit.postgres_books import SCHEMA, PostgresBooks
from tipbench.bandit.sqlite_books import SqliteBooks
from tipbench.errors import BadInput, BadState, NotFound, StateUnusable
from tips_world import decided, make_tips, one, only, reward, score, seen, told

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from postgres_cluster import Cluster
    from tipbench.bandit.books import Books

    OpenBooks = Callable[[], Books]


def used(path: Path) -> SqliteBooks:
    """Books with something in them, closed."""
    books = SqliteBooks(path)
    tips = make_tips(books)
    for number in range(40):
        told(tips, reward(decided(tips, score(f"u{number}", f"q{number}", "hybrid"))))
    books.close()
    return books


def cut_to(size: int) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(path.read_bytes()[:size])


def _overwrite(start: int, many: int, what: bytes) -> Callable[[Path], object]:
    def damage(path: Path) -> None:
        whole = bytearray(path.read_bytes())
        whole[start : start + many] = (what * many)[:many]
        path.write_bytes(whole)

    return damage


def _replaced(old: bytes, new: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(path.read_bytes().replace(old, new))


def _statement(sql: str) -> Callable[[Path], object]:
    def damage(path: Path) -> None:
        db = sqlite3.connect(path)
        db.executescript(sql)
        db.close()

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        cut_to(0),
        cut_to(50),
        cut_to(100),
        cut_to(4096),
        cut_to(10_000),
        _overwrite(0, 100, b"\0"),
        _overwrite(0, 16, b"not SQLite at all"),
        _overwrite(4096, 40_000, b"\xff"),
        _replaced(b"CREATE TABLE profiles", b"CR\xcfATE TABLE profiles"),
        _statement("DROP TABLE profiles"),
        _statement("DROP TABLE fresh"),
        _statement("UPDATE fresh SET place = 'nowhere'"),
        _statement("UPDATE fresh SET value = 'no seq'"),
        _statement("PRAGMA user_version = 1"),
        _statement("DELETE FROM meta"),
        _statement("UPDATE meta SET value = x'00'"),
        _statement("PRAGMA application_id = 7"),
        _statement("PRAGMA user_version = 99"),
        lambda path: path.write_text("a plain text file, and not a short one\n" * 200),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    """Cut short, emptied, overwritten, another program's, or from the future: it is never started anew."""
    path = tmp_path / "tips.db"
    used(path)
    damage(path)
    before = path.read_bytes()
    with pytest.raises(StateUnusable, match=r"tips\.db"):
        told(make_tips(SqliteBooks(path)), reward("nothing"))
    assert path.read_bytes() == before


def test_text_that_is_not_unicode_is_damage(tmp_path: Path) -> None:
    """It is not said of it that the disk may be full."""
    path = tmp_path / "tips.db"
    used(path)
    _statement("UPDATE log SET user_id = CAST(x'ff41' AS TEXT)")(path)
    (answer,) = make_tips(SqliteBooks(path)).run([score("u1", "q1", "hybrid")])
    assert isinstance(answer, StateUnusable)
    assert "is damaged" in str(answer)


def test_what_contradicts_what_was_looked_up_is_damage(tmp_path: Path) -> None:
    """A row that cannot be there is there, by a damaged page or, here, by an index that is not ours."""
    path = tmp_path / "tips.db"
    used(path)
    _statement("CREATE UNIQUE INDEX one_each ON log (user_id)")(path)
    (answer,) = make_tips(SqliteBooks(path)).run([score("u1", "next", "hybrid")])
    assert isinstance(answer, StateUnusable)
    assert "is damaged" in str(answer)


def test_a_folder_in_the_place_of_the_file_is_named(tmp_path: Path) -> None:
    """What is there but cannot be opened is said."""
    (tmp_path / "tips.db").mkdir()
    with pytest.raises(StateUnusable, match=r"tips\.db"):
        SqliteBooks(tmp_path / "tips.db")


def test_a_place_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A home below a file is an error about that place."""
    (tmp_path / "home").write_text("a file")
    with pytest.raises(StateUnusable, match="TIPBENCH_HOME"):
        SqliteBooks(tmp_path / "home" / "tips.db")


@pytest.mark.parametrize("make", [True, False])
def test_a_place_that_cannot_be_looked_at_is_named(tmp_path: Path, make: bool) -> None:  # noqa: FBT001 - a parameter
    """Such as a folder that is somebody else's; or, also for root, a name that no file can have."""
    with pytest.raises(StateUnusable, match=r"cannot be used \(File name too long\)"):
        open_at(str(tmp_path / ("x" * 300)), make=make)


def test_nothing_is_left_beside_the_file(tmp_path: Path) -> None:
    """Making the file leaves no half-made ones; only its owner may read it."""
    used(tmp_path / "new" / "tips.db")
    assert [one.name for one in (tmp_path / "new").iterdir()] == ["tips.db"]
    assert (tmp_path / "new" / "tips.db").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_taken_away_while_in_use_is_noticed(tmp_path: Path, how: str) -> None:
    """Nothing is acknowledged into a file that nobody will ever find."""
    path = tmp_path / "tips.db"
    books = SqliteBooks(path)
    tips = make_tips(books)
    decision = decided(tips)
    path.rename(tmp_path / "elsewhere.db")
    if how == "replaced":
        shutil.copy(tmp_path / "elsewhere.db", path)
    with pytest.raises(StateUnusable, match="start again"):
        told(tips, reward(decision))
    books.close()


def damaged_row(books: Books, table: str, location: str) -> None:
    """Spoil all bodies of a table, as another program or a bad disk would."""
    if location.startswith("postgresql:"):
        with psycopg.connect(location, autocommit=True) as db:
            db.execute(f"UPDATE {SCHEMA}.{table} SET body = '\\x00ff00'::bytea".encode())  # noqa: S608 - as below
        return
    file = sqlite3.connect(location)
    file.execute(f"UPDATE {table} SET body = x'00ff00'")  # noqa: S608 - a table's name from the test
    file.execute("UPDATE fresh SET value = x'00ff00' WHERE place = ?", (table,))
    file.commit()
    file.close()


@pytest.mark.parametrize(
    ("table", "names"),
    [
        ("profiles", "the profile of user 'anna'"),
        ("memories", "what egreedy-v2 has learned about user 'anna'"),
        ("log", "decision .* in the log"),
    ],
)
def test_damaged_parts_are_named_and_disturb_nobody_else(
    location: str, open_books: OpenBooks, table: str, names: str
) -> None:
    """Whoever needs the part is told which it is; others are served, and a reset mends what can be."""
    books = open_books()
    tips = make_tips(books)
    first = decided(tips, score("anna", "q1"))
    told(tips, reward(first))
    waiting = decided(tips, score("anna", "q2"))
    damaged_row(books, table, location)
    tips = make_tips(open_books())
    mine, others = tips.run([reward(waiting), score("bert", "q3")])
    assert isinstance(mine, BadState)
    with pytest.raises(BadState, match=names):
        raise mine
    assert isinstance(others, ScoreReply)
    if table == "log":
        with pytest.raises(BadState, match=names):
            decided(tips, score("anna", "q1"))
        return
    with pytest.raises(BadState, match=names):
        decided(tips, score("anna", "q4"))
    one(tips, Reset("anna"))
    assert told(tips, reward(decided(tips, score("anna", "q5")))).learned
    assert seen(books, "anna") == 1


def test_a_full_disk_is_an_error_that_passes(tmp_path: Path) -> None:
    """Nothing is acknowledged while there is no room; what was is kept, and with room all goes on."""
    books = SqliteBooks(tmp_path / "tips.db")
    tips = make_tips(books)
    kept = decided(tips)
    pages = books._writing().execute("PRAGMA page_count").fetchone()[0]
    books._writing().execute(f"PRAGMA max_page_count = {pages + 3}")
    failed = 0
    acknowledged = []
    for number in range(60):
        (answer,) = tips.run([score(f"u{number}", f"q{number}")])
        if isinstance(answer, ScoreReply):
            acknowledged.append(answer)
        else:
            assert isinstance(answer, StateUnusable)
            assert "full" in str(answer)
            failed += 1
    assert failed
    books._writing().execute(f"PRAGMA max_page_count = {10**6}")
    again = [decided(tips, score(f"u{number}", f"q{number}")) for number in range(60)]
    assert {reply.decision_id for reply in acknowledged} <= {reply.decision_id for reply in again}
    assert told(tips, reward(kept)).learned
    with books.reading() as reading:
        assert reading.last_seq() == 61
    books.close()


def test_postgres_that_is_away_is_named_without_its_password(tmp_path: Path) -> None:
    """The error says where, and keeps the secret."""
    with pytest.raises(StateUnusable, match=r"127\.0\.0\.1:1/nothing") as failed:
        PostgresBooks("postgresql://me:very-secret@127.0.0.1:1/nothing")
    assert "very-secret" not in str(failed.value)


@pytest.mark.parametrize(
    "password", ["very/secret", "very@secret", "very%secret", "very secret", "%ffsecret"]
)
def test_an_address_that_a_password_cuts_short_is_refused_without_it(password: str) -> None:
    """The rest of it stands where a host, a port or a database is looked for: none of that is shown."""
    with pytest.raises(StateUnusable, match=r"TIPBENCH_TIPS_DB .*%40 for @") as failed:
        PostgresBooks(f"postgresql://me:{password}@127.0.0.1:1/nothing")
    assert not {"very", "secret"} & {*re.findall("[a-z]+", str(failed.value))}


@pytest.mark.parametrize("password", ["very#secret", "very?secret", "very[secret", "very]secret"])
def test_odd_characters_that_postgres_takes_are_taken(password: str) -> None:
    """What its own tools read as a password is one."""
    with pytest.raises(StateUnusable, match=r"//127\.0\.0\.1:1/nothing cannot be used") as failed:
        PostgresBooks(f"postgresql://me:{password}@127.0.0.1:1/nothing")
    assert not {"very", "secret"} & {*re.findall("[a-z]+", str(failed.value))}


def test_an_address_may_name_several_servers_or_a_socket(cluster: Cluster) -> None:
    """Whichever of them answers is used; people are told of all."""
    url = cluster.new_database()
    name = url.rpartition("/")[2]
    folder = quote(str(cluster.folder), safe="")
    for hosts in (f"127.0.0.1:1,127.0.0.1:{cluster.port}", f"{folder}:{cluster.port}"):
        books = PostgresBooks(f"postgresql://tipbench:not-secret@{hosts}/{name}")
        assert books.where == f"postgresql://{hosts}/{name}"
        books.close()
    by_options = f"postgresql:///{name}?host=127.0.0.1&port={cluster.port}&user=tipbench&password=not-secret"
    assert PostgresBooks(by_options).where == f"postgresql://127.0.0.1:{cluster.port}/{name}"


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_turns_are_taken_under_any_default_isolation(cluster: Cluster, level: str) -> None:
    """Whoever waited sees what the one before wrote: the server's default is not what decides it."""
    url = cluster.new_database()
    set_default(url, "default_transaction_isolation", level)
    places = [PostgresBooks(url) for _ in range(2)]
    answers: list[object] = []

    def serve(books: Books, name: str) -> None:
        tips = make_tips(books)
        for number in range(20):
            (made,) = tips.run([score("anna", f"{name}{number}")])
            answers.extend(tips.run([reward(made)]) if isinstance(made, ScoreReply) else [made])

    threads = [threading.Thread(target=serve, args=(books, f"{n}-")) for n, books in enumerate(places)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(told.learned for told in only(RewardReply, answers))
    assert seen(places[0], "anna") == len(answers) == 40
    for books in places:
        books.close()


def test_numbers_come_back_whole_under_any_default(cluster: Cluster) -> None:
    """A server that is set up to round what it shows, as those before PostgreSQL 12 did, does not here."""
    url = cluster.new_database()
    set_default(url, "extra_float_digits", "0")
    books = PostgresBooks(url)
    tips = make_tips(books)
    told(tips, reward(decided(tips), event="rated", worth=0.12345678901234567))
    with books.reading() as reading:
        (past,) = reading.served(after=0, limit=9)
        assert past.outcome is not None
        assert past.outcome.reward == reading.totals()[0].reward_sum == 0.12345678901234567
    books.close()


def test_whose_schema_it_is_decides_who_may_use_it(cluster: Cluster) -> None:
    """Who may not look into it is told so, not that it is damaged; an empty one is filled."""
    url = cluster.new_database()
    name = f"app_{url.rpartition('/')[2]}"
    mine = url.replace("tipbench:not-secret@", f"{name}:pass@")
    PostgresBooks(url).close()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'pass'".encode())
        with pytest.raises(StateUnusable, match=r"somebody else's, who has not granted") as failed:
            PostgresBooks(mine)
        assert "damaged" not in str(failed.value)
        db.execute(f"DROP SCHEMA {SCHEMA} CASCADE".encode())
        with pytest.raises(StateUnusable, match="permission denied for database"):
            PostgresBooks(mine)
        db.execute(f"CREATE SCHEMA {SCHEMA} AUTHORIZATION {name}".encode())
    books = PostgresBooks(mine)
    assert decided(make_tips(books)).propensities
    books.close()


def set_default(url: str, name: str, value: str) -> None:
    """Have every connection to this database begin with a setting of its own."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"ALTER DATABASE {url.rpartition('/')[2]} SET {name} = '{value}'".encode())


def test_who_only_looks_makes_nothing(location: str, open_books: OpenBooks) -> None:
    """A place without books is said to be one, and stays as it is; where there are some they are opened."""
    for _ in range(2):
        with pytest.raises(NotFound, match="served"):
            open_at(location, make=False)
    seed = open_books().seed()
    found = open_at(location, make=False)
    assert found.seed() == seed
    found.close()


def test_only_our_own_tables_are_swept(cluster: Cluster) -> None:
    """A database may be shared with other programs, whose tables may be large."""
    url = cluster.new_database()
    books = PostgresBooks(url)
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE TABLE theirs AS SELECT 1 AS a")
        assert not books.shrink()
        swept = "SELECT relname FROM pg_class WHERE relallvisible > 0"
        assert ("theirs",) not in db.execute(swept).fetchall()
        db.execute("VACUUM theirs")
        assert ("theirs",) in db.execute(swept).fetchall()
    books.close()


def test_a_session_that_has_lost_its_settings_does_no_harm(cluster: Cluster) -> None:
    """Behind a pooler every transaction may be in a session of its own: none relies on the one before."""
    url = cluster.new_database()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE TABLE meta (name TEXT, value BYTEA)")
    books = PostgresBooks(url)
    tips = make_tips(books)
    for number in range(12):  # the driver prepares what comes often
        told(tips, reward(decided(tips, score("anna", f"q{number}"))))
        assert seen(books, "anna") == number + 1
        for session in (books._writer, *books._idle):
            assert session is not None
            session.execute("RESET ALL")
    with psycopg.connect(url, autocommit=True) as db:
        assert db.execute("SELECT * FROM meta").fetchall() == []
    books.close()


def test_a_schema_that_is_not_whole_is_named(cluster: Cluster) -> None:
    """Tables that were lost are not made again; a newer schema is left alone; so is another encoding."""
    for statement, says in (
        ("DROP TABLE profiles", "lacks profiles"),
        ("DELETE FROM meta", "lost"),
        ("UPDATE meta SET value = '99' WHERE name = 'version'", "newer tipbench"),
    ):
        url = cluster.new_database()
        PostgresBooks(url).close()
        with psycopg.connect(url, autocommit=True) as db:
            db.execute(f"SET search_path = {SCHEMA}".encode())
            db.execute(statement.encode())
        with pytest.raises(StateUnusable, match=says):
            PostgresBooks(url)
    with pytest.raises(StateUnusable, match="UTF8"):
        PostgresBooks(cluster.new_database(encoding="SQL_ASCII"))


def test_a_connection_that_was_lost_is_made_again(cluster: Cluster) -> None:
    """After the server ended it, the next batch is served and remembers right."""
    url = cluster.new_database()
    books = PostgresBooks(url)
    tips = make_tips(books)
    first = decided(tips)
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    answers = [tips.run([reward(first)])[0] for _ in range(2)]
    assert isinstance(answers[-1], RewardReply)
    assert seen(books, "anna") == 1
    books.close()


@pytest.mark.parametrize(
    "location",
    ["host=db dbname=tips password=very-secret", "postgresql:/me:very-secret@db/tips", "postgres:tips"],
)
def test_what_is_nearly_an_address_is_no_file(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several machines would each have a file of their own, with the password for a name."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="write it as postgresql://") as failed:
        open_at(location)
    assert "very-secret" not in str(failed.value)
    assert not [*tmp_path.iterdir()]


def test_a_place_of_another_kind_is_refused() -> None:
    """An address that is neither a file nor PostgreSQL's says what there is."""
    with pytest.raises(BadInput, match="mysql"):
        open_at("mysql://localhost/tips")
    with pytest.raises(BadInput, match="no such user"):
        open_at("~nobody-is-called-so/tips.db")
