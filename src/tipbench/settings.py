"""One table of settings: name, type, default, help. The CLI, the API and the docs are all derived from it."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import platformdirs

from tipbench.errors import BadInput, BadSetting
from tipbench.text import has_login, without_login

Check = Callable[[Any], str | None]

WHAT, HOW, WHERE = "What is generated", "How the engine is used", "Where it is recorded"
# What a collection may be told by a request or a DAG run; how the engine is used is for who runs the machine.
RUN_SETTINGS = (
    "models", "prompts", "n_tips", "n_scenarios", "temperature", "experiment", "max_model_b", "ollama_url",
    "mlflow_url", "diversity", "repeats", "seed", "suite", "assume_size",
)  # fmt: skip
_YES, _NO = {"true", "1", "yes", "on"}, {"false", "0", "no", "off"}


def _setting(
    default: object,
    about: str,
    *,
    group: str = WHAT,
    env: str = "",
    check: Check | None = None,
    choices: tuple[str, ...] = (),
    repeatable: bool = False,
) -> Any:  # noqa: ANN401 - a dataclass field stands in for a value of any type
    """A row of the table. `check` returns what is wrong with a value, or None."""
    about_it = {
        "help": about,
        "group": group,
        "env": env,
        "check": check,
        "choices": choices,
        "repeatable": repeatable,
    }
    return field(default=default, metadata=about_it)


@dataclass(frozen=True)
class Bounds:
    """The numbers that a setting may have; called with one, it says what is wrong with it."""

    least: float
    most: float = math.inf

    def __call__(self, value: float) -> str | None:
        if not math.isfinite(value):
            return f"{value} is not a finite number"
        if self.least <= value <= self.most:
            return None
        bounded = self.most != math.inf
        bounds = f"between {self.least} and {self.most}" if bounded else f"at least {self.least}"
        return f"{value} is not {bounds}"


def _some(values: tuple[str, ...]) -> str | None:
    if not values:
        return "names nothing; give one or more names separated by commas"
    twice = sorted({value for value in values if values.count(value) > 1})
    return f"{', '.join(twice)} is named twice" if twice else None


def _sizes(values: tuple[str, ...]) -> str | None:
    for value in values:
        if not re.fullmatch(r"[^=\s]+=\d{1,5}(\.\d{1,6})?[bB]?", value) or not size_of(value)[1]:
            return f"{value!r} is not NAME=BILLIONS such as my-model:latest=3.2"
    names = [size_of(value)[0] for value in values]
    twice = sorted({name for name in names if names.count(name) > 1})
    return f"{', '.join(twice)} is named twice" if twice else None


def size_of(value: str) -> tuple[str, float]:
    """A model's name and its size in billions of parameters, from one value of `assume_size`."""
    name, _, billions = value.partition("=")
    return name, float(billions.rstrip("bB"))


def _name(value: str) -> str | None:
    """MLflow takes almost any name; these would break a URL, a file name or a listing."""
    if re.fullmatch(r"[\w][\w .:@+-]{0,199}", value):
        return None
    return f"{value!r} is not a name of letters, digits, spaces and . _ - : @ + (at most 200)"


def _url(value: str) -> str | None:
    if not value:
        return None
    if "://" not in value:  # it has a login: see `normal_url`
        return login_needs_scheme(value)
    try:
        parts = urlsplit(value)
        port_ok = parts.port is None or parts.port > 0
        good = parts.scheme in {"http", "https"} and parts.hostname and port_ok
    except ValueError:
        good = False
    return (
        None
        if good
        else f"{without_login(value, is_wrong=True)!r} is not an address such as http://localhost:11434"
    )


def login_needs_scheme(address: str) -> str:
    """The problem of an address such as `user:password@host:11434`, without the login."""
    host = without_login(address, is_wrong=True)
    return f"the address of {host!r} has a login but no scheme: begin it with http:// or https://"


