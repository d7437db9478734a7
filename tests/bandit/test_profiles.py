"""A user's counters."""

from __future__ import annotations

import math
import struct
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tipbench.bandit.profiles import MOST_KINDS, Profile, Served, Tally, Watched
from tipbench.errors import BadInput, BadState


def lived() -> Profile:
    """A profile with some of everything in it."""
    profile = Profile()
    for turn, kind in enumerate(["focus", "rest", "focus", "ünüsual 💡", ""]):
        profile = profile.shown(kind, "egreedy", turn == 1).dwelt(kind, 40.0 * turn)
        profile = profile.ended(
            kind, "egreedy", turn % 2, "completed" if turn % 2 else "dismissed", 4.0 * turn
        )
    return profile


def test_what_is_shown_is_counted() -> None:
    """A tip shown counts for its kind, the user and the policy, and is the newest of the recent ones."""
    profile = Profile().shown("focus", "egreedy", False).shown("rest", "linucb", True)
    assert profile.recent == ("focus", "rest")
    assert (profile.total.shown, profile.kinds["focus"].shown, profile.kinds["rest"].shown) == (2, 1, 1)
    assert profile.served == {"egreedy": Served(1, 0, 0, 0.0), "linucb": Served(1, 1, 0, 0.0)}


def test_the_last_ten_kinds_are_remembered() -> None:
    """Of many tips shown, the kinds of the last ten are kept in their order."""
    profile = Profile()
    for turn in range(25):
        profile = profile.shown(str(turn), "egreedy", False)
    assert profile.recent == tuple(str(turn) for turn in range(15, 25))


def test_what_ended_is_counted() -> None:
    """Rewards add up as completions, dismissals are counted, and hours weigh as much as their reward."""
    profile = Profile().ended("focus", "egreedy", 1.0, "completed", 6.0)
    profile = profile.ended("focus", "egreedy", 0.0, "dismissed", 6.0).ended(
        "rest", "egreedy", 0.5, "liked", None
    )
    assert profile.kinds["focus"] == Tally(0, 2, 1.0, 1, 0, 0.0, 1.0, math.cos(math.pi / 2), 1.0)
    assert profile.kinds["rest"] == Tally(0, 1, 0.5, 0, 0, 0.0, 0.0, 0.0, 0.0)
    assert profile.total == Tally(0, 3, 1.5, 1, 0, 0.0, 1.0, math.cos(math.pi / 2), 1.0)
    assert profile.served["egreedy"] == Served(0, 0, 3, 1.5)


def test_dwell_is_counted_up_to_ten_minutes() -> None:
    """Seconds above 600 add nothing, and dwelling teaches no policy."""
    profile = Profile().dwelt("focus", 30.0).dwelt("focus", 1e9)
    assert (profile.kinds["focus"].dwell_n, profile.kinds["focus"].dwell_sum) == (2, 630.0)
    assert profile.total.dwell_sum == 630.0
    assert profile.served == {}


def test_a_profile_is_never_changed() -> None:
    """Every step leaves the profile before it as it was."""
    before = lived()
    kept = before.encode()
    before.shown("new", "x", True).ended("new", "x", 1.0, "completed", 3.0).dwelt("focus", 3.0)
    assert before.encode() == kept


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_numbers_that_cannot_be_are_refused(bad: float) -> None:
    """Rewards, hours and seconds that are no such thing never reach the counters."""
    with pytest.raises(BadInput, match="reward"):
        Profile().ended("focus", "x", bad, "completed", 3.0)
    with pytest.raises(BadInput, match="hour"):
        Profile().ended("focus", "x", 1.0, "completed", bad)
    with pytest.raises(BadInput, match="seconds"):
        Profile().dwelt("focus", bad)


def test_a_profile_comes_back_from_its_bytes() -> None:
    """What is decoded equals what was encoded, whatever the kinds are called."""
    profile = msgspec.structs.replace(lived(), floor=1_700_000_000_000)
    assert Profile.decode(profile.encode()) == profile
    assert Profile.decode(Profile().encode()) == Profile()


def test_a_profile_from_before_shadows_were_counted_is_read() -> None:
    """Bytes without them are those of a user whom no shadow has watched."""
    *older, shadows = msgspec.msgpack.decode(msgspec.msgpack.encode(lived()))
    body = msgspec.msgpack.encode(older)
    assert shadows == {}
    assert Profile.decode(struct.pack("<3sBI", b"TBP", 1, crc32(body)) + body) == lived()


def test_what_shadows_said_outlives_what_follows() -> None:
    """A tip shown or ended keeps how often a shadow agreed, and no dimension depends on it."""
    profile = lived().watched("shadow:s", agreed=True).watched("shadow:s", agreed=False)
    after = profile.shown("focus", "egreedy", False).ended("focus", "egreedy", 1.0, "completed", 3.0)
    assert after.dwelt("focus", 3.0).shadows == {"shadow:s": Watched(2, 1)}
    assert msgspec.structs.replace(profile, shadows={}) == lived()


@given(place=st.integers(0, 10_000), flip=st.integers(1, 255))
def test_any_damaged_byte_is_noticed(place: int, flip: int) -> None:
    """Whichever byte is changed, decoding names the profile."""
    data = bytearray(lived().encode())
    data[place % len(data)] ^= flip
    with pytest.raises(BadState, match=r"^the profile of 'u' cannot be read: "):
        Profile.decode(bytes(data), what="the profile of 'u'")


@given(st.binary(max_size=60))
def test_other_bytes_are_not_a_profile(data: bytes) -> None:
    """Bytes of any other origin are refused, never read as an empty profile."""
    with pytest.raises(BadState):
        Profile.decode(data)


def test_a_new_kind_with_every_tip_does_not_grow_the_profile() -> None:
    """At most 64 kinds are kept, those shown most among them, and the totals keep them all."""
    profile = Profile()
    for turn in range(300):
        profile = profile.shown("often", "x", False).shown(f"once {turn}", "x", False)
    assert len(profile.kinds) == MOST_KINDS
    assert profile.kinds["often"].shown == 300
    assert "once 299" in profile.kinds
    assert profile.total.shown == 600
