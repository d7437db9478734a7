"""Hints after a mistake: each one names what was meant, or what to do."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from command import here, tipbench
from stand_in import FakeModel, StandIn, running

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("fresh_home")


def test_a_mistyped_model_gets_the_installed_one() -> None:
    """`qwen2.5:05b` names `qwen2.5:0.5b`, which the host has, instead of a pull that would fail."""
    with running(StandIn(models=[FakeModel("qwen2.5:0.5b")])) as host:
        ran = here("collect", "--models", "qwen2.5:05b", "--ollama-url", host.url, "--engine", "ollama")
    assert ran.code == 2
    assert "does not have qwen2.5:05b; did you mean 'qwen2.5:0.5b'?" in ran.err


@pytest.mark.parametrize("engine", ["embedded", "auto"])
def test_a_mistyped_model_gets_the_embedded_one(engine: str) -> None:
    """Without Ollama the models of the embedded engine are suggested."""
    where = ("--ollama-url", "http://127.0.0.1:9", "--engine", engine)
    ran = here("collect", "--models", "smolm2:135m", *where)
    assert ran.code in {2, 3}
    assert "did you mean 'smollm2:135m'?" in ran.err


def test_more_scenarios_than_the_suite_has_are_refused() -> None:
    """The sentence names the number of scenarios."""
    ran = here(
        "collect", "--models", "smollm2:135m", "--engine", "embedded", "--n-scenarios", "99", "--dry-run"
    )
    assert (ran.code, ran.out) == (2, "")
    assert "--n-scenarios: 99 is more than the 8 scenarios of the suite 'tip'" in ran.err


def test_a_mistyped_suite_gets_the_folder_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder whose name is nearer goes before the built-in suites."""
    monkeypatch.chdir(tmp_path)
    assert here("suite", "new", "support-replies").code == 0
    ran = here("collect", "--suite", "support-reply", "--dry-run")
    assert ran.code == 2
    assert "there is no suite 'support-reply'; did you mean 'support-replies'?" in ran.err


@pytest.mark.parametrize("line", ["\tkind: list", "  \tkind: list"])
def test_a_tab_in_yaml_is_named(tmp_path: Path, line: str) -> None:
    """The message names the file, the line and the tab."""
    folder = tmp_path / "mine"
    assert here("suite", "new", str(folder)).code == 0
    (folder / "suite.yaml").write_text(f"id: mine\ntitle: t\nreply:\n{line}\n")
    ran = here("suite", "check", str(folder))
    assert ran.code == 4
    assert f"{folder / 'suite.yaml'}:4: a tab stands where YAML needs spaces" in ran.out + ran.err


def test_a_mistyped_column_gets_the_variable(tmp_path: Path) -> None:
    """`suite import` names the unknown column and the variable that no column fills."""
    folder, table = tmp_path / "mine", tmp_path / "table.csv"
    assert here("suite", "new", str(folder)).code == 0
    table.write_text("id,topic,readers,pionts\na1,x,y,z;w\n")
    ran = here("suite", "import", str(folder), str(table))
    assert ran.code == 2
    assert f"{table}:1: unknown column 'pionts', did you mean 'points'?" in ran.err


def test_judging_over_mcp_needs_an_experiment() -> None:
    """`judge mcp` ends at once for an experiment that does not exist."""
    ran = tipbench("judge", "mcp", "--experiment", "nope")
    assert (ran.code, ran.out) == (2, "")
    assert "there is no experiment 'nope'" in ran.err


def test_a_mistyped_policy_is_named_before_the_gate() -> None:
    """The policy is what the person looks at first."""
    ran = here("promote", "egredy", "--gate", "x.json")
    assert ran.code == 2
    assert "there is no policy 'egredy'; did you mean 'egreedy'?" in ran.err


@pytest.mark.parametrize("scheme", ["", "HTTP://"])
@pytest.mark.parametrize("option", ["--ollama-url", "--mlflow-url"])
def test_an_address_with_a_login_is_refused_in_one_sentence(home: Path, option: str, scheme: str) -> None:
    """Without a scheme, exit code 2 and what to write; no part of the login is repeated in any case."""
    ran = here("collect", "--engine", "ollama", option, f"{scheme}anna:geheim@127.0.0.1:9")
    assert "anna" not in ran.err
    assert "geheim" not in ran.err
    assert len(ran.err.strip().splitlines()) == 1
    assert home.is_dir()
    if not scheme:
        assert ran.code == 2
        assert "the address of '127.0.0.1:9' has a login but no scheme: begin it with http://" in ran.err


@pytest.mark.parametrize(("models", "offered"), [("smollm2:135m", True), ("smollm2:135m,gemma3:1b", False)])
def test_the_embedded_engine_is_offered_for_models_that_it_has(models: str, *, offered: bool) -> None:
    """Without Ollama, `--engine embedded` helps only if all models are there."""
    where = ("--engine", "ollama", "--ollama-url", "http://127.0.0.1:9")
    ran = here("collect", "--models", models, *where)
    assert ran.code == 3
    assert ("--engine embedded" in ran.err) is offered
    said = here("doctor", "--models", "gemma3:1b", "--ollama-url", "http://127.0.0.1:9", "--json").json
    assert all("--engine embedded" not in one["fix"] for one in said)


@pytest.mark.parametrize("installed", [True, False])
def test_without_ollama_the_remedy_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, installed: bool
) -> None:
    """Start it if it is installed, install it if not; never both, and neither for another machine."""
    if installed:
        program = tmp_path / "ollama"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        said = here("doctor", "--ollama-url", url).out
        refused = here("collect", "--engine", "ollama", "--ollama-url", url)
    for text in (said, refused.err):
        assert ("ollama serve" in text) is installed
        assert ("install Ollama" in text) is not installed
    away = here("collect", "--engine", "ollama", "--ollama-url", "http://nowhere.invalid:11434")
    assert away.code == 3
    assert "check --ollama-url" in away.err
    assert "ollama serve" not in away.err