def _duration(value: str) -> str | None:
    if re.fullmatch(r"0|[1-9]\d{0,5}(s|m|h)", value):
        return None
    return f"{value!r} is not a time such as 90s, 5m or 1h, nor 0 (a model must not stay loaded for ever)"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a collection is told. Made by `Settings.of`, which checks every value."""

    models: tuple[str, ...] = _setting(
        ("qwen2.5:0.5b", "qwen2.5:1.5b", "gemma3:1b", "llama3.2:3b"),
        "models to bench, separated by commas",
        check=_some,
    )
    prompts: tuple[str, ...] = _setting(
        ("v1", "v2-mentor", "v3-few-shot"),
        "prompt versions of the suite, separated by commas; a suite without these uses its own defaults",
        check=_some,
    )
    n_tips: int = _setting(5, "candidates asked for in each cell", check=Bounds(1, 50))
    n_scenarios: int = _setting(
        0, "how many of the suite's scenarios, in its order; 0 is all", check=Bounds(0)
    )
    temperature: float = _setting(0.7, "sampling temperature", check=Bounds(0, 5))
    experiment: str = _setting(
        "tip-bench-auto", "the MLflow experiment that holds the cells", check=_name, group=WHERE
    )
    max_model_b: float = _setting(
        4.0, "refuse models of more than this many billion parameters", check=Bounds(0.001), group=HOW
    )
    ollama_url: str = _setting(
        "http://localhost:11434", "the Ollama host to generate on", env="OLLAMA_HOST", check=_url, group=HOW
    )
    mlflow_url: str = _setting(
        "",
        "an MLflow server; empty is the embedded store",
        env="MLFLOW_TRACKING_URI",
        check=None,
        group=WHERE,
    )
    suite: str = _setting("tip", "what is evaluated: a suite that ships, or the folder of your own")
    seed: int = _setting(
        0, "the base seed that every cell's own seed derives from", check=Bounds(0, 2**31 - 1)
    )
    repeats: int = _setting(1, "how many times each cell is generated", check=Bounds(1, 100))
    parallel: int = _setting(
        1,
        "requests in flight to the one loaded model; above 1 the same seed may give another text",
        check=Bounds(1, 64),
        group=HOW,
    )
    diversity: bool = _setting(
        False, "measure how different a cell's candidates are from each other (lexical)"
    )
    engine: str = _setting(
        "auto",
        "auto takes Ollama where it answers, else the embedded engine where it has the models",
        choices=("auto", "ollama", "embedded"),
        group=HOW,
    )
    num_ctx: int = _setting(0, "context length in tokens; 0 is what the suite says", check=Bounds(0, 2**20))
    num_predict: int = _setting(
        0, "longest reply in tokens; 0 is what the suite says", check=Bounds(0, 2**20)
    )
    keep_alive: str = _setting(
        "5m",
        "how long the host keeps the model after a reply; 0 unloads after every one",
        check=_duration,
        group=HOW,
    )
    prompt_cache: bool = _setting(
        False,
        "let the embedded engine reuse a prompt's beginning: faster, but the same seed may give another text",
        group=HOW,
    )
    gguf: tuple[str, ...] = _setting(
        (), "more models for the embedded engine: name=path of a GGUF file, separated by commas", group=HOW
    )
    assume_size: tuple[str, ...] = _setting(
        (),
        "the size of a model for which the host gives none: name=billions of parameters, separated by commas",
        check=_sizes,
        group=HOW,
        repeatable=True,
    )
    pull: bool = _setting(False, "let the host download models that it does not have", group=HOW)
    evict: bool = _setting(False, "unload a model that somebody else has loaded on the host", group=HOW)
    wait: bool = _setting(False, "when the host is busy with another collection, wait for it", group=HOW)
    unload_timeout: float = _setting(
        30.0,
        "seconds the host may take to let go of a model before that is an error",
        check=Bounds(0.1),
        group=HOW,
    )
    timeout: float = _setting(
        300.0,
        "seconds without a sign from the engine before a call is retried",
        check=Bounds(0.1),
        group=HOW,
    )
    retries: int = _setting(
        3,
        "how often a failed call is tried again before its cell counts as failed",
        check=Bounds(0, 20),
        group=HOW,
    )
    mlflow_host_header: str = _setting(
        "",
        "the Host header to send to an MLflow server that runs with --allowed-hosts",
        env="TIPBENCH_MLFLOW_HOST_HEADER",
        group=WHERE,
    )
    offline: bool = _setting(
        False,
        "generate without MLflow; the cells wait on this disk until `tipbench sync` records them",
        group=WHERE,
    )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Settings:
        """Settings from loose values (text, numbers, lists); what is absent or None takes its default."""
        rows = {row.name: row for row in table()}
        unknown = sorted(set(values) - set(rows))
        if unknown:
            raise BadSetting(unknown[0], f"there is no such setting; the settings are {', '.join(rows)}")
        given = {name: _converted(rows[name], value) for name, value in values.items() if value is not None}
        return cls(**{name: given.get(name, _fallback(row)) for name, row in rows.items()})


def table() -> tuple[Field[Any], ...]:
    """The rows, in the order in which people are shown them."""
    return fields(Settings)


def default_of(row: Field[Any]) -> Any:  # noqa: ANN401 - a row may be of any type
    assert row.default is not MISSING  # noqa: S101 - every row is made by _setting
    return row.default


def home() -> Path:
    """Where tipbench keeps its state: `$TIPBENCH_HOME`, else the platform's usual place."""
    given = os.environ.get("TIPBENCH_HOME")
    if not given:
        return platformdirs.user_state_path("tipbench", appauthor=False)
    try:
        return Path(given).expanduser()
    except RuntimeError:
        raise BadInput(f"TIPBENCH_HOME is {given}: there is no such user; write the folder out") from None


