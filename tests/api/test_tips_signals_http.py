"""Signals and shadows over real HTTP: a reader misses nothing, and a shadow changes nothing."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import misbehaving_policies
from shadow_world import until
from tip_service import ONLY_TIPS, TipService, serving
from tipbench.bandit.sqlite_books import SqliteBooks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

BAD = ("sleeps", "raises", "allocates")
PLAIN, KEEN, SHIPPED = "plain", "keen", "egreedy-v2-shadow"
SHADOWS = {
    PLAIN: {"policy": "egreedy", "enabled": True},
    KEEN: {"policy": "egreedy", "enabled": True, "apprentice": True},
    **{name: {"policy": misbehaving_policies.SPEC + name, "enabled": True} for name in BAD},
}


class Event(NamedTuple):
    id: int
    event: str
    data: dict[str, Any]


@contextmanager
def stream(service: TipService, after: int | None = None, *, last_id: str = "") -> Iterator[Iterator[Event]]:
    """What is told from a number on, for as long as the block lasts."""
    query = {} if after is None else {"after": after}
    headers = {"Last-Event-ID": last_id} if last_id else {}
    with service.client.stream("GET", "/signals", params=query, headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield events(answer)


def events(answer: httpx.Response) -> Iterator[Event]:
    said: dict[str, str] = {}
    for line in answer.iter_lines():
        name, _, value = line.partition(": ")
        if line:
            said[name] = value
        else:
            if "data" in said:
                yield Event(int(said["id"]), said["event"], json.loads(said["data"]))
            said = {}


def first(told: Iterator[Event], many: int) -> list[Event]:
    return [next(told) for _ in range(many)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("signals")


@pytest.fixture(scope="module")
def calm(folder: Path) -> Iterator[TipService]:
    """A service without shadows."""
    with serving(folder / "calm", *ONLY_TIPS) as service:
        yield service


@pytest.fixture(scope="module")
def shadowed(folder: Path) -> Iterator[TipService]:
    """The same with shadows: one that looks on, one that learns, three that fail, and the one that ships."""
    arguments = (*ONLY_TIPS, "--shadow", SHIPPED)
    with serving(folder / "shadowed", *arguments, TIPBENCH_SHADOW_POLICIES=json.dumps(SHADOWS)) as service:
        yield service


def last(service: TipService) -> int:
    """The number of an entry that is new."""
    made = service.score("random", "marker").json()["decision_id"]
    with stream(service) as told:
        return next(one.id for one in told if one.data["decision_id"] == made)


def test_a_decision_is_told_as_it_happens(calm: TipService) -> None:
    """With its number, its signal, and what was picked with which probability."""
    with stream(calm, last(calm)) as told:
        made = calm.score("egreedy/v2", "watched", request_id="w").json()
        (event,) = first(told, 1)
    assert event.event == event.data["signal"] == "serve"
    assert event.data["seq"] == event.id
    said = {
        name: event.data[name] for name in ("decision_id", "tip_id", "policy", "policy_version", "explored")
    }
    assert said == {name: made[name] for name in said}
    assert event.data["user_id"] == "watched"
    assert event.data["propensity"] == made["propensities"][made["tip_id"]]
    assert event.data["absent"] == made["absent"]


def test_whoever_was_away_for_longer_than_the_log_is_kept_is_told(tmp_path: Path) -> None:
    """What was compacted meanwhile is missing, and that is said; who begins with the first misses none."""
    with serving(tmp_path, *ONLY_TIPS) as service:
        for number in range(5):
            service.score("random", "u", request_id=f"q{number}")
        books = SqliteBooks(next(tmp_path.rglob("tips.db")))
        with books.transaction() as tx:
            assert tx.drop(upto=3, limit=10) == 3
        books.close()
        with stream(service, 1) as told:
            missed, following = first(told, 2)
        with stream(service, 3) as told:
            (kept,) = first(told, 1)
        with stream(service, 0) as told:
            all_missed, _ = first(told, 2)
        with stream(service) as told:
            (oldest,) = first(told, 1)
    assert (all_missed.event, all_missed.data) == ("gap", {"after": 0, "next": 4})
    assert (missed.event, missed.id, missed.data) == ("gap", 3, {"after": 1, "next": 4})
    assert [(one.event, one.id) for one in (following, kept, oldest)] == [("serve", 4)] * 3


@pytest.mark.parametrize("how", [{"after": 10**9}, {"last_id": "1000000000"}, {"after": 2**63 - 1}])
def test_a_number_of_another_log_is_told_from_the_beginning(calm: TipService, how: dict[str, Any]) -> None:
    """Whoever has one that this log has not come to would hear nothing for long, and never know why."""
    last(calm)
    with stream(calm, **how) as told:
        missed, oldest = first(told, 2)
    number = int(how.get("after", 10**9))
    assert (missed.event, missed.id, missed.data) == ("gap", 0, {"after": number, "next": 1})
    assert oldest.id == 1


def test_a_long_log_is_told_in_pieces_of_some_messages(calm: TipService) -> None:
    """Sent one by one they would keep the event loop from everybody else, and all at once too."""
    start = last(calm)
    for number in range(120):
        calm.score("egreedy", "long", request_id=f"long-{number}")
    pieces: list[int] = []
    with calm.client.stream("GET", "/signals", params={"after": start}) as answer:
        for piece in answer.iter_raw():
            pieces.append(piece.count(b"event: serve\n"))
            if sum(pieces) == 120:
                break
    assert 1 < max(pieces) <= 100


def test_a_reader_that_was_away_misses_none_and_sees_none_twice(calm: TipService) -> None:
    """It comes back again and again with the last number it saw, in either way; much was served meanwhile."""
    start = seen = last(calm)
    made: list[str] = []
    found: list[Event] = []
    for turn in range(6):
        made += [
            calm.score("egreedy", "reader", request_id=f"{turn}-{n}").json()["decision_id"] for n in range(7)
        ]
        by_header = {"last_id": str(seen)} if turn % 2 else {"after": seen}
        with stream(calm, **by_header) as told:
            found += first(told, 7 if turn == 5 else 4)
        seen = found[-1].id
    with stream(calm, seen) as told:
        found += first(told, len(made) - len(found))
    assert [one.data["decision_id"] for one in found] == made
    assert [one.id for one in found] == list(range(start + 1, start + 1 + len(made)))


def test_the_header_goes_before_the_address(calm: TipService) -> None:
    """A browser that reconnects sends it by itself to the address it began with."""
    at = last(calm)
    made = calm.score("egreedy", "again").json()["decision_id"]
    with stream(calm, 0, last_id=str(at)) as told:
        assert first(told, 1)[0].data["decision_id"] == made


def test_a_reset_is_told(calm: TipService) -> None:
    """Whoever keeps a copy must know."""
    at = last(calm)
    calm.post("/reset", {"user_id": "gone"})
    with stream(calm, at) as told:
        (event,) = first(told, 1)
    assert (event.event, event.data["user_id"]) == ("reset", "gone")


def test_two_services_on_one_file_are_one_log(calm: TipService, folder: Path) -> None:
    """Both write at once; a reader at either has every decision once, in the order of their numbers."""
    with serving(folder / "calm", *ONLY_TIPS) as other:
        start, made = last(calm), list[str]()

        def ask(service: TipService, name: str) -> None:
            made.extend(
                service.score("egreedy", "both", request_id=f"{name}{n}").json()["decision_id"]
                for n in range(40)
            )

        threads = [threading.Thread(target=ask, args=one) for one in ((calm, "a"), (other, "b"))]
        with stream(calm, start) as here, stream(other, start) as there:
            for thread in threads:
                thread.start()
            found = first(here, 80), first(there, 80)
            for thread in threads:
                thread.join()
        for told in found:
            assert sorted(one.data["decision_id"] for one in told) == sorted(made)
            assert [one.id for one in told] == list(range(start + 1, start + 81))
        assert other.get("/stats/egreedy", user_id="both")["decisions"] == 80


def test_a_damaged_entry_keeps_no_reader_from_what_follows(folder: Path) -> None:
    """It is told as one that cannot be read, by its number; its repeat is 503 and names it."""
    with serving(folder / "damaged", *ONLY_TIPS) as service:
        made = [service.score("egreedy", request_id=f"d{n}").json()["decision_id"] for n in range(3)]
        with sqlite3.connect(folder / "damaged" / "tips.db", timeout=30) as db:
            db.execute("UPDATE log SET body = x'c1' WHERE decision_id = ?", (made[1],))
        db.close()
        with stream(service) as told:
            found = first(told, 3)
        assert [one.data["decision_id"] for one in found] == made
        assert ["unreadable" in one.data for one in found] == [False, True, False]
        refused = service.score("egreedy", request_id="d1")
        assert refused.status_code == 503
        assert made[1] in refused.json()["error"]["message"]


def answers(service: TipService, user: str) -> list[bytes]:
    """What an app is answered over a while: tips, rewards, repeats."""
    found = []
    for number in range(25):
        made = service.recommend(user, request_id=f"{user}-{number}")
        told = service.reward(made, reward_id=f"r{number}", event="completed" if number % 3 else "dismissed")
        found += [made.content, told.content]
    return [*found, service.recommend(user, request_id=f"{user}-7").content]


def test_a_reply_has_the_same_bytes_beside_any_shadow(calm: TipService, shadowed: TipService) -> None:
    """One hangs, one raises, one allocates without end; they are dropped and counted, each by its reason."""
    assert answers(calm, "equal") == answers(shadowed, "equal")

    def all_dropped() -> bool:
        told = shadowed.get("/stats")["shadows"]
        return all(told[name]["dropped"] and told[name]["dropped_since_start"] for name in BAD)

    until(all_dropped)
    told = shadowed.get("/stats/egreedy")["shadows"]
    assert [told[name]["decisions"] for name in BAD] == [0, 0, 0]
    assert all(told[name]["trouble"] for name in BAD)
    assert "broken" in told["raises"]["dropped_since_start"]
    assert shadowed.process.poll() is None


def shadow_events(
    service: TipService, start: int, decisions: set[str], name: str
) -> dict[str, dict[str, Any]]:
    """What one shadow said of these decisions."""
    found: dict[str, dict[str, Any]] = {}
    with stream(service, start) as told:
        while len(found) < len(decisions):
            event = next(told)
            if event.event == f"shadow:{name}" and event.data["decision_id"] in decisions:
                found[event.data["decision_id"]] = event.data
    return found


def test_shadows_decide_on_what_apps_are_served_and_agreement_is_counted(shadowed: TipService) -> None:
    """Each says what it would have shown; statistics tell how often that was what was shown."""
    start = last(shadowed)
    made = {
        one["decision_id"]: one
        for one in (shadowed.recommend("seen", request_id=f"a{n}").json() for n in range(10))
    }
    for name, policy in ((PLAIN, "egreedy"), (SHIPPED, "egreedy-v2")):
        said = shadow_events(shadowed, start, set(made), name)
        assert {one["policy"] for one in said.values()} == {policy}
        assert all(one["agrees"] == (one["tip_id"] == made[at]["tip_id"]) for at, one in said.items())
    counted = shadowed.get("/stats")["shadows"][PLAIN]
    assert counted["decisions"] >= 10
    assert counted["agreement"] == counted["agreed"] / counted["decisions"]


def test_no_reward_reaches_a_shadow_but_an_apprentice(shadowed: TipService, folder: Path) -> None:
    """After the same rewards one has learned, and its signals say so; the other scores as on day one."""
    tips = [
        {"id": f"t{place}", "features": [1.0, *(float(at == place) for at in range(6))]} for place in range(2)
    ]
    for number in range(12):
        made = shadowed.recommend("pupil", candidates=tips[:1], request_id=f"l{number}")
        assert shadowed.reward(made).json()["learned"]
    kept = "SELECT policy FROM memories WHERE user_id = 'pupil'"

    def memories() -> set[str]:
        db = sqlite3.connect(folder / "shadowed" / "tips.db", timeout=30)
        found = {str(row[0]) for row in db.execute(kept)}
        db.close()
        return found

    until(lambda: KEEN in memories())
    until(lambda: shadowed.get("/stats")["shadows"][KEEN]["learned_since_start"] >= 12)
    assert "learned_since_start" not in shadowed.get("/stats")["shadows"][PLAIN]
    assert memories() == {"egreedy", KEEN}
    start = last(shadowed)
    asked = shadowed.recommend("pupil", candidates=tips, request_id="exam").json()["decision_id"]
    plain, keen = (shadow_events(shadowed, start, {asked}, name)[asked] for name in (PLAIN, KEEN))
    assert (plain["apprentice"], keen["apprentice"]) == (False, True)
    assert set(plain["scores"].values()) == {0.0}
    assert keen["scores"]["t0"] > keen["scores"]["t1"]


def test_a_shadow_is_off_until_it_is_switched_on(calm: TipService) -> None:
    """The one that ships is registered and looks at nothing."""
    at = last(calm)
    made = [calm.recommend("alone", request_id=f"o{n}").json()["decision_id"] for n in range(3)]
    with stream(calm, at) as told:
        assert [(one.event, one.data["decision_id"]) for one in first(told, 3)] == [
            ("serve", one) for one in made
        ]
    assert calm.get("/stats")["shadows"][SHIPPED]["enabled"] is False


def test_streams_end_with_the_service(folder: Path) -> None:
    """SIGTERM with two readers: whole answers, at once, and nothing to complain of."""
    with serving(folder / "ended", *ONLY_TIPS) as service, ExitStack() as stack:
        service.score("egreedy", request_id="e")
        told = [stack.enter_context(stream(service)) for _ in range(2)]
        assert [first(one, 1)[0].event for one in told] == ["serve", "serve"]
        assert service.end() == 0
        assert [list(one) for one in told] == [[], []]
        assert service.errors.read_text() == ""
