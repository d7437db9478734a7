"""Tokens: shown once, kept as a hash, one live one to a name."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_processes import at_once
from tipbench.errors import BadSetting, NotFound
from tipbench.store.tokens import Role, name_key, token_name, without_tokens
from tipbench.workflows.tokens import Doer, create_first_token

if TYPE_CHECKING:
    from collections.abc import Callable

    from tipbench.store import Store

MINUTE = 60_000


@pytest.mark.parametrize("role", ["admin", "judge", "service"])
def test_a_token_opens_what_it_was_made_for(store: Store, role: Role) -> None:
    """The token says its role, is long and random, and is known again with its name."""
    plain = store.tokens.create("anna", role, now_ms=7)
    assert re.fullmatch(rf"tb_{role}_[\w-]{{43}}", plain)
    found = store.tokens.verify(plain, now_ms=9)
    assert found is not None
    assert (found.name, found.role, found.created_ms, found.last_used_ms) == ("anna", role, 7, 9)
    assert plain.startswith(found.prefix)
    assert len(plain) - len(found.prefix) > 32, "what is shown leaves enough to guess"
    assert store.tokens.get(found.token_id) == found


def test_no_two_tokens_are_alike(store: Store) -> None:
    """A revoked token stays refused when its name is used again."""
    first = store.tokens.create("anna", "judge", now_ms=1)
    store.tokens.revoke("anna", now_ms=2)
    second = store.tokens.create("anna", "judge", now_ms=3)
    assert first != second
    assert store.tokens.verify(first, now_ms=4) is None
    assert store.tokens.verify(second, now_ms=4) is not None


def test_the_token_itself_is_nowhere_in_the_file(store: Store) -> None:
    """Who reads the file, or what lies beside it, cannot log in with what it finds."""
    plain = store.tokens.create("anna", "admin", now_ms=1)
    store.audit.add(who="anna", role="admin", action="login", detail=f"with {plain}", now_ms=2)
    secret = plain.rsplit("_", 1)[-1][-30:].encode()
    for file in store.path.parent.iterdir():
        assert secret not in file.read_bytes()
    store.close()
    with closing(sqlite3.connect(store.path)) as db:
        assert len(db.execute("SELECT hash FROM token").fetchone()[0]) == 32


@pytest.mark.parametrize(
    "change",
    [
        lambda plain: plain[:-1],
        lambda plain: plain + "A",
        lambda plain: plain[:-1] + ("A" if plain[-1] != "A" else "B"),
        lambda plain: plain.replace("judge", "admin"),
        lambda plain: plain.upper(),
        lambda plain: plain.removeprefix("tb_"),
        lambda plain: plain.rsplit("_", 1)[0],
        lambda plain: plain + "\x00",
        lambda plain: plain + "\ud800",
    ],
)
def test_a_token_that_was_changed_is_nobodys(store: Store, change: Callable[[str], str]) -> None:
    """A token that is cut, longer, or differs in a letter is refused."""
    plain = store.tokens.create("anna", "judge", now_ms=1)
    assert store.tokens.verify(change(plain), now_ms=2) is None


@pytest.mark.parametrize("text", ["é" * 10**6, "", "_", "\ud800_\ud800_\ud800", "tb_judge_", "%", "\x00"])
def test_what_is_no_token_is_nobodys(store: Store, text: str) -> None:
    """Whatever it is made of, it is refused and nothing breaks."""
    store.tokens.create("anna", "judge", now_ms=1)
    assert store.tokens.verify(text, now_ms=2) is None


def test_a_name_is_taken_until_it_is_revoked(store: Store) -> None:
    """The second token of a live name is refused per field; two writings of one name are one."""
    store.tokens.create("Zoë", "judge", now_ms=1)
    with pytest.raises(BadSetting, match="there is a token named 'Zoë'") as told:
        store.tokens.create(" Zoe\u0308 ", "admin", now_ms=2)
    assert told.value.name == "name"
    assert store.tokens.revoke("Zoe\u0308", now_ms=3).revoked_ms == 3
    store.tokens.create("Zoë", "admin", now_ms=4)
    assert [(token.name, token.role) for token in store.tokens.list()] == [("Zoë", "admin")]
    assert [token.revoked_ms for token in store.tokens.list(revoked=True)] == [3, None]


@pytest.mark.parametrize("name", ["nobody", "", "\ud800", "'; DROP TABLE token; --"])
def test_to_revoke_what_is_not_there_is_told(store: Store, name: str) -> None:
    """The sentence says where to look; a second revocation is one of nothing."""
    store.tokens.create("anna", "judge", now_ms=1)
    store.tokens.revoke("anna", now_ms=2)
    for one in (name, "anna"):
        with pytest.raises(NotFound, match="token list"):
            store.tokens.revoke(one, now_ms=3)


@pytest.mark.parametrize(
    "name",
    [
        "", " ", "\t", "x" * 81, "a\nb", "a\x00b", "a\x1b[2Jb", "a\u200bb", "a\u202eb", "\u3164", "a\u00a0b",
        "\ud800", "tb_admin_" + "a" * 43, "a\u2028b", "\ufe0f",
    ],
)  # fmt: skip
def test_names_that_cannot_be_seen_are_refused(store: Store, name: str) -> None:
    """A name is 1 to 80 characters that show on any screen, and no token."""
    with pytest.raises(BadSetting) as told:
        store.tokens.create(name, "judge", now_ms=1)
    assert told.value.name == "name"
    assert "a" * 30 not in str(told.value)


@pytest.mark.parametrize(
    "name", ["a", "x" * 80, "Anna B.", "李四", "O'Brien", "anna@example.org", "🙂", "--help"]
)
def test_names_that_people_have_are_taken(store: Store, name: str) -> None:
    """Any script will do."""
    plain = store.tokens.create(name, "judge", now_ms=1)
    found = store.tokens.verify(plain, now_ms=1)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("anna", "ANNA"),
        ("anna", "\uff21\uff4e\uff4e\uff41"),
        ("anna", "\U0001d400nna"),
        ("anna", "\u24b6nna"),
        ("Анна", "АННА"),
        ("Caf\u00e9", "CAFE\u0301"),
        ("straße", "STRASSE"),
        ("\ufb01n", "fin"),
        ("\uff80\uff85\uff76", "タナカ"),
        ("anna b", "anna  B"),
        ("anna", "an\ufe0fna"),
        ("\u1e9e", "ss"),
        ("fiona", "\ufb01ona"),
        ("steffi", "\ufb06e\ufb00i"),
        ("lisa", "li\u017fa"),
        ("karl", "\u212aarl"),
        ("Σας", "σασ"),
        ("ivan", "\u2160van"),
        ("anna", "\u1d2c\u207f\u207f\u1d43"),
        ("judge 2", "judge \uff12"),
        ("d\u017e", "\u01c6"),
        ("Zo\u00eb", "\uff3ao\uff45\u0308"),
        ("o'brien", "O\uff07Brien"),
    ],
)
def test_names_that_differ_in_case_or_width_are_one_name(store: Store, first: str, second: str) -> None:
    """A second live token cannot have such a name; after the first is revoked, it can."""
    store.tokens.create(first, "judge", now_ms=1)
    with pytest.raises(BadSetting, match="counts as the same name") as refused:
        store.tokens.create(second, "judge", now_ms=2)
    assert refused.value.name == "name"
    with pytest.raises(NotFound, match=rf"Did you mean {token_name(first)!r}\?"):
        store.tokens.revoke(second, now_ms=3)
    store.tokens.revoke(first, now_ms=4)
    store.tokens.create(second, "judge", now_ms=5)


@pytest.mark.parametrize(
    "name",
    [
        "\u0410nna",
        "ann\u0430",
        "ΑNNA",
        "\uff41нна",
        "\U0001d400нна",
        "d'\u0410rtagnan",
        "A. Б.",
        "\u0149\u0430",
        "\u13aanna",
        "Tōkyō 東京",
        "Եva",
        "\u2132\u0410",
        "\U00017000a",
        "\u217dаша",
        "Анна \u2160",
    ],
)
def test_a_name_of_two_scripts_is_refused(store: Store, name: str) -> None:
    """Letters of another script look like the letters of a name that exists."""
    with pytest.raises(BadSetting, match="mixes letters of") as told:
        store.tokens.create(name, "judge", now_ms=1)
    assert told.value.name == "name"
    assert store.tokens.list() == ()


@pytest.mark.parametrize(
    "name",
    [
        "АННА",
        "Анна 2",
        "Судья №2",
        "Ἀθηνᾶ",
        "Café",
        "Cafe\u0301 Zu\u0308rich",
        "O\u02bbahu",
        "山田はなこ",
        "タナカ山ー",
        "佐々木〆",
        "李한",
        "ｶﾅ仮名",
        "محمد ١",
        "मनीषा",
        "x² + y",
        "🙂 Анна ❤\ufe0f",
        "\u2132in",
        "Louis \u2169\u2163",
        "二〇二六",
    ],
)
def test_a_name_of_one_script_is_accepted(store: Store, name: str) -> None:
    """Digits, marks, punctuation and symbols are of no script; Han goes with Kana and with Hangul."""
    plain = store.tokens.create(name, "judge", now_ms=1)
    found = store.tokens.verify(plain, now_ms=1)
    assert found is not None
    assert store.tokens.revoke(name, now_ms=2).token_id == found.token_id


def test_names_of_an_earlier_version_stay_valid(store: Store) -> None:
    """Names that would be refused today log in, are listed, and are revoked one by one."""
    names = ["anna", "ANNA", "\u0410nna"]
    plains = [store.tokens.create(f"old {number}", "judge", now_ms=1) for number in range(3)]
    with closing(sqlite3.connect(store.path)) as db, db:
        for number, name in enumerate(names):
            db.execute("UPDATE token SET name = ? WHERE name = ?", (name, f"old {number}"))
    found = [store.tokens.verify(plain, now_ms=2) for plain in plains]
    assert [one.name for one in found if one is not None] == names
    assert {one.name for one in store.tokens.list()} == set(names)
    for number, name in enumerate(names):
        assert store.tokens.revoke(name, now_ms=3).name == name
        live = [store.tokens.verify(plain, now_ms=4) is not None for plain in plains]
        assert live == [False] * (number + 1) + [True] * (2 - number)


@pytest.mark.parametrize(
    ("first", "second"),
    [("\u00c5sa", "\u212bsa"), ("\u03a9", "\u2126"), ("가", "\u1100\u1161"), ("Zo\u00eb", "Zoe\u0308")],
)
def test_a_name_may_be_written_in_any_form(store: Store, first: str, second: str) -> None:
    """Precomposed letters and combining marks are the same name, to create and to revoke."""
    store.tokens.create(second, "judge", now_ms=1)
    with pytest.raises(BadSetting, match="there is a token named"):
        store.tokens.create(first, "judge", now_ms=2)
    assert store.tokens.revoke(second, now_ms=3).name == first


@pytest.mark.parametrize("old", ["an\u00adna", "\u200banna", "ann\u2060a", "an\u034fna"])
def test_an_unseen_character_of_an_earlier_name_does_not_count(store: Store, old: str) -> None:
    """A new name cannot look like a name that an earlier version accepted."""
    plain = store.tokens.create("old", "judge", now_ms=1)
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("UPDATE token SET name = ?", (old,))
    with pytest.raises(BadSetting, match="counts as the same name"):
        store.tokens.create("anna", "judge", now_ms=2)
    assert store.tokens.verify(plain, now_ms=3) is not None


@pytest.mark.parametrize(("first", "second"), [("Ian", "lan"), ("O2", "02"), ("andre", "andr\u00e9")])
def test_letters_that_only_look_alike_are_different(store: Store, first: str, second: str) -> None:
    """Such names are not detected, as the reference page says."""
    store.tokens.create(first, "judge", now_ms=1)
    store.tokens.create(second, "judge", now_ms=2)
    assert {one.name for one in store.tokens.list()} == {first, second}


@given(st.text(max_size=40))
def test_the_key_of_a_name_is_its_own_key(name: str) -> None:
    """To compare names by their keys is the same however often a name was folded."""
    assert name_key(name_key(name)) == name_key(name)


@given(st.text(max_size=100))
def test_a_name_is_kept_as_it_is_or_refused(name: str) -> None:
    """What is taken as a name is taken again as the same one, and prints on one line."""
    try:
        kept = token_name(name)
    except BadSetting:
        return
    assert token_name(kept) == kept
    assert kept.isprintable()
    assert kept.encode()


def test_an_unknown_role_is_refused(store: Store) -> None:
    """Roles are a closed list, told per field."""
    with pytest.raises(BadSetting, match="admin, judge, service") as told:
        store.tokens.create("anna", "root", now_ms=1)  # type: ignore[arg-type]
    assert told.value.name == "role"


def test_use_is_noted_at_most_once_a_minute(store: Store) -> None:
    """Asking often writes seldom; a clock that was set back does not stop it."""
    plain = store.tokens.create("anna", "judge", now_ms=0)
    noted = []
    for now_ms in (10 * MINUTE, 11 * MINUTE - 1, 11 * MINUTE, 5 * MINUTE):
        store.tokens.verify(plain, now_ms=now_ms)
        noted.append(store.tokens.list()[0].last_used_ms)
    assert noted == [10 * MINUTE, 10 * MINUTE, 11 * MINUTE, 5 * MINUTE]


def test_a_session_counts_as_use_and_ends_with_its_token(store: Store) -> None:
    """A token is found by its number for as long as it is live."""
    store.tokens.create("anna", "judge", now_ms=0)
    (token,) = store.tokens.list()
    used = store.tokens.get(token.token_id, now_ms=MINUTE)
    assert used is not None
    assert used.last_used_ms == MINUTE
    store.tokens.revoke("anna", now_ms=2 * MINUTE)
    assert store.tokens.get(token.token_id) is None
    assert store.tokens.get(10**6) is None


def test_who_cannot_note_the_use_is_still_let_in(store: Store) -> None:
    """A file that cannot grow does not lock its owner out."""
    plain = store.tokens.create("anna", "admin", now_ms=0)
    with closing(sqlite3.connect(store.path)) as other:
        other.execute("CREATE TRIGGER full BEFORE UPDATE ON token BEGIN SELECT no_such_function(); END")
    assert store.tokens.verify(plain, now_ms=MINUTE) is not None


def test_of_two_processes_one_gets_the_name(store: Store) -> None:
    """Several that create the same name at once end with one token and the rest told."""
    code = """