def _fallback(row: Field[Any]) -> Any:  # noqa: ANN401 - a row may be of any type
    env = row.metadata["env"]
    text = os.environ.get(env, "") if env else ""
    return _converted(row, text) if text else default_of(row)


def _converted(row: Field[Any], value: object) -> Any:  # noqa: ANN401 - a row may be of any type
    """The value in the row's type, checked; a BadSetting names the row and what is wrong with it."""
    default = default_of(row)
    converted = _CONVERTERS[type(default)](row, value)
    if row.name == "ollama_url":
        converted = normal_url(str(converted))
    choices = row.metadata["choices"]
    if choices and converted not in choices:
        raise BadSetting(row.name, f"{converted!r} is not one of {', '.join(choices)}")
    check = row.metadata["check"]
    problem = check(converted) if check else None
    if problem:
        raise BadSetting(row.name, problem)
    return converted


def _bool(row: Field[Any], value: object) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() not in _YES | _NO:
        raise BadSetting(row.name, f"{value!r} is neither true nor false")
    return str(value).lower() in _YES


def _whole(row: Field[Any], value: object) -> int:
    number = _real(row, value)
    if not number.is_integer():
        raise BadSetting(row.name, f"{value!r} is not a whole number")
    return int(number)


def _real(row: Field[Any], value: object) -> float:
    try:
        return math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise BadSetting(row.name, f"{value!r} is not a number") from None
    except OverflowError:
        raise BadSetting(row.name, "this number is too large") from None


def _text(row: Field[Any], value: object) -> str:
    if not isinstance(value, str):
        raise BadSetting(row.name, f"{value!r} is not text")
    return value.strip()


def _names(row: Field[Any], value: object) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
        raise BadSetting(row.name, f"{value!r} is not a list of names")
    return tuple(part.strip() for part in parts if part.strip())


_CONVERTERS: Mapping[type, Callable[[Field[Any], object], Any]] = {
    bool: _bool,
    int: _whole,
    float: _real,
    str: _text,
    tuple: _names,
}


def normal_url(value: str) -> str:
    """An Ollama address as people and `OLLAMA_HOST` write it (`host`, `host:port`, `:port`) as a full URL."""
    text = value.strip().rstrip("/")
    if not text:
        return "http://localhost:11434"
    if "://" not in text and has_login(text):
        return text
    if "://" not in text:
        text = f"[{text}]" if text.count(":") > 1 and "[" not in text else text
        text = f"http://{'localhost' if text.startswith(':') else ''}{text}"
        head, _, tail = text.removeprefix("http://").partition("/")
        if not re.search(r":\d+$", head):
            text = f"http://{head}:11434{'/' + tail if tail else ''}"
    # 0.0.0.0 is where a server listens, not where it can be called
    return text.replace("://0.0.0.0", "://127.0.0.1")


