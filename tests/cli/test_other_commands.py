"""The other commands: suites, doctor, show, completion, and the same manners everywhere."""

from __future__ import annotations

import shlex
import socket
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from command import TIPBENCH, here, start, tipbench
from stand_in import FakeModel, StandIn, running

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.usefixtures("fresh_home")
def test_a_suite_is_made_filled_and_checked(tmp_path: Path) -> None:
    """`suite new`, `import` and `check` go from nothing to a suite that can be collected."""
    folder = tmp_path / "my-suite"
    made = tipbench("suite", "new", str(folder))
    assert made.code == 0, made.err
    assert tipbench("suite", "check", str(folder)).code == 0
    again = tipbench("suite", "new", str(folder))
    assert again.code == 2
    assert "my-suite" in again.err
    prompt = next((folder / "prompts").glob("*.md"))
    prompt.write_text(prompt.read_text() + "\n{{ no_such_variable }}\n")
    broken = tipbench("suite", "check", str(folder))
    assert broken.code == 4
    assert f"{prompt.name}:" in broken.err
    assert "no_such_variable" in broken.err


def test_what_is_suggested_can_be_typed(fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the command is not on the path and was run as a module."""
    monkeypatch.setenv("PATH", str(fresh_home))
    told = tipbench("experiments")
    suggested = told.out.partition("Start one: ")[2].partition(",")[0]
    assert suggested.endswith("-m tipbench collect --dry-run")
    done = subprocess.run(
        [*shlex.split(suggested), "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert "--dry-run" in done.stdout


@pytest.mark.usefixtures("fresh_home")
def test_scenarios_come_from_a_table(tmp_path: Path) -> None:
    """`suite import` adds every row or none, and names the row that is wrong."""
    folder = tmp_path / "mine"
    tipbench("suite", "new", str(folder))
    text = (folder / "scenarios.yaml").read_text()
    table = tmp_path / "scenarios.csv"
    table.write_text("id,no_such\nx,1\n")
    refused = tipbench("suite", "import", str(folder), str(table))
    assert refused.code == 2
    assert "scenarios.csv" in refused.err
    assert (folder / "scenarios.yaml").read_text() == text
    empty = tmp_path / "empty.json"
    empty.write_text("[]")
    refused = tipbench("suite", "import", str(folder), str(empty))
    assert refused.code == 2
    told = (
        f'tipbench: {empty}: has no scenarios; write a list with one object for each, such as [{{"id": …}}]\n'
    )
    assert refused.err == told
    assert (folder / "scenarios.yaml").read_text() == text


@pytest.mark.usefixtures("fresh_home")
def test_shipped_suites_are_listed_and_well() -> None:
    """What ships passes its own check."""
    listed = tipbench("suite", "list").out
    for name in ("tip", "tip-wide", "support-summary"):
        assert name in listed
        assert tipbench("suite", "check", name).code == 0


@contextmanager
def something_on_port_5000(text: str) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 5000), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield
        server.shutdown()
        thread.join()


@pytest.mark.usefixtures("home")
def test_doctor_says_what_is_there_and_what_to_type() -> None:
    """Models with sizes, what is missing with the pull line, what is resident, an unused MLflow server."""
    models = [FakeModel("a:1b"), FakeModel("big:7b", parameters=7_000_000_000)]
    with running(StandIn(models, resident=["a:1b"])) as host, something_on_port_5000("3.17.2"):
        ran = tipbench("doctor", "--ollama-url", host.url, "--models", "a:1b,b:1b", "--json")
    assert ran.code == 0, ran.err
    by_name = {finding["name"]: finding for finding in ran.json}
    assert by_name["ollama"]["state"] == "ok"
    assert by_name["models"]["fix"] == "ollama pull b:1b"
    assert by_name["resident"]["fix"] == "ollama stop a:1b"
    assert "would be refused" in next(f["detail"] for f in ran.json if "big:7b" in f["detail"])
    assert by_name["mlflow server"]["fix"] == "export MLFLOW_TRACKING_URI=http://127.0.0.1:5000"
    assert by_name["embedded engine"]["state"] == "ok"


@pytest.mark.usefixtures("home")
def test_doctor_exits_4_where_the_ledger_cannot_be_used() -> None:
    """A check that says no has its own exit code."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{probe.getsockname()[1]}"
    ran = tipbench("doctor", "--mlflow-url", dead, "--ollama-url", dead)
    assert ran.code == 4
    assert "not ready: ledger" in ran.err


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("show", "ffffff"), "there is no run 'ffffff'"),
        (("show", "ab"), "first 6 characters"),
        (("suite", "check", "nowhere"), "no suite 'nowhere'"),
        (("engine", "serve", "--gguf", "x=no-such-file"), "no-such-file"),
        (("try", "--model", "a", "--prompt", "nope", "--engine", "embedded"), "nope"),
    ],
)
def test_bad_names_are_one_sentence(arguments: tuple[str, ...], words: str) -> None:
    """Exit code 2, the thing named, no stack trace."""
    ran = tipbench(*arguments)
    assert ran.code == 2
    assert words in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""


