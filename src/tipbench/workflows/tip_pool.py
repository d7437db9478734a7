"""The tips behind `/recommend`: fresh ones of what is shipped, and judged ones while there are none.

`tips` is called in a request. It looks at memory, and at the date of one file. All else is done by threads
that do not wait for each other: one reads the file when it has changed, one has the ledger asked, one the
engine. The asking itself is done by other processes.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tipbench.errors import NotFound, StoreUnusable, TipbenchError, Unavailable
from tipbench.judge.candidates import candidate_key
from tipbench.ledger.shipments import model_name
from tipbench.settings import home
from tipbench.workflows.scenario_kinds import nearest
from tipbench.workflows.shipped_file import FILE, read_filed
from tipbench.workflows.tip_errands import EngineErrands, LedgerErrands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from tipbench.records import Emit
    from tipbench.settings import Settings
    from tipbench.workflows.scenario_kinds import Kind
    from tipbench.workflows.shipped_file import Filed

LIFETIME_S = 3600.0
_LOOK_EVERY_S = 5.0
_ASK_LEDGER_EVERY_S = 600.0
_LONGEST_PAUSE_S = 30.0
# Renewed before they are too old, so that a refresh is not seen from outside.
_RENEW_AT = 0.8
_TRY_AGAIN_AT = 0.1


@dataclass(frozen=True, kw_only=True)
class PooledTip:
    id: str
    kind: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Tips to choose from for one moment, the best first where they were judged.

    `scenario` is the kind of moment they are for, `shipped` the registered model and version behind them.
    """

    tips: tuple[PooledTip, ...]
    source: Literal["fresh", "judged"]
    scenario: str
    shipped: str


@dataclass(frozen=True, kw_only=True)
class _Fresh:
    tips: tuple[PooledTip, ...]
    until: float


@dataclass(kw_only=True)
class _Served:
    """One shipping as it is served. What is written here for a shipping that was replaced is lost with it."""

    filed: Filed
    name: str
    judged: Mapping[str, tuple[PooledTip, ...]]
    fresh: dict[str, _Fresh] = field(default_factory=dict)
    asked: dict[str, float] = field(default_factory=dict)
    next_try: dict[str, float] = field(default_factory=dict)


class _Backoff:
    """When to try again what failed: later each time, and not at the same moment as everybody else."""

    def __init__(self, *, first_s: float, most_s: float) -> None:
        self._first, self._most = first_s, most_s
        self._pause = first_s
        self.at = 0.0

    def failed(self) -> float:
        """How long to pause now."""
        pause = self._pause * random.uniform(0.75, 1.25)  # noqa: S311 - no secret
        self.at = time.monotonic() + pause
        self._pause = min(self._pause * 2, self._most)
        return pause

    def went_well(self) -> None:
        self._pause, self.at = self._first, 0.0


