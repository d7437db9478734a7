"""Messages that go out: to one address only, signed, again and again until they arrive or are given up."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from judged_world import World, judge_next, plant
from receiver import Receiver, listening
from tipbench.store import Store
from tipbench.workflows.webhooks import (
    MOST_AT_ONCE,
    NONCE,
    SIGNATURE,
    TIMESTAMP,
    Hook,
    announce,
    deliver_due,
    next_wait_s,
    signature,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "shared"  # noqa: S105 - of a test
MINUTE_MS = 60_000


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with listening(Receiver()) as found:
        yield found


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "service.db") as opened:
        yield opened


@pytest.fixture
def world(home: Path) -> World:
    return plant("mail", quality={("a:1b", "v1"): 4.0, ("b:1b", "v1"): 2.0}, n_scenarios=1)


def mail(store: Store, *, key: str = "one", url: str = "http://elsewhere.invalid/") -> None:
    assert store.deliveries.add(key=key, event="test", url=url, body='{"é": 1}', now_ms=0)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_a_message_arrives_signed_over_its_bytes(store: Store, receiver: Receiver) -> None:
    """The receiver can check it with the secret alone; the delivery counts as sent and is not sent again."""
    mail(store)
    hook = Hook(url=receiver.url, secret=SECRET)
    assert deliver_due(store, hook, now_ms()) == 1
    path, headers, body = receiver.got[0]
    assert path == "/in?from=tipbench"
    assert json.loads(body) == {"é": 1}
    expected = signature(SECRET, timestamp=headers[TIMESTAMP], nonce=headers[NONCE], body=body)
    assert headers[SIGNATURE] == expected
    assert abs(int(headers[TIMESTAMP]) - time.time()) < 60
    [sent] = store.deliveries.page()
    assert (sent.state, sent.status, sent.attempts, sent.last_error) == ("sent", 200, 1, "")
    assert deliver_due(store, hook, now_ms() + 10**9) == 0


def test_a_message_goes_to_the_configured_address_alone(store: Store, receiver: Receiver) -> None:
    """Neither the address it was kept with nor a redirect leads it elsewhere."""
    with listening(Receiver()) as other:
        receiver.status, receiver.headers = 307, {"Location": other.url}
        mail(store, url=other.url)
        deliver_due(store, Hook(url=receiver.url, secret=SECRET), now_ms())
        assert (len(receiver.got), len(other.got)) == (1, 0)
    [kept] = store.deliveries.page()
    assert (kept.state, kept.status) == ("waiting", 307)


def test_what_fails_is_tried_again_later_with_a_new_nonce(store: Store, receiver: Receiver) -> None:
    """After about a minute, with what was said kept in short; then it arrives."""
    receiver.status, receiver.reply = 500, b"x" * 100_000
    mail(store)
    hook = Hook(url=receiver.url, secret=SECRET)
    began = now_ms()
    deliver_due(store, hook, began)
    [kept] = store.deliveries.page()
    assert (kept.state, kept.status) == ("waiting", 500)
    assert len(kept.last_error) <= 500
    assert 0.85 * MINUTE_MS < kept.next_ms - began < 1.15 * MINUTE_MS + 20_000
    assert deliver_due(store, hook, began + 30_000) == 0
    receiver.status = 204
    receiver.reply = b""
    assert deliver_due(store, hook, kept.next_ms) == 1
    assert len({headers[NONCE] for _, headers, _ in receiver.got}) == 2
    assert store.deliveries.page()[0].state == "sent"


def test_an_address_that_does_not_answer_is_tried_again(store: Store) -> None:
    """Refused connections and addresses that are none are failures like any other."""
    for number, url in enumerate(("http://127.0.0.1:9/", "http://[", "nonsense", "http://\x00/")):
        mail(store, key=str(number))
        deliver_due(store, Hook(url=url, secret=SECRET), now_ms())
    assert {one.state for one in store.deliveries.page()} == {"waiting"}
    assert all(one.last_error for one in store.deliveries.page())


@pytest.mark.parametrize(
    "url",
    ["http://ann:hushhush@127.0.0.1:9/?token=hushhush", "http://ann:hushhush@[", "http://ann:hush/hush@h/x"],
)
def test_a_failed_delivery_names_no_secret_of_the_address(store: Store, url: str) -> None:
    """What is stored of a failure has no login and no token of the receiver's address."""
    mail(store)
    deliver_due(store, Hook(url=url, secret=SECRET), now_ms())
    (kept,) = store.deliveries.page()
    assert kept.last_error
    assert "hush" not in kept.last_error


