"""The MCP server: what an agent sees, what it may hand in, and what survives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mcp import Client, StdioServerParameters

from plain_desk import SMALL, PlainDesk, batch_of
from tipbench.errors import CheckFailed, LedgerUnreachable
from tipbench.judge.answers import Answer
from tipbench.records import Application, Judge, Verdict
from tipbench.store import FILE_NAME, Store
from tipbench.workflows.mcp_server import build_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

pytestmark = pytest.mark.usefixtures("fresh_home")

TESTS = Path(__file__).parent.parent


class Agent:
    """A client that tells what tools answer, and whether that is an error."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **arguments: object) -> dict[str, Any]:
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        (content,) = result.content
        assert content.type == "text"
        assert json.loads(content.text) == result.structured_content
        value: dict[str, Any] = json.loads(content.text)
        return value

    async def refused(self, tool: str, **arguments: object) -> str:
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error
        (content,) = result.content
        assert content.type == "text"
        return content.text


@asynccontextmanager
async def connected(desk: PlainDesk, folder: Path, mode: str = "auto") -> AsyncIterator[Agent]:
    with Store(folder / FILE_NAME) as store:
        async with Client(build_server(desk, store=store), mode=mode) as client:
            yield Agent(client)


def entry(item_id: str, **changes: object) -> dict[str, object]:
    return {"id": item_id, "use": 2, "tone": 4, **changes}


def draft(folder: Path) -> dict[str, Mapping[str, Any]]:
    """What is kept of the agent's answers to the first batch."""
    with Store(folder / FILE_NAME) as store:
        return store.drafts.get("b1", "agent")


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_batch_from_the_first_item_to_the_record(tmp_path: Path, mode: str) -> None:
    """Items are taken, scored and handed in; the last one records the batch, and the next one opens."""
    desk = PlainDesk([batch_of("b1", 3), batch_of("b2", 2)])
    async with connected(desk, tmp_path, mode) as agent:
        first = await agent.call("next_items", count=2)
        assert [item["id"] for item in first["items"]] == ["b1-0", "b1-1"]
        kept = await agent.call(
            "submit_scores", scores=[entry("b1-0"), entry("b1-1", note="hm", overlong=True)]
        )
        assert kept == {"kept": 2, "left_in_batch": 1, "applied": False}
        assert desk.applied == []
        assert [item["id"] for item in (await agent.call("next_items"))["items"]] == ["b1-2"]
        done = await agent.call("submit_scores", scores=[entry("b1-2", use=3)])
        assert done == {"kept": 1, "left_in_batch": 0, "applied": True, "message": "3 recorded"}
        assert (await agent.call("next_items"))["items"][0]["id"] == "b2-0"
    ((batch_id, answers),) = desk.applied
    assert batch_id == "b1"
    assert answers["b1-1"] == Answer(scores={"use": 2, "tone": 4}, overlong=True, note="hm")
    assert draft(tmp_path) == {}, "a recorded batch leaves no draft"


async def test_the_tools_and_their_forms(tmp_path: Path) -> None:
    """Four tools; the form of scores has the rubric's own scales with their bounds."""
    async with connected(PlainDesk([]), tmp_path) as agent:
        tools = {tool.name: tool for tool in (await agent.client.list_tools()).tools}
        assert agent.client.server_info
        assert agent.client.server_info.name == "tipbench"
        assert "next_items" in (agent.client.instructions or "")
        rubric = await agent.call("read_rubric")
    assert set(tools) == {"read_rubric", "next_items", "submit_scores", "status"}
    form = tools["submit_scores"].input_schema["properties"]["scores"]["items"]
    assert form["properties"]["use"] == {"type": "integer", "minimum": 1, "maximum": 3}
    assert form["required"] == ["id", "use", "tone"]
    assert rubric["rubric"] == SMALL.text
    assert rubric["scales"][1] == {"name": "tone", "low": 1, "high": 5}


