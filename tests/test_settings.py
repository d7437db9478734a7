"""One table of settings: defaults, environment, conversion, and refusals that name the row."""

from __future__ import annotations

import pytest

from tipbench.errors import BadInput, BadSetting
from tipbench.settings import Settings, home, normal_url, table


def test_defaults_are_the_documented_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `collect` does when told nothing."""
    for row in table():
        if row.metadata["env"]:
            monkeypatch.delenv(row.metadata["env"], raising=False)
    settings = Settings.of({})
    assert settings.models == ("qwen2.5:0.5b", "qwen2.5:1.5b", "gemma3:1b", "llama3.2:3b")
    assert settings.prompts == ("v1", "v2-mentor", "v3-few-shot")
    assert (settings.n_tips, settings.n_scenarios, settings.temperature) == (5, 0, 0.7)
    assert (settings.experiment, settings.max_model_b, settings.suite) == ("tip-bench-auto", 4.0, "tip")
    assert (settings.ollama_url, settings.mlflow_url) == ("http://localhost:11434", "")
    assert (settings.seed, settings.repeats, settings.parallel, settings.engine) == (0, 1, 1, "auto")


def test_the_environment_stands_between_default_and_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """`OLLAMA_HOST` replaces the default, and an option replaces `OLLAMA_HOST`."""
    monkeypatch.setenv("OLLAMA_HOST", "box:9999")
    assert Settings.of({}).ollama_url == "http://box:9999"
    assert Settings.of({"ollama_url": "http://other:1"}).ollama_url == "http://other:1"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("box", "http://box:11434"),
        ("box:1234", "http://box:1234"),
        (":1234", "http://localhost:1234"),
        ("0.0.0.0", "http://127.0.0.1:11434"),  # noqa: S104 - an address as people write it
        ("0.0.0.0:80", "http://127.0.0.1:80"),
        ("https://box/ollama/", "https://box/ollama"),
        ("[::1]:5", "http://[::1]:5"),
        ("", "http://localhost:11434"),
    ],
)
def test_addresses_are_taken_as_ollama_takes_them(written: str, meant: str) -> None:
    """People set `OLLAMA_HOST` to a host, a port, or where their server listens."""
    assert normal_url(written) == meant


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("n_tips", "five", "not a number"),
        ("n_tips", 2.5, "not a whole number"),
        ("n_tips", True, "not a whole number"),
        ("n_tips", 0, "between 1 and 50"),
        ("temperature", float("nan"), "temperature"),
        ("temperature", float("inf"), "temperature"),
        ("models", "", "names nothing"),
        ("models", [1], "not a list of names"),
        ("prompts", "v1,v1", "named twice"),
        ("diversity", "maybe", "neither true nor false"),
        ("experiment", "a/b", "not a name"),
        ("experiment", 3, "not text"),
        ("keep_alive", "forever", "not a time"),
        ("colour", "red", "no such setting"),
    ],
)
def test_a_bad_value_names_its_row(name: str, value: object, words: str) -> None:
    """The error carries the setting's name, for a message per field."""
    with pytest.raises(BadSetting, match=words) as caught:
        Settings.of({name: value})
    assert caught.value.name == name


def test_lists_and_numbers_may_be_written_either_way() -> None:
    """Text from a command line and typed values from an API mean the same."""
    from_text = Settings.of({"models": "a, b", "n_tips": "3", "diversity": "true", "temperature": "0"})
    typed = Settings.of({"models": ["a", "b"], "n_tips": 3, "diversity": True, "temperature": 0})
    assert from_text == typed


def test_home_is_where_it_is_told_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """`TIPBENCH_HOME` wins; without it the platform's state folder is used."""
    monkeypatch.setenv("TIPBENCH_HOME", "~/there")
    assert home().name == "there"
    assert "~" not in str(home())
    monkeypatch.setenv("TIPBENCH_HOME", "~nobody-is-called-so/there")
    with pytest.raises(BadInput, match=r"TIPBENCH_HOME is ~nobody-is-called-so/there: there is no such user"):
        home()
    monkeypatch.delenv("TIPBENCH_HOME")
    assert "tipbench" in str(home())
