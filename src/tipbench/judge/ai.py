"""The AI judge without the AI: what it is asked, how its replies are read, what becomes of them.

Each block is one conversation of its own: a few texts of one scenario, under the whole rubric. A block is
scored in two turns, the second in the reverse order of the first, and a text's scores are the mean of both,
so that a place in the list favours nobody. Both readings are kept, for the swap audit.

On each scale the reply gives a reason that begins with the level, then the score. If the two numbers differ,
the text is sent once more. If they differ again, the text gets no scores and is counted.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import json_repair

from tipbench.errors import ModelRefused
from tipbench.records import Message, content_hash
from tipbench.suite.judge_prompt import BUILT_IN
from tipbench.suite.problems import listed

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    from tipbench.suite.judge_prompt import JudgePrompt
    from tipbench.suite.rubric import Rubric, Scale

MOST_ITEMS = 10
TURNS = 2
TRIES = 2
SEED = 1
_LONGEST_REASON = 120

# The level at the beginning of a reason: "level 4: …". "4.5" and "4-5" are no level.
_LEVEL = re.compile(r"[^\w-]*(?:level[^\w-]*)?(-?\d{1,6})(?![\d.,\u2013-]*\d)", re.IGNORECASE)

# An entry in a reply that is no JSON as a whole: braces with at most one level of braces inside.
_ENTRY = re.compile(r"\{(?:[^{}]|\{[^{}]*\})*\}")

_ESCAPES = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<[\u0085\u2028\u2029"}


@dataclass(frozen=True, kw_only=True)
class Block:
    """Texts of one scenario to be scored together, as `(id, text)`; nothing tells who wrote them."""

    scenario_id: str
    context: str
    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One question to the judge. `order` has the ids behind the numbers 1, 2, … of its texts.

    `format` fixes the whole form of the reply, number by number; `loose_format` is for servers that know less
    of JSON Schema.
    """

    turn: int
    messages: tuple[Message, ...]
    order: tuple[str, ...]
    format: Mapping[str, Any]
    loose_format: Mapping[str, Any]
    num_predict: int

    def place(self, item_id: str) -> float | None:
        """Where a text stands in the list, from 0 to 1. None if it is the only one."""
        last = len(self.order) - 1
        return self.order.index(item_id) / last if last else None

    @property
    def num_ctx(self) -> int:
        """About how many tokens the question and its reply take; rather too many than too few."""
        asked = sum(math.ceil(len(message.content.encode()) / 3) + 32 for message in self.messages)
        return asked + self.num_predict


@dataclass(frozen=True, kw_only=True)
class BlockScores:
    """The scores of one block by text id, each the mean of the `readings` in the two orders.

    The first reading is the one in which the text stood nearer to the top. A text that was sent alone has no
    readings, because its order cannot be reversed. `inconsistent` are the texts without scores whose reasons
    named another level than their scores, twice.
    """

    scores: Mapping[str, Mapping[str, float]]
    readings: Mapping[str, tuple[Mapping[str, float], ...]]
    inconsistent: tuple[str, ...] = ()


def prompt_hash(prompt: JudgePrompt = BUILT_IN) -> str:
    """The hash of the prompt and the procedure: a part of a judge's identity, since both sway its scores."""
    return content_hash([prompt.system, prompt.user, MOST_ITEMS, TURNS, TRIES, "reason and score"])[:8]


def sitting(
    block: Block, *, rubric: Rubric, prompt: JudgePrompt = BUILT_IN
) -> Generator[Ask, str | None, BlockScores]:
    """Yield each question and receive its reply, or None for no reply. Return the scores of the block.

    A text that was not read in both turns gets no scores.
    """
    turns: list[dict[str, _Reading]] = []
    differing: set[str] = set()
    wanted = block.items
    for turn in range(TURNS):
        found: dict[str, _Reading] = {}
        for attempt in range(TRIES):
            left = [item for item in wanted if item[0] not in found]
            if left:
                items = _ordered(left, turn=turn, attempt=attempt)
                ask = _ask(block, items, turn=turn, rubric=rubric, prompt=prompt)
                reply = read_reply((yield ask) or "", order=ask.order, scales=rubric.scales)
                found |= {one: _Reading(ask.place(one), scores) for one, scores in reply.scores.items()}
                differing |= reply.inconsistent
        turns.append(found)
        wanted = tuple(item for item in wanted if item[0] in found)
    both = {item_id: [found[item_id] for found in turns] for item_id, _ in wanted}
    return BlockScores(
        scores={item_id: _mean([one.scores for one in some]) for item_id, some in both.items()},
        readings={item_id: _by_place(some) for item_id, some in both.items()},
        inconsistent=tuple(item_id for item_id, _ in block.items if item_id in differing - both.keys()),
    )


class _Reading(NamedTuple):
    """A text's scores in one reply. `place` is 0 at the top of the list and 1 at its end."""

    place: float | None
    scores: Mapping[str, float]