@pytest.mark.usefixtures("home")
def test_texts_from_outside_are_shown_as_they_are() -> None:
    """What looks like markup is not taken for it, and what would steer a terminal is made visible."""
    reply = '["[/INST] [red]tip[/red] \x1b[2J"]'
    with running(StandIn([FakeModel("a:1b")], reply=reply)) as host:
        where = ("--ollama-url", host.url, "--engine", "ollama")
        tried = tipbench("try", "--model", "a:1b", "--prompt", "v1", *where)
        ran = tipbench("collect", "--models", "a:1b", "--prompts", "v1", "--n-scenarios", "1", *where)
    assert ran.code == 0, ran.err
    listed = here("experiments", "tip-bench-auto").out
    shown = here("show", listed.splitlines()[1].split("\t")[0]).out
    for out in (tried.out, shown):
        assert "[/INST] [red]tip[/red] \\x1b[2J" in out
        assert "\x1b" not in out


@pytest.mark.usefixtures("home")
def test_output_pipes_without_colour() -> None:
    """What is not a terminal gets plain text."""
    for arguments in (("experiments",), ("doctor",), ("suite", "list"), ("--help",)):
        assert "\x1b[" not in tipbench(*arguments).out


@pytest.mark.usefixtures("home")
def test_a_reader_that_has_gone_ends_no_work() -> None:
    """`2>&1 | head -1` takes the words away, not the collection, and is no error."""
    with running(StandIn([FakeModel("a:1b")])) as host:
        where = ("--ollama-url", host.url, "--engine", "ollama")
        gone = start("collect", "--models", "a:1b", "--prompts", "v1", "--n-scenarios", "3", *where)
        assert gone.stdout is not None
        assert gone.stderr is not None
        gone.stdout.close()
        gone.stderr.close()
        assert gone.wait(timeout=60) == 0
    assert len(here("experiments", "tip-bench-auto").out.splitlines()) == 4


@pytest.mark.usefixtures("home")
def test_one_of_a_thing_is_not_several() -> None:
    """A single cell or experiment is counted as one, while it is made and while it waits."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{probe.getsockname()[1]}"
    with running(StandIn([FakeModel("a:1b")])) as host:
        where = ("--ollama-url", host.url, "--engine", "ollama")
        one = ("collect", "--models", "a:1b", "--prompts", "v1", "--n-scenarios", "1", *where)
        assert tipbench(*one).err.startswith("1 cell, 0 done before\n")
        tipbench(*one, "--mlflow-url", dead, "--offline")
        looked = here("doctor", "--ollama-url", host.url).out
    assert ", 1 experiment\n" in looked
    assert "1 cell waiting for a ledger\n" in looked


HELP = [("--help",), ("collect", "--help"), ("judge", "-h"), ("judge", "anchors", "list", "--help")]


@pytest.mark.parametrize("arguments", HELP, ids=" ".join)
def test_help_that_nobody_reads_is_no_error(arguments: tuple[str, ...]) -> None:
    """`--help | head -1` ends like every command whose reader has gone: with 0, and without a word."""
    process = start(*arguments)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr as told:
        assert (told.read(), process.wait(timeout=60)) == ("", 0)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
@pytest.mark.parametrize("arguments", [*HELP, ()], ids=" ".join)
def test_help_that_cannot_be_written_is_one_sentence(arguments: tuple[str, ...]) -> None:
    """A full disk is told of help as it is of results, also where help is shown for want of a command."""
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [*TIPBENCH, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    assert ran.returncode == 3
    assert ran.stderr == "tipbench: standard output cannot be written (No space left on device)\n"


@pytest.mark.parametrize("what", ["--help", "--version"])
def test_output_that_is_closed_from_the_start_is_no_error(what: str) -> None:
    """`>&-` takes the words away, and nothing else."""
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *TIPBENCH, what]
    ran = subprocess.run(closed, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_exit_codes_fill_their_lines() -> None:
    """The help breaks them where the terminal ends and nowhere else."""
    lines = tipbench("--help").out.partition("Exit codes:")[2].splitlines()
    assert len(lines[1].split()) > 3


def test_every_command_teaches() -> None:
    """`--help` of every command says what it is for and exits 0."""
    for command in ("collect", "try", "experiments", "show", "sync", "doctor", "demo", "suite", "engine"):
        ran = tipbench(command, "--help")
        assert ran.code == 0
        assert f"tipbench {command}" in ran.out
        assert len(ran.out) > 200