def test_a_receiver_cannot_have_its_token_stored(store: Store, receiver: Receiver) -> None:
    """A receiver that repeats the request's address is stored without the token."""
    mail(store)
    receiver.status = 500
    receiver.reply = b"no route /hook?token=hushhush for ann:hushhush"
    url = receiver.url.replace("://", "://ann:hushhush@") + "?token=hushhush"
    deliver_due(store, Hook(url=url, secret=SECRET), now_ms())
    (kept,) = store.deliveries.page()
    assert "no route /hook?" in kept.last_error
    assert "hush" not in kept.last_error


def test_a_receiver_that_drips_is_given_up_after_a_while(store: Store) -> None:
    """One that sends a byte now and then, and never a whole answer, holds nothing up."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        stop = threading.Event()

        def drip() -> None:
            accepted, _ = server.accept()
            with accepted, suppress(OSError):
                while not stop.wait(0.05):
                    accepted.sendall(b"H")

        thread = threading.Thread(target=drip)
        thread.start()
        mail(store)
        hook = Hook(url=f"http://127.0.0.1:{server.getsockname()[1]}/", secret=SECRET)
        assert deliver_due(store, hook, now_ms(), longest_s=0.5) == 1
        stop.set()
        thread.join(timeout=20)
    [kept] = store.deliveries.page()
    assert (kept.state, kept.attempts) == ("waiting", 1)
    assert kept.last_error


def test_waits_grow_and_end() -> None:
    """A minute, five, thirty, then two hours each; after about a day it is given up."""
    waits = [next_wait_s(attempts) for attempts in range(1, 17)]
    assert waits[-1] is None
    known = [wait for wait in waits if wait is not None]
    assert len(known) == 15
    for wait, usual in zip(known, (60, 300, 1800, *(7200,) * 12), strict=True):
        assert 0.9 * usual <= wait <= 1.1 * usual
    assert len({next_wait_s(4) for _ in range(20)}) > 1


def test_a_receiver_that_is_gone_is_left_alone(store: Store, receiver: Receiver) -> None:
    """410 gives a message up at once."""
    receiver.status = 410
    mail(store)
    deliver_due(store, Hook(url=receiver.url, secret=SECRET), now_ms())
    assert store.deliveries.page()[0].state == "failed"


def test_only_a_few_are_sent_at_once(store: Store, receiver: Receiver) -> None:
    """A backlog is worked off without a crowd before the receiver's door."""
    receiver.pause_s = 0.05
    for number in range(12):
        mail(store, key=str(number))
    assert deliver_due(store, Hook(url=receiver.url, secret=SECRET), now_ms()) == 12
    assert len(receiver.got) == 12
    assert 1 < receiver.most_at_once <= MOST_AT_ONCE


def test_a_batch_is_announced_once_with_its_file(store: Store, world: World) -> None:
    """The message has the judge's file of a batch that is in the ledger; the same occasion is told once."""
    hook = Hook(url="http://127.0.0.1:9/", secret=SECRET)
    assert announce(store, hook, world.settings, key="job.1", now_ms=7)
    assert not announce(store, hook, world.settings, key="job.1", now_ms=8)
    [batch] = world.ledger.batches("mail")
    [kept] = store.deliveries.page()
    message = json.loads(kept.body)
    assert (message["event"], message["experiment"], message["batch"]) == (
        "batch.ready",
        "mail",
        batch.batch_id,
    )
    assert message["file"]["batch"] == batch.batch_id
    assert len(message["file"]["items"]) == len(batch.items)
    assert batch.judge == ""
    assert not [item for item in message["file"]["items"] if "role" in item]


def test_nothing_is_announced_where_nothing_is_left_to_judge(
    store: Store, world: World, tmp_path: Path
) -> None:
    """An experiment that is judged, or that has no cells, makes no message and no batch."""
    judge_next(world, tmp_path / "batch.json")
    before = len(world.ledger.batches("mail"))
    hook = Hook(url="http://127.0.0.1:9/", secret=SECRET)
    assert not announce(store, hook, world.settings, key="job.1", now_ms=7)
    assert len(world.ledger.batches("mail")) == before
    assert store.deliveries.page() == ()
