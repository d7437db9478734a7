"""Which host made which cell. Latency is compared only within a host; an absolute limit is no comparison."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from tipbench.compare import figures
from tipbench.compare.report import HostFacts, Speed
from tipbench.engine.address import place_name

_LEAST_WARM = 2
_FAULTS = {
    "possibly-truncated": "The host possibly truncated prompts",
    "schema-ignored": "The host ignored the schema",
    "digest-changed": "The model changed on the host while cells were generated",
}

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tipbench.compare.recommendation import CostName
    from tipbench.compare.scores import Combination
    from tipbench.records import Host, Run

    Groups = Mapping[Combination, Sequence[Run]]


def place_of(run: Run) -> str:
    """What the host of a cell is called; cells of one host have the same name for it."""
    return place_name(kind=run.host_kind, url=run.host, machine=run.machine)


def place_of_host(host: Host) -> str:
    """What cells that a host makes now will call it."""
    return place_name(kind=host.kind, url=host.url, machine=host.machine)


def by_place(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """The cells that were made, by host, in the order of the hosts' names; a failed cell was made nowhere."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        if run.status == "done":
            found.setdefault(place_of(run), []).append(run)
    return dict(sorted(found.items()))


def hosts_of(runs: Iterable[Run]) -> tuple[HostFacts, ...]:
    """The hosts that made an experiment's cells, with what was recorded of each."""
    return tuple(_host(name, some) for name, some in by_place(runs).items())


def _host(name: str, runs: Sequence[Run]) -> HostFacts:
    def seen(values: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted({value for value in values if value}))

    return HostFacts(
        name=name,
        n_cells=len(runs),
        kind=runs[0].host_kind,
        # The embedded engine's is another one each time, and leads nowhere.
        addresses=seen(run.host for run in runs if run.host_kind != "embedded"),
        versions=seen(run.host_version for run in runs),
        machine=runs[0].machine,
        hardware=seen(run.hardware for run in runs),
    )


def speeds_of(runs: Iterable[Run]) -> dict[str, Speed]:
    """How fast a combination was on each host that made cells of it."""
    return {name: _speed(some) for name, some in by_place(runs).items()}


def _speed(runs: Sequence[Run]) -> Speed:
    shares = [run.vram_share for run in runs if run.vram_share is not None]
    return Speed(
        n_cells=len(runs),
        tokens_per_s=median_of(runs, "tokens_per_s"),
        latency_ms=median_of(runs, "latency_ms"),
        vram_share=median(shares) if shares else None,
    )


def median_of(runs: Iterable[Run], metric: str) -> float | None:
    """The median of a measured speed, without first calls after a load where two other cells remain."""
    known = [run for run in runs if metric in run.metrics]
    warm = [run for run in known if "first-call" not in run.marks]
    counted = known if len(warm) < _LEAST_WARM else warm
    return median(run.metrics[metric] for run in counted) if counted else None


def mark_notes(groups: Groups) -> list[str]:
    """What the marks of the cells mean: faults of the engine, and medians with calls right after a load."""
    notes = []
    for mark, meaning in _FAULTS.items():
        numbers = {name: sum(mark in run.marks for run in runs) for name, runs in groups.items()}
        marked = [f"{name} ({figures.count(n, 'cell')})" for name, n in sorted(numbers.items()) if n]
        if marked:
            notes.append(f"{meaning}: {', '.join(marked)}.")
    cold = sorted(name for name, runs in groups.items() if _counts_first_calls(runs))
    if cold:
        done = [run for name in cold for run in groups[name] if run.status == "done"]
        every = all("first-call" in run.marks for run in done)
        why = "every call was the first after a load" if every else "too few other cells remain"
        names = ", ".join(str(name) for name in cold)
        notes.append(f"Latency and tokens per second include first calls after a load ({why}): {names}.")
    return notes


def _counts_first_calls(runs: Sequence[Run]) -> bool:
    """Whether a first call is part of the medians on any host, because too few others are there."""
    return any(
        any("first-call" in run.marks for run in some)
        and sum("first-call" not in run.marks for run in some) < _LEAST_WARM
        for some in by_place(runs).values()
    )