try:
    print(store.tokens.create('anna', 'judge', now_ms=1))
except TipbenchError as error:
    print(error)
"""
    printed = at_once(store.path, code, count=4)
    made = [line.strip() for line in printed if line.startswith("tb_")]
    assert len(made) == 1
    assert sum("there is a token named 'anna'" in line for line in printed) == 3
    assert store.tokens.verify(made[0], now_ms=2) is not None


def test_of_two_services_one_makes_the_first_token(store: Store) -> None:
    """Where there is an admin already, none is made."""
    printed = at_once(store.path, "print(store.tokens.create_first('admin', 'admin', now_ms=1))", count=3)
    assert sum(line.startswith("tb_admin_") for line in printed) == 1
    assert printed.count("None\n") == 2


def test_tokens_in_a_text_are_cut_down(store: Store) -> None:
    """What is left tells which token it was and opens nothing."""
    plain = store.tokens.create("anna", "judge", now_ms=1)
    (token,) = store.tokens.list()
    assert without_tokens(f"Bearer {plain}, then tb_judge_x") == f"Bearer {token.prefix}…, then tb_judge_x"


def test_the_first_token_has_a_name_of_its_own(store: Store) -> None:
    """A judge named ADMIN does not prevent the first admin token, nor the start of the service."""
    store.tokens.create("ADMIN", "judge", now_ms=1)
    assert create_first_token(store, by=Doer(who="me", role="local")) is not None
    assert [(one.name, one.role) for one in store.tokens.list()] == [("ADMIN", "judge"), ("admin-2", "admin")]