async def test_an_item_shows_its_scenario_and_its_text_alone(tmp_path: Path) -> None:
    """Nothing that an agent is given tells a hidden item from a real one, or where a text came from."""
    async with connected(PlainDesk([batch_of("b1", 3)]), tmp_path) as agent:
        shown = await agent.call("next_items")
        everything = json.dumps([shown, await agent.call("status"), await agent.call("read_rubric")])
    assert shown["items"][1] == {"id": "b1-1", "scenario": "s1", "context": "Bob swims.", "tip": "Tip 1"}
    assert {frozenset(item) for item in shown["items"]} == {frozenset({"id", "scenario", "context", "tip"})}
    assert "secret" not in everything
    assert "anchor" not in everything


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ([{"id": "b1-1", "use": 9, "tone": 4}], r"entry 2 (b1-1): use is 9, which is not between 1 and 3"),
        ([{"id": "b1-1", "use": 2}], "tone has no score"),
        ([{"id": "b1-1"}], "it has no scores"),
        ([{"id": "b1-1", "use": "2", "tone": 4}], "write 2 without quotation marks"),
        ([{"id": "b1-1", "use": 2, "tone": 4, "tune": 1}], "did you mean 'tone'?"),
        ([{"id": "nobody", "use": 2, "tone": 4}], "no item with this id"),
        ([{"id": "b1-0", "use": 2, "tone": 4}], "there twice"),
        ([{"id": "b1-1", "use": 2, "tone": 4, "note": 5}], "note is neither"),
        (["b1-1"], "this must be an object"),
        (
            [{"id": "b1-1", "use": 0, "tone": 9}],
            "use is 0, which is not between 1 and 3; entry 2 (b1-1): tone is 9",
        ),
    ],
)
async def test_nothing_of_a_wrong_submission_is_kept(
    tmp_path: Path, scores: list[object], words: str
) -> None:
    """Each wrong entry is named with what to do, and the good ones beside it are not kept either."""
    async with connected(PlainDesk([batch_of("b1", 3)]), tmp_path) as agent:
        told = await agent.refused("submit_scores", scores=[entry("b1-0"), *scores])
        assert told.startswith("nothing was kept: ")
        assert words in told
        assert (await agent.call("next_items"))["left_in_batch"] == 3


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("next_items", {"count": 0}, "from 1 to 20"),
        ("next_items", {"count": 21}, "from 1 to 20"),
        ("next_items", {"count": "five"}, "from 1 to 20"),
        ("next_items", {"number": 3}, "takes count, not 'number'"),
        ("submit_scores", {}, "must be a list"),
        ("submit_scores", {"scores": "these"}, "must be a list"),
        ("status", {"verbose": True}, "takes no arguments"),
        ("drop_tables", {}, "there is no tool 'drop_tables'"),
    ],
)
async def test_wrong_calls_are_told_what_is_right(
    tmp_path: Path, tool: str, arguments: dict[str, object], words: str
) -> None:
    """A call that cannot be understood is answered with a sentence, and the server goes on."""
    async with connected(PlainDesk([batch_of("b1", 3)]), tmp_path) as agent:
        assert words in await agent.refused(tool, **arguments)
        assert (await agent.call("next_items"))["left_in_batch"] == 3


async def test_scores_sent_as_the_text_of_a_list(tmp_path: Path) -> None:
    """Some agents write a list as text; it is read as the list it is."""
    async with connected(PlainDesk([batch_of("b1", 3)]), tmp_path) as agent:
        assert (await agent.call("submit_scores", scores=json.dumps([entry("b1-0")])))["kept"] == 1


async def test_a_mind_may_change_until_the_batch_is_recorded(tmp_path: Path) -> None:
    """An item that is handed in again takes the new scores."""
    desk = PlainDesk([batch_of("b1", 2)])
    async with connected(desk, tmp_path) as agent:
        await agent.call("submit_scores", scores=[entry("b1-0", use=1, note="first")])
        await agent.call("submit_scores", scores=[entry("b1-0", use=3)])
        await agent.call("submit_scores", scores=[entry("b1-1")])
    assert desk.applied[0][1]["b1-0"] == Answer(scores={"use": 3, "tone": 4})


