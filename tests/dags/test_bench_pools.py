"""The pool of a host, in Airflow's environment and in tipbench's."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import bench_pools
from bench_pools import full_url, hosts_of, is_installed, place, pool_of, public_url
from tipbench.engine.lock import host_name
from tipbench.errors import BadSetting
from tipbench.settings import Settings, normal_url

BARE = ["", " gpu ", "gpu", "GPU.example", "gpu/ollama", "gpu_1", "10.0.0.7", "xn--bcher-kva.example", "::1"]
LOOPBACK = ["localhost", "LocalHost", "127.0.0.1", "0.0.0.0", "[::1]"]  # noqa: S104 - only written down
PORTS = [f"{name}:{port}" for name in ("", "gpu", "[fe80::1]", *LOOPBACK) for port in (80, 443, 8000, 11434)]
URLS = [
    f"{scheme}://{name}{end}"
    for scheme in ("http", "https")
    for name in ("gpu", "GPU:8000", "ann:pass@gpu:8000", "ann@gpu", *LOOPBACK)
    for end in ("", "/", "/x/")
]
WRONG = [
    *("ftp://gpu", "http://", "gpu:0", "http://gpu:99999", "http://gpu:port", "http://[gpu", "unix:///x"),
    "ann:pass@gpu:8000",
]


@pytest.mark.parametrize("text", [*BARE, *LOOPBACK, *PORTS, *URLS])
def test_a_host_has_one_name_on_both_sides(text: str) -> None:
    """Pool and connection are named as tipbench names the host, however its address is written."""
    assert full_url(text) == normal_url(text)
    assert pool_of(text) == f"ollama-{host_name(normal_url(text))}"


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_address_is_refused_on_both_sides(text: str) -> None:
    """What tipbench would refuse is refused before anything is assigned to it."""
    with pytest.raises(ValueError, match="is not an address such as"):
        full_url(text)
    with pytest.raises(BadSetting):
        Settings.of({"ollama_url": text})


@pytest.mark.parametrize(
    "text",
    ["http://ann:hush@gpu:99999", "ann:hush@gpu:8000", "ftp://ann:hush@gpu", "http://ann:hu/sh@hush@gpu:x"],
)
def test_a_login_in_a_wrong_address_is_not_told(text: str) -> None:
    """The sentence ends in a log or on a page, on both sides."""
    with pytest.raises(ValueError, match=r"^hosts: '.*…@gpu.*' is not an address") as there:
        full_url(text)
    with pytest.raises(BadSetting, match=r"gpu.*' (is not an address|has a login but no scheme)") as here:
        Settings.of({"ollama_url": text})
    assert "hu" not in f"{there.value}{here.value}"


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ({}, ["http://localhost:11434"]),
        ({"hosts": [], "ollama_url": "gpu"}, ["http://gpu:11434"]),
        ({"hosts": None, "ollama_url": None}, ["http://localhost:11434"]),
        ({"hosts": "a, b,,a:11434"}, ["http://a:11434", "http://b:11434"]),
        (
            {"hosts": ["http://localhost:1", "http://127.0.0.1:1", "c"]},
            ["http://localhost:1", "http://c:11434"],
        ),
        ({"hosts": ["a"], "ollama_url": "gpu"}, ["http://a:11434"]),
    ],
)
def test_hosts_are_counted_once(
    conf: dict[str, Any], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first spelling of a host stands; without hosts it is the one address, else the usual one."""
    monkeypatch.delenv("OLLAMA_HOST", raising=False)
    assert hosts_of(conf) == expected


def test_the_usual_host_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`OLLAMA_HOST` counts where the conf names no other, also where a form filled in the default."""
    monkeypatch.setenv("OLLAMA_HOST", "gpu:8000")
    assert hosts_of({}) == hosts_of({"ollama_url": "http://localhost:11434"}) == ["http://gpu:8000"]
    assert hosts_of({"ollama_url": "b"}) == ["http://b:11434"]


@pytest.mark.parametrize("hosts", [5, {"a": 1}, [1], True, ["http://gpu:99999"]])
def test_hosts_that_are_none_are_refused(hosts: object) -> None:
    """A sentence names the key."""
    with pytest.raises(ValueError, match=r"^hosts: .* address"):
        hosts_of({"hosts": hosts})


def test_a_login_is_not_shown() -> None:
    """What tasks pass on and log has no password in it."""
    assert public_url("http://ann:secret@gpu:8000/x") == "http://gpu:8000/x"


def instance(**changes: Any) -> SimpleNamespace:  # noqa: ANN401 - any field
    return SimpleNamespace(
        **{"dag_id": "bench_collect", "task_id": "collect", "map_index": 0, "pool": "tipbench"} | changes
    )


RUN = SimpleNamespace(conf={"hosts": ["a", "b"]})


@pytest.mark.parametrize(
    ("index", "pool"), [(0, "ollama-a-11434"), (1, "ollama-b-11434"), (2, "ollama-a-11434")]
)
def test_hosts_take_turns(index: int, pool: str) -> None:
    """The pool of a model's index is that of the host it is assigned to."""
    task = instance(map_index=index)
    place(task, RUN)
    assert task.pool == pool


@pytest.mark.parametrize(
    ("changes", "run"),
    [
        ({"dag_id": "other"}, RUN),
        ({"task_id": "compare"}, RUN),
        ({"map_index": -1}, RUN),
        ({}, None),
        ({}, SimpleNamespace(conf={"hosts": 5})),
    ],
)
def test_others_keep_their_pool(changes: dict[str, Any], run: object) -> None:
    """Another DAG, another task, one that is not mapped yet, and a run that cannot be read are left alone."""
    task = instance(**changes)
    place(task, run)
    assert task.pool == "tipbench"


def test_a_pool_that_is_not_there_is_not_waited_for() -> None:
    """A task would wait for it for ever; in the shared pool it waits its turn."""
    task = instance(pool="ollama-a-11434")
    place(task, RUN, there=lambda _pool: False)
    assert task.pool == "tipbench"


@pytest.mark.parametrize(
    ("named", "installed"),
    [
        ({"task_instance_mutation_hook": bench_pools.task_instance_mutation_hook}, True),
        ({"bench_pools": bench_pools}, True),
        ({"ours": bench_pools.task_instance_mutation_hook}, True),
        ({"task_instance_mutation_hook": instance, "sys": sys, "number": 5}, False),
        ({}, False),
    ],
)
def test_the_policy_is_seen(
    monkeypatch: pytest.MonkeyPatch, named: dict[str, object], *, installed: bool
) -> None:
    """Airflow's settings name the hook, or its module for a hook of the team's own."""
    settings = ModuleType("airflow_local_settings")
    vars(settings).update(named)
    monkeypatch.setitem(sys.modules, "airflow_local_settings", settings)
    assert is_installed() is installed


def test_without_settings_there_is_no_policy() -> None:
    """Most Airflows have no file of local settings."""
    assert "airflow_local_settings" not in sys.modules
    assert not is_installed()


def test_a_run_without_conf_has_the_usual_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow hands in None for an empty conf."""
    monkeypatch.delenv("OLLAMA_HOST", raising=False)
    task = instance()
    place(task, SimpleNamespace(conf=None))
    assert task.pool == "ollama-localhost-11434"