def one_speed(speeds: Mapping[str, Speed]) -> Speed:
    """The speed of what was made on one host; what was made on several has no one speed."""
    return next(iter(speeds.values())) if len(speeds) == 1 else Speed(n_cells=0)


def costs(groups: Groups, by: CostName = "parameters") -> dict[tuple[str, str], Sequence[float | None]]:
    """What makes a combination cheap: fewest parameters and then seconds, or seconds or memory alone.

    Numbers after the first are compared only within a host, so seconds and memory come second.
    """
    return {name: _cost(runs, by) for name, runs in groups.items()}


def _cost(runs: Sequence[Run], by: CostName) -> tuple[float | None, ...]:
    latency = one_speed(speeds_of(runs)).latency_ms
    if by == "parameters":
        return runs[0].parameters, latency
    measured = latency if by == "seconds" else memory_of(runs)
    return (None, None) if measured is None else (0.0, measured)


def memory_of(runs: Iterable[Run]) -> float | None:
    """The most memory that the model took in any of these cells."""
    return max((run.metrics["memory_bytes"] for run in runs if "memory_bytes" in run.metrics), default=None)


def comparable(groups: Groups) -> dict[tuple[str, str], str]:
    """Which latencies may be held against each other: those with the same word. A mixed one stands alone."""
    places = {name: list(by_place(runs)) for name, runs in groups.items()}
    return {name: some[0] if len(some) == 1 else f"only {name}" for name, some in places.items()}


def too_slow(groups: Groups, limit: float | None) -> dict[Combination, dict[str, float]]:
    """The combinations whose median latency is above a limit wherever they ran, with their medians."""
    if limit is None:
        return {}
    known = {
        name: {place: one.latency_ms for place, one in speeds_of(runs).items() if one.latency_ms is not None}
        for name, runs in groups.items()
    }
    return {name: some for name, some in known.items() if some and min(some.values()) > limit}


def slow_notes(
    slow: Mapping[Combination, Mapping[str, float]], limit: float | None, *, several: bool
) -> list[str]:
    """Who was left out, and with several hosts what the limit was held against."""
    if limit is None:
        return []
    notes = []
    if slow:
        names = ", ".join(f"{name} ({_medians(some, several)})" for name, some in sorted(slow.items()))
        notes.append(f"Left out as slower than {limit:g} ms: {names}.")
    if several:
        notes.append(
            f"The limit of {limit:g} ms is held against the median on each host by itself; it leaves out "
            "what is slower on every host that it ran on."
        )
    return notes


def _medians(medians: Mapping[str, float], several: bool) -> str:  # noqa: FBT001 - private
    return ", ".join(f"{ms:.0f} ms{f' on {place}' if several else ''}" for place, ms in medians.items())


def host_notes(groups: Groups, hosts: Sequence[HostFacts]) -> list[str]:
    """With several hosts: which they are, that they are not compared, and what was made on more than one."""
    if len(hosts) < 2:
        return []
    mixed = {name: speeds for name, runs in groups.items() if len(speeds := speeds_of(runs)) > 1}
    return [
        f"The cells were made on {len(hosts)} hosts, and latencies of different hosts are not compared.",
        *(f"{host.name}: {_described(host)}." for host in hosts),
        *(f"{name} was made on several hosts: {_each(speeds)}." for name, speeds in sorted(mixed.items())),
    ]


def _described(host: HostFacts) -> str:
    parts = [figures.count(host.n_cells, "cell"), _engine(host), *host.hardware]
    if not host.machine and host.name.startswith(("localhost:", "embedded")):
        parts.append("its machine was not recorded")
    return ", ".join(part for part in parts if part)


def _engine(host: HostFacts) -> str:
    kind = {"ollama": "Ollama", "embedded": "embedded engine"}.get(host.kind, host.kind)
    return f"{kind} {' and '.join(host.versions)}".strip()


def _each(speeds: Mapping[str, Speed]) -> str:
    return ", ".join(
        f"{figures.count(one.n_cells, 'cell')} on {place} ({figures.duration(one.latency_ms)})"
        for place, one in speeds.items()
    )