async def test_a_rejected_batch_is_judged_again(tmp_path: Path) -> None:
    """The agent is told why in plain words, gets the same items from the beginning, and may then pass."""
    desk = PlainDesk(
        [batch_of("b1", 2)], failures=[CheckFailed("b1 is rejected: 2 points above the anchors.")]
    )
    async with connected(desk, tmp_path) as agent:
        told = await agent.refused("submit_scores", scores=[entry("b1-0"), entry("b1-1")])
        assert told.startswith("b1 is rejected: 2 points above the anchors. The batch can be judged again")
        assert (await agent.call("next_items"))["left_in_batch"] == 2
        assert len(draft(tmp_path)) == 2, "a person can still look at what was rejected"
        assert (await agent.call("submit_scores", scores=[entry("b1-0", use=1)]))["left_in_batch"] == 1
        assert draft(tmp_path) == {"b1-0": {"use": 1, "tone": 4}}, "the first new answer begins anew"
        assert (await agent.call("submit_scores", scores=[entry("b1-1", use=1)]))["applied"]
    assert len(desk.applied) == 1
    assert draft(tmp_path) == {}


async def test_a_ledger_that_is_away_costs_no_scores(tmp_path: Path) -> None:
    """All scores are kept, the reason is told, and the next call records them."""
    desk = PlainDesk([batch_of("b1", 2)], failures=[LedgerUnreachable("http://x does not answer")])
    async with connected(desk, tmp_path) as agent:
        told = await agent.refused("submit_scores", scores=[entry("b1-0"), entry("b1-1")])
        assert "http://x does not answer. They are kept" in told
        assert (await agent.call("next_items")) == {"items": [], "message": "2 recorded"}
        assert (await agent.call("next_items")) == {"items": [], "message": "nothing is left to judge"}
    assert set(desk.applied[0][1]) == {"b1-0", "b1-1"}


async def test_a_restarted_server_goes_on(tmp_path: Path) -> None:
    """What was handed in is kept as it is, and a new server takes it up."""
    desk = PlainDesk([batch_of("b1", 3)])
    async with connected(desk, tmp_path) as agent:
        await agent.call(
            "submit_scores", scores=[entry("b1-0", note="with “quotes” and\nlines"), entry("b1-2")]
        )
    kept = {"use": 2, "tone": 4}
    assert draft(tmp_path) == {"b1-0": {**kept, "note": "with “quotes” and\nlines"}, "b1-2": kept}
    async with connected(desk, tmp_path) as agent:
        assert [item["id"] for item in (await agent.call("next_items"))["items"]] == ["b1-1"]
        assert (await agent.call("submit_scores", scores=[entry("b1-1")]))["applied"]
    assert desk.applied[0][1]["b1-0"].note == "with “quotes” and\nlines"


@pytest.mark.parametrize("odd", [{"tone": 40}, {"tone": None}, {"tune": 1}, {"overlong": "yes"}])
async def test_what_is_no_whole_answer_is_asked_for_again(tmp_path: Path, odd: dict[str, object]) -> None:
    """An answer in a draft that is half given, or none by the rubric, does not count; a new one mends it."""
    desk = PlainDesk([batch_of("b1", 2)])
    async with connected(desk, tmp_path) as agent:
        await agent.call("submit_scores", scores=[entry("b1-0")])
        with Store(tmp_path / FILE_NAME) as store:
            store.drafts.put("b1", "agent", "b1-0", odd, now_ms=1)
            store.drafts.put("b1", "agent", "of another batch", {"use": 2, "tone": 4}, now_ms=1)
        assert (await agent.call("next_items"))["left_in_batch"] == 2
        assert (await agent.call("submit_scores", scores=[entry("b1-0"), entry("b1-1")]))["applied"]
    assert set(desk.applied[0][1]) == {"b1-0", "b1-1"}


async def test_a_damaged_store_is_told(tmp_path: Path) -> None:
    """Scores are not said to be kept where they cannot be, and the sentence names the file."""
    (tmp_path / FILE_NAME).write_bytes(b"x" * 5000)
    async with connected(PlainDesk([batch_of("b1", 2)]), tmp_path) as agent:
        assert "service.db is damaged" in await agent.refused("submit_scores", scores=[entry("b1-0")])


async def test_what_was_applied_before_is_not_asked_for(tmp_path: Path) -> None:
    """A batch of which a part was recorded from a file goes on with the rest, and that part stays."""
    batch, judge = batch_of("b1", 3), Judge(id="agent", kind="agent")
    verdict = Verdict(
        candidate=batch.items[0].candidate, scores={}, judge=judge, at_ms=1, rubric_hash="", batch_id="b1"
    )
    part = Application(
        application_id="1", judge=judge, at_ms=1, verdicts=(verdict,), hidden={"b1-1": {"use": 2}}
    )
    desk = PlainDesk([replace(batch, applications=(part,))])
    async with connected(desk, tmp_path) as agent:
        assert [item["id"] for item in (await agent.call("next_items"))["items"]] == ["b1-2"]
        assert "recorded before" in await agent.refused("submit_scores", scores=[entry("b1-0")])
        assert (await agent.call("submit_scores", scores=[entry("b1-2")]))["applied"]
    assert set(desk.applied[0][1]) == {"b1-2"}


