"""The tips behind the app: always at once, fresh where they can be, judged where they cannot."""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from job_world import wait_until
from ledger_servers import Proxy
from shipped_world import filed, plant_judged
from stand_in import TIPS, FakeModel, StandIn, running
from tiny_gguf import write_tiny_gguf
from tipbench.engine.lock import hold_host, host_name, lock_folder
from tipbench.errors import NotFound, StoreUnusable, Unavailable
from tipbench.ledger import open_ledger
from tipbench.settings import Settings
from tipbench.suite import load_suite, render
from tipbench.workflows.hosts import busy_lock
from tipbench.workflows.shipped_file import FILE, write_filed
from tipbench.workflows.shipping import ship
from tipbench.workflows.tip_pool import TipPool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tipbench.workflows.shipped_file import Filed
    from tipbench.workflows.tip_pool import Pool

NOWHERE = "http://127.0.0.1:9"
MAYA = {"scenario": "maya-monday-morning"}
SHIPPED = FakeModel("small:1b")

pytestmark = pytest.mark.usefixtures("fresh_home")


@contextmanager
def pool(home: Path, **how: Any) -> Iterator[TipPool]:  # noqa: ANN401 - settings, or what a pool takes
    own = {name: how.pop(name) for name in ("lifetime_s", "retry_s", "emit") if name in how}
    usual = {"ollama_url": NOWHERE, "engine": "ollama", "mlflow_url": NOWHERE, "retries": 0, "timeout": 20}
    made = TipPool(Settings.of(usual | how), kind_of=lambda text: text.split()[0], folder=home, **own)
    made.start()
    try:
        yield made
    finally:
        made.stop()
        assert not any(thread.is_alive() for thread in made._threads.values())


@contextmanager
def engine(**how: Any) -> Iterator[StandIn]:  # noqa: ANN401 - any of the stand-in's fields
    with running(StandIn([SHIPPED], **how)) as host:
        yield host


def filed_for(model: FakeModel = SHIPPED, **changes: Any) -> Filed:  # noqa: ANN401 - any field of a shipping
    return filed(model=model.name, digest=model.digest, **changes)


def fresh(made: TipPool, context: dict[str, Any] = MAYA) -> Pool:
    wait_until(lambda: made.tips(context).source == "fresh", within_s=60)
    return made.tips(context)


def test_judged_tips_are_there_at_once_with_nobody_else(fresh_home: Path) -> None:
    """No engine and no MLflow: the file is enough, best tip first, each with its kind and a lasting id."""
    write_filed(fresh_home, replace(filed_for(), ledger=NOWHERE))
    with pool(fresh_home) as made:
        found = made.tips({"persona": "Maya", "hour": 9})
        assert (found.source, found.scenario, found.shipped) == (
            *("judged", "maya-monday-morning"),
            "tipbench-tip/3",
        )
        assert [tip.text for tip in found.tips] == ["Best for maya-monday-morning.", "Good."]
        assert [tip.kind for tip in found.tips] == ["Best", "Good."]
        jonas = made.tips({"scenario": "jonas-before-shift"})
        assert jonas.tips[1].text == found.tips[1].text
        assert jonas.tips[1].id != found.tips[1].id
        wait_until(lambda: {"engine", "ledger"} <= made.troubles.keys(), within_s=60)
        assert NOWHERE in made.troubles["engine"]
    with pool(fresh_home) as again:
        assert again.tips(MAYA).tips == found.tips


def test_a_kind_without_tips_is_served_by_the_nearest_that_has_some(fresh_home: Path) -> None:
    """By its name it has none to give, and that is said."""
    write_filed(fresh_home, filed_for())
    with pool(fresh_home) as made:
        assert made.tips({"hour": 20, "weekday": 3}).scenario == "jonas-before-shift"
        with pytest.raises(
            Unavailable, match="no tip for the scenario 'maya-thursday-evening' of tipbench-tip/3"
        ):
            made.tips({"scenario": "maya-thursday-evening"})
        with pytest.raises(NotFound, match="no scenario 'x'"):
            made.tips({"scenario": "x"})


def test_fresh_tips_are_asked_for_as_the_bench_asks(fresh_home: Path) -> None:
    """The same messages and options; then the model is unloaded and the host free again."""
    write_filed(fresh_home, filed_for())
    with engine() as host, pool(fresh_home, ollama_url=host.url) as made:
        assert made.tips(MAYA).source == "judged"
        found = fresh(made)
        assert [tip.text for tip in found.tips] == json.loads(TIPS)[:2]
        wait_until(lambda: host.resident == [])
        wait_until(lambda: busy_lock(host_name(host.url)) is None)
        (chat,) = host.chats
        suite = load_suite("tip")
        sent = render(suite.prompt("v1"), suite.scenario("maya-monday-morning"), n_tips=2, reply=suite.reply)
        assert [one["content"] for one in chat["messages"]] == [one.content for one in sent]
        options = {name: chat["options"][name] for name in ("temperature", "num_ctx", "num_predict")}
        assert options == {"temperature": 0.7, "num_ctx": 2048, "num_predict": 600}
        assert made.troubles == {}