def _by_place(readings: Sequence[_Reading]) -> tuple[Mapping[str, float], ...]:
    """The scores, those from the place nearer to the top first; none where a text was sent alone."""
    if any(one.place is None for one in readings):
        return ()
    return tuple(one.scores for one in sorted(readings, key=lambda one: one.place or 0.0))


def _mean(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(each[name] for each in scores) / len(scores) for name in scores[0]}


def _ordered(items: Sequence[tuple[str, str]], *, turn: int, attempt: int) -> list[tuple[str, str]]:
    """An order that depends on the texts alone, not on how they came; every other turn goes backwards."""
    shuffled = sorted(items, key=lambda item: (content_hash([attempt, item[1]]), item[0]))
    return shuffled[::-1] if turn % 2 else shuffled


def cut_block(block: Block, *, most: int = MOST_ITEMS) -> list[Block]:
    """The block in as few parts as hold at most that many texts each, as even as can be."""
    parts = math.ceil(len(block.items) / most)
    bounds = [round(len(block.items) * part / parts) for part in range(parts + 1)] if parts else []
    return [
        Block(scenario_id=block.scenario_id, context=block.context, items=block.items[start:end])
        for start, end in pairwise(bounds)
    ]


def fit_blocks(
    blocks: Iterable[Block],
    *,
    rubric: Rubric,
    model: str,
    room: int | None,
    prompt: JudgePrompt = BUILT_IN,
) -> tuple[list[Block], int]:
    """The blocks cut to fit a context of `room` tokens (None: as it comes), and the tokens they need."""
    blocks, needs = list(blocks), 0
    for most in range(MOST_ITEMS, 0, -1):
        cut = [part for block in blocks for part in cut_block(block, most=most)]
        needs = max((first_question(part, rubric=rubric, prompt=prompt).num_ctx for part in cut), default=0)
        if room is None or needs <= room:
            return cut, needs
    raise ModelRefused(
        f"{model} holds {room} tokens and the rubric {rubric.id} with one text takes about {needs}; "
        "choose a judge with a longer context"
    )


def first_question(block: Block, *, rubric: Rubric, prompt: JudgePrompt = BUILT_IN) -> Ask:
    """The first question about a block."""
    return _ask(block, _ordered(block.items, turn=0, attempt=0), turn=0, rubric=rubric, prompt=prompt)


def _ask(
    block: Block, items: Sequence[tuple[str, str]], *, turn: int, rubric: Rubric, prompt: JudgePrompt
) -> Ask:
    count = len(items)
    system, user = prompt.render(
        {
            "rubric": rubric.text.strip(),
            "form": _form(rubric.scales),
            "scales": ", ".join(f"{scale.name} from {scale.low} to {scale.high}" for scale in rubric.scales),
            "context": block.context.strip(),
            "texts": "\n".join(_as_data(number, text) for number, (_, text) in enumerate(items, 1)),
            "numbers": "number 1" if count == 1 else f"numbers 1 to {count}",
        }
    )
    asked = Message(role="user", content=user)
    return Ask(
        turn=turn,
        messages=(Message(role="system", content=system), asked) if system else (asked,),
        order=tuple(item_id for item_id, _ in items),
        format=reply_schema(rubric.scales, count=count, by_number=True),
        loose_format=reply_schema(rubric.scales, count=count, by_number=False),
        num_predict=64 + count * entry_tokens(rubric.scales),
    )