class TipPool:
    """Made by the service when it starts, ended when it stops. `kind_of` names the kind of a tip's text.

    `lifetime_s` is how long fresh tips are served, `retry_s` the first pause after an attempt that failed.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        kind_of: Callable[[str], str],
        folder: Path | None = None,
        lifetime_s: float = LIFETIME_S,
        retry_s: float = 15.0,
        emit: Emit = lambda _event: None,
    ) -> None:
        self._kind_of = kind_of
        self._folder = folder or home()
        self._path = self._folder / FILE
        self._lifetime = lifetime_s
        self._engine = EngineErrands(settings, emit=emit)
        self._ledger = LedgerErrands(settings)
        self._engine_rests = _Backoff(first_s=retry_s, most_s=max(600.0, retry_s))
        self._ledger_rests = _Backoff(first_s=retry_s, most_s=max(600.0, retry_s))
        self._served: _Served | None = None
        self._stamp: tuple[int, ...] | None = None
        self._unreadable = ""
        self._troubles: dict[str, str] = {}
        self._look, self._ask, self._work = threading.Event(), threading.Event(), threading.Event()
        self._ended = False
        self._threads: dict[str, threading.Thread] = {}

    @property
    def troubles(self) -> dict[str, str]:
        """What keeps tips from being fresh or up to date at the moment, by `file`, `ledger` and `engine`."""
        return dict(self._troubles)

    @property
    def suite_id(self) -> str | None:
        """The suite that is shipped, None where nothing is."""
        served = self._served
        return None if served is None else served.filed.shipped.suite_id

    def start(self) -> None:
        """Read what is shipped, at once, and begin to look for more. Nothing shipped is no error yet."""
        self._load()
        for name, run in (("file", self._watch), ("ledger", self._follow), ("engine", self._fill)):
            thread = threading.Thread(target=run, name=f"tip-pool-{name}", daemon=True)
            thread.start()
            self._threads[name] = thread

    def stop(self, *, within_s: float = 15.0) -> None:
        """End all of it. A session with the engine is broken off, and its model unloaded before this returns.

        A ledger that does not answer is not waited for: nothing of ours is left there.
        """
        self._ended = True
        for event in (self._look, self._ask, self._work):
            event.set()
        self._engine.end()
        self._ledger.kill()
        deadline = time.monotonic() + within_s
        for thread in self._threads.values():
            thread.join(max(0.0, deadline - time.monotonic()))
        self._engine.kill()

    def tips(self, context: Mapping[str, Any]) -> Pool:
        """Tips for a moment: of the scenario that it names, else of the one most like it that has any.

        NotFound where nothing is shipped or the scenario is unknown; StoreUnusable where what is shipped
        cannot be read; Unavailable where there is not a single tip yet.
        """
        if self._stamp_now() != self._stamp:
            self._look.set()
        served = self._served
        if served is None:
            raise self._nothing()
        kinds = nearest(served.filed.kinds, context)
        if kinds:
            self._ask_for(served, kinds[0].id)
        for kind in kinds:
            pool = self._of(served, kind)
            if pool is not None:
                return pool
        what = f"the scenario {kinds[0].id!r}" if kinds and context.get("scenario") else "any scenario"
        raise Unavailable(
            f"there is no tip for {what} of {served.name} yet: no judged one can be served, and the engine "
            "has not written one; see that it runs (`tipbench doctor`), then try again"
        )

    def _nothing(self) -> TipbenchError:
        if self._unreadable:
            return StoreUnusable(self._unreadable)
        return NotFound("nothing is shipped yet; ship a winner with `tipbench ship --experiment NAME`")

    def _ask_for(self, served: _Served, scenario: str) -> None:
        is_new = scenario not in served.asked
        served.asked[scenario] = time.monotonic()
        if is_new:
            self._work.set()

    def _of(self, served: _Served, kind: Kind) -> Pool | None:
        fresh = served.fresh.get(kind.id)
        if fresh is not None and fresh.until > time.monotonic():
            return Pool(tips=fresh.tips, source="fresh", scenario=kind.id, shipped=served.name)
        judged = served.judged.get(kind.id, ())
        return Pool(tips=judged, source="judged", scenario=kind.id, shipped=served.name) if judged else None

    def _stamp_now(self) -> tuple[int, ...] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size

    def _watch(self) -> None:
        while not self._ended:
            self._look.wait(_LOOK_EVERY_S)
            self._look.clear()
            if self._stamp_now() != self._stamp:
                self._load()
                self._ask.set()
                self._work.set()

    def _load(self) -> None:
        """Take in the file. One that cannot be read leaves what is served as it is."""
        # Before the file is read: what is written meanwhile then looks new.
        stamp = self._stamp_now()
        try:
            filed = read_filed(self._folder)
        except StoreUnusable as error:
            self._unreadable = self._troubles["file"] = str(error)
        else:
            self._unreadable = ""
            self._troubles.pop("file", None)
            self._served = None if filed is None else self._serving(filed)
        self._stamp = stamp

    def _serving(self, filed: Filed) -> _Served:
        name = f"{model_name(filed.shipped.suite_id)}/{filed.shipped.version}"
        judged = {kind.id: self._pooled(kind.id, kind.tips) for kind in filed.kinds}
        new = _Served(filed=filed, name=name, judged=judged)
        old = self._served
        if old is not None and (old.filed.shipped, old.filed.ledger) == (filed.shipped, filed.ledger):
            new.fresh, new.asked, new.next_try = old.fresh, old.asked, old.next_try
        else:
            self._troubles.pop("engine", None)
        return new

    def _pooled(self, scenario: str, texts: Iterable[str]) -> tuple[PooledTip, ...]:
        first: dict[str, str] = {}
        for text in texts:
            first.setdefault(candidate_key(scenario, text), text)
        return tuple(PooledTip(id=key, kind=self._kind_of(text), text=text) for key, text in first.items())

    def _follow(self) -> None:
        """Keep the file as the ledger has it; the other thread reads it then."""
        while not self._ended:
            self._ask.clear()
            try:
                self._ledger.refreshed(self._folder)
            except (TipbenchError, OSError) as error:
                self._troubles["ledger"] = str(error)
                # Also when something was shipped meanwhile: a ledger that is away stays so for a while.
                self._rest(self._ledger_rests.failed())
            else:
                self._troubles.pop("ledger", None)
                self._ledger_rests.went_well()
                self._look.set()
                self._ask.wait(_ASK_LEDGER_EVERY_S)

    def _rest(self, pause_s: float) -> None:
        deadline = time.monotonic() + pause_s
        while not self._ended and time.monotonic() < deadline:
            self._ask.clear()
            self._ask.wait(deadline - time.monotonic())

    def _fill(self) -> None:
        while not self._ended:
            self._work.clear()
            served, now = self._served, time.monotonic()
            if served is not None and now >= self._engine_rests.at and _next_due(served, self._lifetime):
                self._ask_engine(served)
            else:
                self._work.wait(self._pause(served))

    def _pause(self, served: _Served | None) -> float:
        """Until something may be due; whoever brings something new wakes us before."""
        tries = list(served.next_try.values()) if served else []
        now = time.monotonic()
        return min([_LONGEST_PAUSE_S, *(at - now for at in (*tries, self._engine_rests.at) if at > now)])

    def _ask_engine(self, served: _Served) -> None:
        def keep(scenario: str, texts: tuple[str, ...], error: str | None) -> None:
            kept = self._keep(served, scenario, texts)
            if self._still(served) and (error is not None or not kept):
                self._troubles["engine"] = error or _too_few(served, scenario)

        self._troubles.pop("engine", None)
        try:
            self._engine.generate(served.filed, wanted=self._wanted(served), keep=keep)
        except (TipbenchError, OSError) as error:
            self._troubles["engine"] = str(error)
            self._engine_rests.failed()
        else:
            self._engine_rests.went_well()

    def _wanted(self, served: _Served) -> Iterator[str]:
        """What is due, also what falls due meanwhile; no more once something else is shipped."""
        while not self._ended and self._still(served):
            scenario = _next_due(served, self._lifetime)
            if scenario is None:
                return
            # Had the engine nothing to say, it is not asked the same again at once.
            served.next_try[scenario] = time.monotonic() + _TRY_AGAIN_AT * self._lifetime
            yield scenario

    def _still(self, served: _Served) -> bool:
        """Whether nothing else was shipped meanwhile."""
        return self._served is not None and self._served.fresh is served.fresh

    def _keep(self, served: _Served, scenario: str, texts: tuple[str, ...]) -> bool:
        """Serve them from now on. A single one where more were asked for leaves nothing to choose: False."""
        tips = self._pooled(scenario, texts)
        if len(tips) < min(2, served.filed.shipped.n_tips):
            return False
        now = time.monotonic()
        served.next_try[scenario] = now + _RENEW_AT * self._lifetime
        served.fresh[scenario] = _Fresh(tips=tips, until=now + self._lifetime)
        return True


def _too_few(served: _Served, scenario: str) -> str:
    shipped = served.filed.shipped
    return (
        f"{shipped.combination} was asked for {shipped.n_tips} tips for {scenario!r}, and wrote too few that "
        "differ and can be served; judged ones are served meanwhile, and it is asked again later"
    )


def _next_due(served: _Served, lifetime_s: float) -> str | None:
    """A scenario to write tips for: one that was asked for of late, and is not known to be useless now."""
    now = time.monotonic()
    for scenario, at in list(served.asked.items()):
        if now - at > lifetime_s:
            served.asked.pop(scenario, None)
        elif served.next_try.get(scenario, 0.0) <= now:
            return scenario
    return None
