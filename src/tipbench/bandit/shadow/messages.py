"""What a shadow's process is told and what it answers: msgpack, each message after its length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from tipbench.bandit.asked import ScoreRequest  # noqa: TC001 - msgspec reads annotations when it runs
from tipbench.bandit.profiles import Profile  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Iterator

FULL, SLOW, BROKEN, UNFIT = "full", "slow", "broken", "unfit"
UNKNOWN, STOPPED = "unknown", "stopped"
REASONS = {
    FULL: "more waited than may",
    SLOW: "it took longer than its deadline",
    BROKEN: "the policy failed, or answered what no policy may",
    UNFIT: "the request's features are not those the policy reads",
    UNKNOWN: "a reward for a decision that the shadow has not made",
    STOPPED: "the service was stopped meanwhile",
}
LONGEST_ANSWER = 8 * 2**20  # bytes; 200 candidates take some 20 kB
_LENGTH = 4
_encoder = msgspec.msgpack.Encoder()


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """The first message: what to run, and within which bounds."""

    policy: str
    start_s: float
    deadline_s: float
    memory_mb: int


class Decide(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A decision that was served: its request, and the tip that was `served`.

    `profile` is the user's as it was before the decision; None is a user nothing is known of.
    `u` is the number in [0, 1) that the served tip was drawn with: the shadow draws with the same one.
    """

    decision_id: str
    user_id: str
    request: ScoreRequest
    profile: Profile | None
    u: float
    served: str

    @property
    def size(self) -> int:
        """About how many bytes it holds, at most a few times what the caller sent."""
        tasks = self.request.situation.open_tasks
        texts = sum([len(tip.text or "") + 400 for tip in self.request.candidates])
        return 1000 + texts + (sum(map(len, tasks)) if isinstance(tasks, list) else 0)


class Teach(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What the tip that was served has earned; only an apprentice is ever told.

    Whose it was (`user_id`) and that tip's vector in the shadow's own features (`x`) are filled in where they
    are known: from the shadow's own decision, else from the log. Without `x` it is of the same batch.
    """

    decision_id: str
    reward: float
    user_id: str = ""
    x: bytes | None = None

    @property
    def size(self) -> int:
        return len(self.x or b"") + 400


Ask: TypeAlias = "Decide | Teach"


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Asks in their order, with all that is remembered of the users in them.

    The process remembers nothing between batches: when it dies, nothing that was learned dies with it.
    """

    asks: list[Decide | Teach]
    own: dict[str, bytes] = {}
    pooled: bytes | None = None


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    policy: str
    policy_version: str
    feature_version: str


class Decided(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    decision_id: str
    tip_id: str
    scores: dict[str, float]
    propensities: dict[str, float]
    explored: bool
    absent: list[str]
    served_x: bytes  # float64, little endian
    took_us: int


class Learned(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    decision_id: str
    own: bytes | None
    pooled: bytes | None
    took_us: int


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """`reason` is one of those that drops are counted by; `said` is a sentence for people."""

    decision_id: str
    reason: str
    said: str


Answer: TypeAlias = "Ready | Decided | Learned | Refused"
_answers = msgspec.msgpack.Decoder(Ready | Decided | Learned | Refused)


def framed(message: Any) -> bytes:  # noqa: ANN401 - any of the messages above
    said = _encoder.encode(message)
    return len(said).to_bytes(_LENGTH, "little") + said


class Unreadable(ValueError):
    """Bytes that are no answer: whoever sent them can no longer be understood."""


class Frames:
    """Messages cut out of the bytes of a stream, however these arrive."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._bytes = bytearray()

    def feed(self, some: bytes) -> Iterator[bytes]:
        self._bytes += some
        while len(self._bytes) >= _LENGTH:
            end = _LENGTH + int.from_bytes(self._bytes[:_LENGTH], "little")
            if end > self._longest:
                raise Unreadable(f"a message of {end} bytes")
            if len(self._bytes) < end:
                return
            yield bytes(self._bytes[_LENGTH:end])
            del self._bytes[:end]


def answer(said: bytes) -> Answer:
    try:
        read: Answer = _answers.decode(said)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(str(error)) from None
    return read
