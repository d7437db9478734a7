"""What a reply holds: a list of candidates, or one text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from tipbench.suite.form import Form

ReplyKind = Literal["list", "text"]
KINDS: tuple[ReplyKind, ...] = ("list", "text")


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What the model is asked to write: `kind` says how many candidates, `noun` what one is called.

    `max_chars` bounds a candidate only where a schema is sent. It must leave room above the rubric's limit,
    or the schema would hide that a model cannot keep to it.
    """

    kind: ReplyKind
    noun: str
    max_chars: int

    def slots(self, n_tips: int) -> int:
        """How many candidates one reply is asked for."""
        return n_tips if self.kind == "list" else 1

    def schema(self, n_tips: int) -> dict[str, Any]:
        """The JSON schema for `output: schema`. Everything is bounded, so that a grammar can always end.

        A list is a bare array: it is what the other prompts ask for too, and costs the fewest tokens.
        """
        text = {"type": "string", "minLength": 1, "maxLength": self.max_chars}
        if self.kind == "list":
            return {"type": "array", "items": text, "minItems": n_tips, "maxItems": n_tips}
        return {
            "type": "object",
            "properties": {"text": text},
            "required": ["text"],
            "additionalProperties": False,
        }


def read_reply(form: Form) -> Reply | None:
    """The `reply:` part of `suite.yaml`, or None with the reasons among the problems."""
    kind = form.choice("kind", KINDS, required=True)
    noun = form.text("noun")
    max_chars = form.whole("max_chars", low=1, high=1900)
    form.finish()
    if kind == "list":
        return Reply(kind="list", noun=noun or "candidate", max_chars=max_chars or 400)
    if kind == "text":
        return Reply(kind="text", noun=noun or "text", max_chars=max_chars or 1000)
    return None