async def test_two_servers_share_one_draft(tmp_path: Path) -> None:
    """Two agents with one home add to the same draft, and neither loses what the other handed in."""
    desk = PlainDesk([batch_of("b1", 3)])
    async with connected(desk, tmp_path) as one, connected(desk, tmp_path) as other:
        await one.call("submit_scores", scores=[entry("b1-0")])
        assert (await other.call("submit_scores", scores=[entry("b1-1")]))["left_in_batch"] == 1
        assert (await one.call("submit_scores", scores=[entry("b1-2")]))["applied"]
        assert "nothing is left" in await other.refused("submit_scores", scores=[entry("b1-1")])
    assert set(desk.applied[0][1]) == {"b1-0", "b1-1", "b1-2"}


async def test_status_tells_how_far_it_is(tmp_path: Path) -> None:
    """The batch at hand, beside what the desk knows; asking takes no batch."""
    desk = PlainDesk([batch_of("b1", 3)])
    async with connected(desk, tmp_path) as agent:
        assert "call next_items" in (await agent.call("status"))["batch"]["message"]
        await agent.call("submit_scores", scores=[entry("b1-0")])
        status = await agent.call("status")
    assert status == {"pending": 3, "drift": "not checked yet", "batch": {"judged": 1, "left": 2}}


async def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """Scores that could not be made durable are not said to be kept."""
    folder = tmp_path / "judging"
    folder.write_text("a file where the folder should be")
    async with connected(PlainDesk([batch_of("b1", 2)]), folder) as agent:
        assert "cannot be used" in await agent.refused("submit_scores", scores=[entry("b1-0")])


SERVER = """
import sys
sys.path.insert(0, sys.argv[1])
from plain_desk import PlainDesk, batch_of
from tipbench.workflows.mcp_server import serve_mcp
class Loud(PlainDesk):
    def take(self):
        print("a library that talks")
        return super().take()
serve_mcp(Loud([batch_of("b1", 3)]))
"""


async def test_over_standard_input_and_output(fresh_home: Path) -> None:
    """A process speaks the protocol alone, whatever is printed inside it; drafts go to tipbench's home."""
    started = StdioServerParameters(
        command=sys.executable, args=["-c", SERVER, str(TESTS)], env={"TIPBENCH_HOME": str(fresh_home)}
    )
    async with Client(started) as client:
        agent = Agent(client)
        assert (await agent.call("next_items", count=1))["items"][0]["id"] == "b1-0"
        assert (await agent.call("submit_scores", scores=[entry("b1-0")]))["kept"] == 1
    assert set(draft(fresh_home)) == {"b1-0"}


def test_ctrl_c_ends_the_server_at_once(fresh_home: Path) -> None:
    """A server that waits for its input ends on the first signal."""
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(TESTS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert server.stdin is not None
    assert server.stdout is not None
    with server:
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "x", "version": "1"},
        }
        line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
        server.stdin.write(f"{line}\n".encode())
        server.stdin.flush()
        assert json.loads(server.stdout.readline())["result"]["serverInfo"]["name"] == "tipbench"
        os.kill(server.pid, signal.SIGINT)
        assert server.wait(timeout=10) == -signal.SIGINT


def test_without_the_extra() -> None:
    """Where the package is not installed, the sentence says how to get it."""
    code = (
        "import sys; sys.modules['mcp'] = None; sys.path.insert(0, sys.argv[1])\n"
        "from plain_desk import PlainDesk\n"
        "from tipbench.errors import Unavailable\n"
        "from tipbench.workflows.mcp_server import serve_mcp\n"
        "try: serve_mcp(PlainDesk([]))\n"
        "except Unavailable as error: print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(TESTS)], capture_output=True, text=True, check=True)
    assert "needs the extra `mcp`: pip install 'tipbench[mcp]'" in ran.stdout
