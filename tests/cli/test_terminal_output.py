"""Text from outside cannot steer the terminal: on a terminal, through a pipe and as JSON."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from command import tipbench
from on_terminal import on_terminal
from stand_in import FakeModel, StandIn, running
from tipbench.text import visible, visible_json

if TYPE_CHECKING:
    from pathlib import Path

C1 = "".join(map(chr, range(0x80, 0xA0)))
STEERING = f"\x1b]0;title\x07\x08\x7f{C1}\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
MARKED = "[red]tip[/red] [/INST] :b: :smiley: [link=http://x]"
REPLY = json.dumps([f"{MARKED} {STEERING} end"], ensure_ascii=False)
_ACTING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# What Rich sends itself: colours, and the moves of a progress bar.
_OWN = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


def acting(seen: str) -> str:
    """The control characters in what a terminal was sent, without Rich's own sequences."""
    return "".join(_ACTING.findall(_OWN.sub("", seen)))


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("name", ["ollama:b:1.5b", "[red]m[/red]:1b"])
def test_a_reply_and_a_name_cannot_steer_the_terminal(name: str) -> None:
    """`try`, `collect`, `experiments` and `show` print control characters as escapes, and no emoji codes."""
    with running(StandIn([FakeModel(name)], reply=REPLY)) as host:
        where = ("--ollama-url", host.url, "--engine", "ollama")
        one = ("--models", name, "--prompts", "v1", "--n-scenarios", "1", *where)
        seen = [on_terminal("try", "--model", name, "--prompt", "v1", *where), on_terminal("collect", *one)]
        host.reply = f"no list {STEERING}"
        seen.append(on_terminal("collect", *one, "--experiment", "second", "--retries", "0"))
        as_json = [tipbench("try", "--model", name, "--prompt", "v1", "--json", *where)]
    run_id = tipbench("experiments", "tip-bench-auto").out.splitlines()[1].split("\t")[0]
    asked = (("experiments", "tip-bench-auto"), ("show", run_id))
    seen += [on_terminal(*one, columns=200) for one in asked]
    as_json += [tipbench(*one, "--json") for one in asked]
    for code, text in seen:
        assert code in {0, 1}, text
        assert acting(text) == ""
    assert all(name in text for _, text in seen[:2])
    for _, text in (seen[0], seen[-1]):
        assert MARKED in text.replace("\n", " ")
        assert "\\x9b" in text
    for ran in as_json:
        assert ran.code == 0, ran.err
        assert acting(ran.out + ran.err) == ""
    assert as_json[0].json["raw"] == f"no list {STEERING}"
    assert as_json[2].json["raw"] == REPLY


def test_a_message_cannot_steer_the_terminal(home: Path) -> None:
    """An error repeats a name with its control characters as escapes, on standard error too."""
    for name in ("\x9b2J\u202e", "a\x1b[31m"):
        for arguments in (("show", name), ("compare", "--experiment", name), ("token", "revoke", name)):
            ran = tipbench(*arguments)
            assert ran.code == 2
            assert acting(ran.out + ran.err) == ""
            assert "\\x" in ran.err
    suite = home / "a\x9b31m"
    assert acting(tipbench("suite", "check", str(suite)).err) == ""


@pytest.mark.parametrize("form", ["table", "json", "csv", "md", "html"])
def test_a_report_cannot_steer_the_terminal(form: str, tmp_path: Path) -> None:
    """Every format is safe on standard output, and no name becomes an emoji or a style."""
    model = f"ollama:b:1.5b [bold]{C1}\u202e"
    path = tmp_path / "scores.csv"
    lines = [f'"{model}",v1,s{number},{number}' for number in range(1, 5)]
    path.write_text("\n".join(["model,prompt,scenario,composite", *lines, "m,v1,s1,1"]), encoding="utf-8")
    code, seen = on_terminal("compare", "--scores", str(path), "--format", form, columns=400)
    piped = tipbench("compare", "--scores", str(path), "--format", form)
    assert (code, piped.code) == (0, 0), piped.err
    for text in (seen, piped.out, piped.err):
        assert acting(text) == ""
    if form in {"table", "csv"}:
        assert "ollama:b:1.5b [bold]" in seen
    if form == "json":
        assert model in {row["model"] for row in json.loads(seen)["rows"]}


def test_json_keeps_its_values() -> None:
    """The escapes of JSON are for the eye: who parses the text gets what was there."""
    value = {"a\x7f": [STEERING, MARKED, "\n\t\r\n", "é ☕ 👩‍🍳"]}
    text = visible_json(json.dumps(value, ensure_ascii=False))
    assert acting(text) == ""
    assert json.loads(text) == value
    assert "é ☕ 👩‍🍳" in text


def test_newlines_and_tabs_stay() -> None:
    """Lines and columns are harmless; a bare carriage return would overwrite the line."""
    assert visible("a\tb\nc\r\nd\re\x85f") == "a\tb\nc\nd\\re\\x85f"