def test_a_refresh_has_another_seed_and_nobody_notices(fresh_home: Path) -> None:
    """Tips are renewed before they are too old, only while somebody asks for them."""
    write_filed(fresh_home, filed_for())
    with engine() as host, pool(fresh_home, ollama_url=host.url, lifetime_s=6.0) as made:
        fresh(made)
        wait_until(lambda: made.tips(MAYA).source == "fresh" and len(host.chats) > 2, within_s=60)
        seeds = [chat["options"]["seed"] for chat in host.chats]
        assert len(set(seeds)) == len(seeds)


REPLIES = {
    "nothing": "",
    "one only": '["Only this one."]',
    "the same twice": '["Do it now.", "Do it  now."]',
    "overlong": json.dumps(["Go on " * 100, "And on " * 100]),
    "prose": "I am sorry, I cannot help.",
}


@pytest.mark.parametrize("reply", REPLIES)
def test_what_the_bench_would_not_count_is_not_served(fresh_home: Path, reply: str) -> None:
    """The judged tips stay, and it is told why; the engine is not asked the same over and over."""
    write_filed(fresh_home, filed_for())
    with engine(reply=REPLIES[reply]) as host, pool(fresh_home, ollama_url=host.url) as made:
        made.tips(MAYA)
        wait_until(lambda: host.chats and host.resident == [])
        wait_until(lambda: busy_lock(host_name(host.url)) is None)
        assert (made.tips(MAYA).source, len(host.chats)) == ("judged", 1)
        wait_until(lambda: "for 'maya-monday-morning', and wrote too few" in made.troubles.get("engine", ""))
        write_filed(fresh_home, filed_for(version=4))  # of which that was not said
        wait_until(lambda: "engine" not in made.troubles)


@pytest.mark.parametrize("fault", ["length", "full-context", "500", "torn", "drop"])
def test_a_reply_that_failed_is_not_served(fresh_home: Path, fault: str) -> None:
    """Cut off, refused or torn: the judged tips stay, and the model does not."""
    write_filed(fresh_home, filed_for())
    with (
        engine(fault=lambda _number, _body: fault) as host,
        pool(fresh_home, ollama_url=host.url) as made,
    ):
        made.tips(MAYA)
        wait_until(lambda: host.chats and host.resident == [])
        assert made.tips(MAYA).source == "judged"


def test_a_host_in_use_is_waited_for(fresh_home: Path) -> None:
    """While a collection holds it nothing is loaded; once it is free, fresh tips come."""
    write_filed(fresh_home, filed_for())
    with engine() as host, pool(fresh_home, ollama_url=host.url, retry_s=0.2) as made:
        name = host_name(host.url)
        with hold_host(name, folder=lock_folder(), experiment="may", wait=False, waiting=lambda _: None):
            made.tips(MAYA)
            wait_until(lambda: "collecting 'may'" in made.troubles.get("engine", ""))
            assert (made.tips(MAYA).source, host.loads) == ("judged", [])
        fresh(made)
        assert "engine" not in made.troubles


def test_a_strangers_model_stays_where_it_is(fresh_home: Path) -> None:
    """Never two models in memory, and none of somebody else's thrown out."""
    write_filed(fresh_home, filed_for())
    theirs = FakeModel("theirs:1b")
    host = StandIn([SHIPPED, theirs], resident=["theirs:1b"])
    with running(host), pool(fresh_home, ollama_url=host.url) as made:
        made.tips(MAYA)
        wait_until(lambda: "theirs:1b" in made.troubles.get("engine", ""))
        assert (host.resident, host.loads, made.tips(MAYA).source) == (["theirs:1b"], [], "judged")


def test_other_weights_under_the_name_are_refused(fresh_home: Path) -> None:
    """What was judged is served, or what judges have read."""
    write_filed(fresh_home, filed_for(FakeModel("small:1b", weights="others")))
    with engine() as host, pool(fresh_home, ollama_url=host.url) as made:
        made.tips(MAYA)
        wait_until(lambda: "not the one that was judged" in made.troubles.get("engine", ""))
        assert host.chats == []


def test_another_prompt_under_the_name_is_refused(fresh_home: Path) -> None:
    """A text that changed after it was shipped is not asked with."""
    write_filed(fresh_home, filed_for(prompt_hash="0" * 64))
    with engine() as host, pool(fresh_home, ollama_url=host.url) as made:
        made.tips(MAYA)
        wait_until(lambda: "is not the one that was shipped" in made.troubles.get("engine", ""))
        assert host.chats == []


