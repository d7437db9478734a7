"""`token`: made, listed and taken away from the command line, beside whatever else uses the store."""

from __future__ import annotations

import os
import pwd
import subprocess
from typing import TYPE_CHECKING

import pytest

from command import TIPBENCH, start, tipbench
from tipbench.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def store(fresh_home: Path) -> Iterator[Store]:
    with Store(fresh_home / "service.db") as opened:
        yield opened


@pytest.mark.parametrize("role", ["admin", "judge", "service"])
def test_a_token_is_alone_on_the_last_line(store: Store, role: str) -> None:
    """What is printed last opens the store, and what it is stands elsewhere."""
    made = tipbench("token", "create", "--role", role, "--name", "Anna B.")
    assert made.code == 0, made.err
    plain = made.out.splitlines()[-1]
    found = store.tokens.verify(plain, now_ms=1)
    assert found is not None
    assert (found.name, found.role) == ("Anna B.", role)
    assert "'Anna B.'" in made.err
    assert "token revoke 'Anna B.'" in made.err
    assert plain not in made.err


def test_a_shell_takes_it_from_the_last_line(store: Store) -> None:
    """`$(… | tail -1)` is the token, even where errors are mixed in."""
    command = " ".join(TIPBENCH) + " token create --role judge --name anna 2>&1 | tail -1"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True)
    assert store.tokens.verify(done.stdout.strip(), now_ms=1) is not None


def test_the_list_never_shows_a_token(store: Store) -> None:
    """Whose, of which role, how it begins and when it was used; revoked ones only when asked for."""
    empty = tipbench("token", "list")
    assert (empty.code, "no tokens yet" in empty.out) == (0, True)
    anna = store.tokens.create("anna", "judge", now_ms=1_700_000_000_000)
    bert = store.tokens.create("bert", "admin", now_ms=1_700_000_000_000)
    store.tokens.verify(bert, now_ms=1_760_000_000_000)
    store.tokens.revoke("anna", now_ms=1_750_000_000_000)
    store.close()
    plain, every, as_json = (
        tipbench("token", "list", *more) for more in ((), ("--all",), ("--all", "--json"))
    )
    for shown in (plain, every, as_json):
        assert shown.code == 0
        assert anna not in shown.out
        assert bert not in shown.out
    assert "anna" not in plain.out
    assert plain.out.splitlines()[1].startswith(f"bert\tadmin\t{bert[:15]}…\t2023-11-1")
    assert [line.split("\t")[0] for line in every.out.splitlines()] == ["name", "anna", "bert"]
    assert [(one["name"], one["revoked_ms"]) for one in as_json.json] == [
        ("anna", 1_750_000_000_000),
        ("bert", None),
    ]
    assert "hash" not in as_json.json[0]


def test_a_revoked_token_opens_nothing(store: Store) -> None:
    """It ends at once, for a store that is open too, and its name is free again."""
    plain = store.tokens.create("anna", "judge", now_ms=1)
    gone = tipbench("token", "revoke", "anna")
    assert gone.code == 0
    assert "'anna'" in gone.out
    assert store.tokens.verify(plain, now_ms=2) is None
    again = tipbench("token", "revoke", "anna")
    assert again.code == 2
    assert "there is no token named 'anna'" in again.err
    assert tipbench("token", "create", "--role", "admin", "--name", "anna").code == 0


def test_changes_are_in_the_audit_log(store: Store) -> None:
    """Who made and revoked what is written down, with no token in it; what was refused is not."""
    made = tipbench("token", "create", "--role", "judge", "--name", "anna")
    tipbench("token", "create", "--role", "judge", "--name", "anna")
    tipbench("token", "revoke", "anna")
    tipbench("token", "revoke", "anna")
    entries = store.audit.page()
    user = pwd.getpwuid(os.getuid()).pw_name
    assert [(one.who, one.role, one.action, one.target) for one in entries] == [
        (user, "local", "token.revoke", "anna"),
        (user, "local", "token.create", "anna"),
    ]
    assert made.out.strip() not in repr(entries)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--role", "judge"], "--name"),
        (["--name", "anna"], "--role"),
        (["--role", "root", "--name", "anna"], "root"),
        (["--role", "judge", "--name", " "], "--name: a name has 1 to 80 characters"),
        (["--role", "judge", "--name", "a\u200bb"], "cannot be seen"),
        (["--role", "judge", "--name", "\u0410nna"], "mixes letters of Cyrillic ('\u0410') and Latin ('n')"),
    ],
)
def test_bad_input_is_told(fresh_home: Path, arguments: list[str], words: str) -> None:
    """Exit code 2, one sentence, and no file is made for it."""
    refused = tipbench("token", "create", *arguments)
    assert refused.code == 2
    assert refused.out == ""
    assert words in refused.err
    assert not (fresh_home / "service.db").exists()


def test_two_commands_at_once(store: Store) -> None:
    """Of two that create the same name, one succeeds and the other says why not."""
    running = [start("token", "create", "--role", "judge", "--name", "anna") for _ in range(2)]
    ended = [(*process.communicate(timeout=60), process.returncode) for process in running]
    assert sorted(code for _, _, code in ended) == [0, 2]
    assert sum("there is a token named 'anna'" in err for _, err, _ in ended) == 1
    assert len(store.tokens.list()) == 1


@pytest.mark.parametrize("command", [["create", "--role", "judge", "--name", "a"], ["list"], ["revoke", "a"]])
def test_a_damaged_store_is_told(fresh_home: Path, command: list[str]) -> None:
    """Exit code 3 and a sentence that names the file."""
    fresh_home.mkdir()
    (fresh_home / "service.db").write_bytes(b"x" * 5000)
    refused = tipbench("token", *command)
    assert (refused.code, refused.out) == (3, "")
    assert f"{fresh_home / 'service.db'} is damaged" in refused.err
    assert len(refused.err.splitlines()) == 1
