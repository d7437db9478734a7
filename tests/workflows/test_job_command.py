"""A job's command line and environment: the same settings arrive, and nothing else does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tipbench.cli.judge import AUTO
from tipbench.cli.options import settings_options
from tipbench.errors import BadSetting
from tipbench.settings import Settings, default_of, table
from tipbench.workflows.job_command import (
    JUDGING,
    full_addresses,
    gate_arguments,
    job_environment,
    judge_arguments,
    kept_settings,
    restored_settings,
    settings_argv,
    settings_env,
    sim_arguments,
)

if TYPE_CHECKING:
    from dataclasses import Field

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
NAME = st.text(st.characters(codec="utf-8", exclude_characters="\0,"), min_size=1, max_size=20)
ADDRESS = st.sampled_from(
    ["http://box:1", "https://box/a", "http://anna:kennwort@box:1", "http://[::1]:5", "localhost", ""]
)
SPECIAL: dict[str, st.SearchStrategy[Any]] = {
    "experiment": st.from_regex(r"[a-z0-9][\w .:@+-]{0,30}", fullmatch=True),
    "ollama_url": ADDRESS,
    "mlflow_url": ADDRESS | st.just("postgresql://u:kennwort@db/x?password=kennwort") | TEXT,
    "keep_alive": st.sampled_from(["0", "5m", "90s"]),
}
BY_TYPE: dict[type, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(0, 2**31 - 1),
    float: st.floats(0, 1e6),
    str: TEXT,
    tuple: st.lists(NAME, max_size=3),
}


def values_of(row: Field[Any]) -> st.SearchStrategy[Any]:
    choices = row.metadata["choices"]
    return st.sampled_from(choices) if choices else SPECIAL.get(row.name, BY_TYPE[type(default_of(row))])


def accepted(settings: dict[str, Any]) -> Settings:
    """The settings, without those that are out of their bounds."""
    good = {}
    for name, value in settings.items():
        try:
            Settings.of({name: value})
        except BadSetting:
            continue
        good[name] = value
    return Settings.of(good)


def received(arguments: list[str], env: dict[str, str]) -> Settings:
    """What the real command line makes of it."""
    heard: list[Settings] = []
    app = typer.Typer()

    @app.command()
    @settings_options()
    def command(*, settings: Settings) -> None:
        heard.append(settings)

    known = {row.metadata["env"]: env.get(row.metadata["env"]) for row in table() if row.metadata["env"]}
    ran = CliRunner().invoke(app, arguments, env=known)
    assert ran.exit_code == 0, ran.output
    return heard[0]


@given(st.fixed_dictionaries({}, optional={row.name: values_of(row) for row in table()}))
def test_settings_survive_the_way_to_a_job(given_settings: dict[str, Any]) -> None:
    """Whatever the settings, the command reads the same ones from its options and its environment."""
    settings = accepted(given_settings)
    arguments = settings_argv(settings)
    assert received(arguments, settings_env(settings)) == settings
    assert not [argument for argument in arguments if "kennwort" in argument and "mlflow" in argument]
    assert len(arguments) <= sum(getattr(settings, row.name) != default_of(row) for row in table())


@given(st.fixed_dictionaries({}, optional={row.name: values_of(row) for row in table()}))
def test_settings_survive_being_stored(given_settings: dict[str, Any]) -> None:
    """What is kept of them has no password, and with that known from elsewhere gives the same again."""
    settings = accepted(given_settings)
    kept = kept_settings(settings)
    if "@" in settings.mlflow_url:
        assert "kennwort" not in kept["mlflow_url"]
    assert restored_settings(kept, full_addresses(settings)) == settings


def test_a_login_is_for_one_setting_and_no_other() -> None:
    """Two settings with one address, one of them with a password: the other is restored without it."""
    settings = Settings.of({"ollama_url": "http://anna:pw@box:1", "mlflow_url": "http://box:1"})
    assert full_addresses(settings) == {"ollama_url": "http://anna:pw@box:1"}
    assert restored_settings(kept_settings(settings), full_addresses(settings)) == settings


def test_the_default_goes_without_saying() -> None:
    """Settings at their defaults are an empty command line."""
    assert settings_argv(Settings()) == []
    assert settings_env(Settings()) == {}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"models": ["a,b"]}, "models"),
        ({"suite": "a\0b"}, "suite"),
        ({"suite": "\ud800"}, "suite"),
        ({"mlflow_url": "http://a:\0@b"}, "mlflow_url"),
    ],
)
def test_what_no_command_line_can_carry_is_refused(changes: dict[str, Any], name: str) -> None:
    """The refusal names the setting."""
    settings = Settings.of(changes)
    with pytest.raises(BadSetting) as caught:
        received(settings_argv(settings), settings_env(settings))
    assert caught.value.name == name


def test_a_judging_is_given_the_options_that_it_has() -> None:
    """The settings that are passed on are those that `judge auto` takes."""
    assert set(JUDGING) == set(AUTO)
    settings = Settings.of({"experiment": "bench", "seed": 3, "wait": True})
    arguments = judge_arguments(settings, "proxy", same_family=True, events=Path("e"))
    assert arguments == [
        *("judge", "auto", "--experiment=bench", "--wait"),
        *("--judge=proxy", "--same-family", "--json", "--events=e"),
    ]


def test_a_jobs_environment_has_what_it_needs_and_no_more(
    monkeypatch: pytest.MonkeyPatch, fresh_home: Path
) -> None:
    """The service's own secrets, addresses and colours stay behind."""
    for name in ("TIPBENCH_SECRET", "FORCE_COLOR", "OPENAI_API_KEY", "OLLAMA_HOST", "MLFLOW_TRACKING_URI"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "needed")
    monkeypatch.setenv("https_proxy", "http://proxy")
    environment = job_environment(Settings())
    assert environment["TIPBENCH_HOME"] == str(fresh_home)
    assert environment["MLFLOW_TRACKING_PASSWORD"] == "needed"  # noqa: S105 - it is none
    assert environment["https_proxy"] == "http://proxy"
    assert environment["NO_COLOR"]
    assert "PATH" in environment
    assert "TMPDIR" in environment
    assert "x" not in environment.values()
    assert job_environment(Settings(), more=["OPENAI_API_KEY"])["OPENAI_API_KEY"] == "x"


def test_a_gate_has_its_options_and_no_others() -> None:
    """Options by their names, a flag only where it is set, and of the settings only where it is recorded."""
    asked = {"challenger": "hybrid", "seeds": 5, "margin": 0.5, "record": True, "other": False}
    settings = Settings.of({"mlflow_url": "http://box:1", "models": ["a"]})
    events = Path("events")
    assert gate_arguments(settings, asked, events=events) == [
        "sim", "gate", "--mlflow-url=http://box:1", "--challenger=hybrid", "--seeds=5", "--margin=0.5",
        "--record", "--json", "--events=events",
    ]  # fmt: skip
    assert sim_arguments(settings, {"policies": "a,b"}, events=events)[:2] == ["sim", "run"]


def test_a_policy_that_no_command_line_carries_is_refused() -> None:
    """A BadSetting that names the option."""
    with pytest.raises(BadSetting, match="challenger"):
        gate_arguments(Settings.of({}), {"challenger": "a\0b"}, events=Path("events"))