_UNKNOWN_HOST = re.compile(
    r"Name or service not known|nodename nor servname|getaddrinfo failed|No address assoc"
)


def is_unknown_host(reason: str) -> bool:
    """Whether the text of a connection error says that the host name is unknown. A retry cannot help then."""
    return bool(_UNKNOWN_HOST.search(reason))


@dataclass(frozen=True, kw_only=True)
class ShadowPolicy:
    """A challenger that decides on live traffic and can change nothing.

    `policy` is a policy's name, or `package.module:factory`. An `apprentice` also learns from the rewards of
    what was served; without that no reward ever reaches it.
    """

    policy: str
    enabled: bool = False
    apprentice: bool = False


SHADOW_POLICIES: Mapping[str, ShadowPolicy] = {"egreedy-v2-shadow": ShadowPolicy(policy="egreedy-v2")}
SHADOW_POLICIES_ENV = "TIPBENCH_SHADOW_POLICIES"


def shadow_policies(
    *, known: Collection[str], enable: Sequence[str] = (), text: str | None = None
) -> dict[str, ShadowPolicy]:
    """The registered shadows by name: those that ship, then what the environment (or `text`) says of them.

    That is a JSON object such as `{"mine": {"policy": "linucb", "enabled": true}}`; of a shadow that is there
    already it may name only what differs. `enable` names those to be switched on beside; `known` are the
    names of the policies there are.
    """
    written = _shadow_object(os.environ.get(SHADOW_POLICIES_ENV, "") if text is None else text)
    shadows = dict(SHADOW_POLICIES)
    for name, said in written.items():
        shadows[name] = _shadow_policy(name, said, shadows.get(name), known)
    for name in enable:
        if name not in shadows:
            raise BadInput(f"--shadow: there is no shadow {name!r}{_near(name, shadows)}")
        shadows[name] = replace(shadows[name], enabled=True)
    return shadows


def _shadow_object(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        written = json.loads(text, object_pairs_hook=_named_once)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{SHADOW_POLICIES_ENV}: this is not JSON: {error}") from None
    if not isinstance(written, dict):
        raise BadInput(f'{SHADOW_POLICIES_ENV}: give an object such as {{"name": {{"policy": "linucb"}}}}')
    return written


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"{SHADOW_POLICIES_ENV}: {name!r} is written twice in one object")
    return dict(pairs)


def _shadow_policy(name: str, said: object, was: ShadowPolicy | None, known: Collection[str]) -> ShadowPolicy:
    where = f"{SHADOW_POLICIES_ENV}: shadow {name!r}"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", name):
        raise BadInput(f"{where}: a name has letters, digits and . _ - only, at most 100")
    if name in known:
        raise BadInput(f"{where}: a policy has this name, and its own state; call the shadow '{name}-shadow'")
    if not isinstance(said, dict):
        raise BadInput(f'{where}: give an object such as {{"policy": "linucb", "enabled": true}}')
    _check_shadow_keys(where, said, known)
    if was is None and "policy" not in said:
        raise BadInput(f'{where}: "policy" is missing; the policies are {", ".join(sorted(known))}')
    return replace(was, **said) if was else ShadowPolicy(**said)


def _check_shadow_keys(where: str, said: Mapping[str, object], known: Collection[str]) -> None:
    types = {"policy": str, "enabled": bool, "apprentice": bool}
    for key, value in said.items():
        if key not in types:
            raise BadInput(f"{where}: there is no key {key!r}{_near(key, types)}")
        if not isinstance(value, types[key]):
            wanted = "a name" if types[key] is str else "true or false"
            raise BadInput(f"{where}: {key!r} must be {wanted}, not {json.dumps(value)}")
    if "policy" in said:
        _check_policy_name(where, str(said["policy"]), known)


def _check_policy_name(where: str, policy: str, known: Collection[str]) -> None:
    own = re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", policy)
    if policy not in known and not own:
        raise BadInput(f"{where}: there is no policy {policy!r}{_near(policy, known)}")


def _near(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name.casefold(), known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else f"; there is {', '.join(sorted(known)) or 'none'}"