def test_what_is_shipped_next_is_served_next(fresh_home: Path) -> None:
    """Another version in the file takes the place of the old one, whose fresh tips are gone with it."""
    write_filed(fresh_home, filed_for())
    with engine() as host, pool(fresh_home, ollama_url=host.url) as made:
        fresh(made)
        other = filed_for(FakeModel("gone:1b"), version=4)
        write_filed(fresh_home, other)
        wait_until(lambda: made.tips(MAYA).shipped == "tipbench-tip/4")
        assert made.tips(MAYA).source == "judged"


def test_new_verdicts_leave_fresh_tips_alone(fresh_home: Path) -> None:
    """The same version with other judged tips: what is fresh stays so."""
    first = filed_for()
    write_filed(fresh_home, first)
    with engine() as host, pool(fresh_home, ollama_url=host.url) as made:
        fresh(made)
        kinds = tuple(replace(kind, tips=("New one.",)) for kind in first.kinds)
        write_filed(fresh_home, replace(first, kinds=kinds))
        late = {"scenario": "carl-closing-time"}
        wait_until(lambda: made.tips({"scenario": "jonas-before-shift"}).tips[0].text == "New one.")
        assert made.tips(MAYA).source == "fresh"
        assert fresh(made, late).scenario == "carl-closing-time"


def test_nothing_shipped_says_what_to_do_until_something_is(fresh_home: Path) -> None:
    """The pool starts without, and takes up what comes."""
    with pool(fresh_home) as made:
        with pytest.raises(NotFound, match="nothing is shipped yet; ship a winner with `tipbench ship"):
            made.tips({})
        write_filed(fresh_home, filed_for())
        wait_until(lambda: served(made))


def served(made: TipPool) -> bool:
    try:
        return bool(made.tips({}).tips)
    except (NotFound, StoreUnusable):
        return False


def test_a_damaged_file_is_an_error_at_first_and_a_trouble_later(fresh_home: Path) -> None:
    """With nothing to serve, every request says so; with something it goes on, and the trouble is known."""
    fresh_home.mkdir()
    (fresh_home / FILE).write_text("{")
    with pool(fresh_home) as made:
        with pytest.raises(StoreUnusable, match=rf"{FILE} is damaged"):
            made.tips({})
        write_filed(fresh_home, filed_for())
        wait_until(lambda: served(made))
        assert "file" not in made.troubles
        (fresh_home / FILE).write_text("{")
        wait_until(lambda: made.tips(MAYA).tips and "file" in made.troubles)


def test_stopping_breaks_off_a_reply_and_frees_the_memory(fresh_home: Path) -> None:
    """A model that would write for an hour is unloaded, and the host is free."""
    write_filed(fresh_home, filed_for())
    with engine(fault=lambda _number, _body: "stall") as host:
        with pool(fresh_home, ollama_url=host.url) as made:
            made.tips(MAYA)
            wait_until(lambda: host.in_flight)
        assert host.resident == []
        assert busy_lock(host_name(host.url)) is None


def test_a_request_waits_for_nobody(fresh_home: Path) -> None:
    """While the ledger hangs and the engine stalls, tips are given, and a new shipping is taken up."""
    with Proxy(decide=lambda _request: "hang").running() as ledger:
        first = replace(filed_for(), ledger=ledger.url)
        write_filed(fresh_home, first)
        with pool(fresh_home, mlflow_url=ledger.url) as made:
            wait_until(lambda: ledger.seen)
            assert made.tips(MAYA).source == "judged"
            write_filed(fresh_home, replace(first, shipped=replace(first.shipped, version=9)))
            wait_until(lambda: made.tips(MAYA).shipped == "tipbench-tip/9", within_s=4)


def test_what_another_machine_shipped_is_taken_up(home: Path) -> None:
    """The pool asks the ledger when it starts: an alias that moved meanwhile is followed."""
    plant_judged("won", "won-by-the-small-one")
    local = Settings.of({})
    first = ship(local, experiment="won")
    ship(local, experiment="won-by-the-small-one")
    open_ledger("", home=home).set_shipped("tip", first.version)
    with pool(home, mlflow_url="") as made:
        wait_until(lambda: made.tips(MAYA).shipped == f"tipbench-tip/{first.version}")
        assert all(tip.text.endswith("breaths.") for tip in made.tips(MAYA).tips)


def test_a_real_engine_writes_them(fresh_home: Path, tmp_path: Path) -> None:
    """A real llama.cpp with the prompt that has a schema; its process ends with the session."""
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    write_filed(fresh_home, filed(model="tiny", digest=digest, prompt="v4-structured"))
    heard: list[str] = []
    how: dict[str, Any] = {"engine": "embedded", "gguf": [f"tiny={path}"]}
    with pool(fresh_home, **how, lifetime_s=20.0, emit=lambda event: heard.append(event["event"])) as made:
        wait_until(lambda: made.tips(MAYA).source == "fresh" or made.troubles.get("engine"), within_s=120)
        assert "engine" not in made.troubles
        found = made.tips(MAYA)
        assert (found.source, len(found.tips)) == ("fresh", 2)
        wait_until(lambda: "model_unloaded" in heard)
        wait_until(lambda: busy_lock("embedded") is None)