def entry_tokens(scales: Sequence[Scale]) -> int:
    """About how many tokens the entry of one text takes at most."""
    return 16 + sum(24 + len(scale.name) // 2 + _LONGEST_REASON // 3 for scale in scales)


def _form(scales: Sequence[Scale]) -> str:
    each = ", ".join(
        f'"{scale.name}": {{"reason": "level <{scale.low} to {scale.high}>: …", '
        f'"score": <{scale.low} to {scale.high}>}}'
        for scale in scales
    )
    return f'{{"scores": [{{"n": 1, {each}}}, …]}}'


def _as_data(number: int, text: str) -> str:
    """One line of JSON that its text cannot break out of, nor pass for a chat template's own marks."""
    line = json.dumps({"n": number, "text": text}, ensure_ascii=False)
    return line.translate(_ESCAPES)


def reply_schema(scales: Sequence[Scale], *, count: int, by_number: bool) -> dict[str, Any]:
    """The reply's form as JSON Schema.

    `by_number` fixes the numbers of the entries, their order and the beginning of each reason. It is for
    hosts that turn a schema into a grammar; other servers may not know all of it.
    """
    numbers = range(1, count + 1)
    any_number = _entry(scales, {"type": "integer", "enum": list(numbers)}, strict=False)
    each = [_entry(scales, {"type": "integer", "enum": [number]}, strict=True) for number in numbers]
    items = {"prefixItems": each, "items": False} if by_number else {"items": any_number}
    return _object({"scores": {"type": "array", **items, "minItems": count, "maxItems": count}})


def _entry(scales: Sequence[Scale], number: Mapping[str, Any], *, strict: bool) -> dict[str, Any]:
    return _object({"n": number, **{scale.name: _reasoned(scale, strict=strict) for scale in scales}})


def _reasoned(scale: Scale, *, strict: bool) -> dict[str, Any]:
    """A reason and a score. The schema leaves both numbers free: that they agree is the check."""
    reason: dict[str, Any] = {"type": "string"}
    if strict:
        level = "-?[0-9]{1,6}" if len(scale.levels) > 50 else f"({'|'.join(map(str, scale.levels))})"
        reason["pattern"] = f'^level {level}: [^"\\\\\\x00-\\x1F]{{1,{_LONGEST_REASON}}}$'
    return _object({"reason": reason, "score": _level(scale)})


def _level(scale: Scale) -> dict[str, Any]:
    """Every level by itself, which all servers know; a long scale by its ends."""
    if len(scale.levels) > 50:
        return {"type": "integer", "minimum": scale.low, "maximum": scale.high}
    return {"type": "integer", "enum": list(scale.levels)}


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    required = list(properties)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


@dataclass(frozen=True, kw_only=True)
class ReadReply:
    """The scores that a reply gives, by id, and the ids of the texts whose reasons name another level."""

    scores: Mapping[str, Mapping[str, float]]
    inconsistent: frozenset[str] = frozenset()


def read_reply(reply: str, *, order: Sequence[str], scales: Sequence[Scale]) -> ReadReply:
    """Read the scores of a reply.

    A text is left out if its entry is missing, is there twice, or lacks a score or a reason on a scale, if a
    score is no whole number of its scale, or if a reason begins with another level than its score.
    """
    seen: dict[int, list[Mapping[str, object]]] = {}
    for entry in _entries(reply):
        values = _folded(entry)
        number = _whole(values.get("n"))
        if number is not None:
            seen.setdefault(number, []).append(values)
    single = {item_id: seen[n][0] for n, item_id in enumerate(order, 1) if len(seen.get(n, ())) == 1}
    read = {item_id: _scored(values, scales) for item_id, values in single.items()}
    return ReadReply(
        scores={item_id: scores for item_id, scores in read.items() if isinstance(scores, dict)},
        inconsistent=frozenset(item_id for item_id, scores in read.items() if scores == "inconsistent"),
    )


def _folded(entry: Mapping[str, object]) -> dict[str, object]:
    return {str(name).strip().casefold(): value for name, value in entry.items()}


def _scored(
    values: Mapping[str, object], scales: Sequence[Scale]
) -> dict[str, float] | Literal["inconsistent"] | None:
    """The scores of one entry. None if one cannot be read; that goes before a reason that differs."""
    scores: dict[str, float] = {}
    differs = False
    for scale in scales:
        given = values.get(scale.name.casefold())
        inner = _folded(given) if isinstance(given, dict) else {}
        score, reason = _whole(inner.get("score")), inner.get("reason")
        level = _LEVEL.match(reason) if isinstance(reason, str) else None
        if score is None or score not in scale.levels or level is None:
            return None
        differs = differs or int(level[1]) != score
        scores[scale.name] = score
    return "inconsistent" if differs else scores


def _whole(value: object) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d{1,6}\s*", value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value // 1:
        return None
    return int(value)


def _entries(reply: str) -> Sequence[Mapping[str, object]]:
    """The reply's entries: as JSON, else the first JSON in it, else every whole entry that can be mended."""
    text = _said(reply)
    for value in _values(text):
        given = value.get("scores") if isinstance(value, dict) else value
        entries = [entry for entry in given if isinstance(entry, dict)] if isinstance(given, list) else []
        if entries:
            return entries
    return [entry for entry in map(_mended, _ENTRY.findall(text)) if entry]


def _said(reply: str) -> str:
    """What comes after the model's thinking; nothing where that has no end."""
    return reply.rpartition("</think>")[2].partition("<think>")[0].strip()


def _values(text: str) -> Iterator[object]:
    """Each object or list that begins somewhere in the text and is whole, by where it begins."""
    decoder = json.JSONDecoder()
    for opener in re.finditer(r"[{\[]", text):
        try:
            yield decoder.raw_decode(text, opener.start())[0]
        except (ValueError, RecursionError):
            continue


def _mended(chunk: str) -> Mapping[str, object]:
    """An entry with small mistakes (quotes, commas) put right. It was closed, so nothing is cut off."""
    value = json_repair.loads(chunk)
    return value if isinstance(value, dict) else {}


def family_of(name: str) -> str:
    """A model's family: its name's leading letters, without the registry and the owner before it."""
    last = name.strip().rpartition("/")[2]
    letters = re.match(r"[^\W\d_]+", last)
    return (letters[0] if letters else last.partition(":")[0]).casefold()


def refuse_kin(judge: str, contestants: Iterable[str]) -> None:
    """A model is no judge of its own family: it likes what it would have written itself."""
    family = family_of(judge)
    kin = sorted({name for name in contestants if family_of(name) == family})
    if kin:
        raise ModelRefused(
            f"{judge} may not judge {listed(kin)}: they are of one family ({family}), and a model favours "
            "what its own kind writes; choose a judge of another family, or pass --same-family"
        )
