"""Jobs: collections, judgings, simulations as processes of their own: a service starts, watches, ends them.

A job outlives the service. Its row says what was asked for, its folder what became of it. Whoever asks for a
job that is said to run is told of its process as it is now.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from tipbench.errors import BadInput, BadSetting, CheckFailed, HostBusy, Unavailable
from tipbench.ledger.locks import file_lock
from tipbench.private import make_folder
from tipbench.settings import Settings, table
from tipbench.store import Job, new_job_id
from tipbench.text import without_login
from tipbench.workflows import job_outcome
from tipbench.workflows.airflow_address import VARIABLES
from tipbench.workflows.collect import make_grid
from tipbench.workflows.dag_conf import conf_of
from tipbench.workflows.engines import check_parallel
from tipbench.workflows.hosts import busy_lock, lock_name
from tipbench.workflows.job_command import (
    full_addresses,
    job_arguments,
    job_environment,
    kept_settings,
    restored_settings,
    run_name,
)
from tipbench.workflows.job_events import POLL_S, Tails, read_events, size_of
from tipbench.workflows.job_process import JobFolder
from tipbench.workflows.job_progress import Fold
from tipbench.workflows.job_states import LIVE, QUEUED, JobStates, now_ms, process_of
from tipbench.workflows.serving_state import TIPS_DB_ENV
from tipbench.workflows.sim_options import EXPERIMENT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence

    from tipbench.records import Event
    from tipbench.store import Kind, State
    from tipbench.store.jobs import Jobs as JobRows
    from tipbench.workflows.dag_conf import Asked
    from tipbench.workflows.job_progress import Progress
    from tipbench.workflows.sim_options import GateOptions, SimOptions

RESUMABLE: tuple[State, ...] = ("interrupted", "failed", "cancelled")
GRACE_S = 20.0
_PATIENCE_S = 30.0
_MOST_READS = 50
# What a job of a kind needs of the environment beyond what every one does.
_MORE: Mapping[str, tuple[str, ...]] = {
    "judge": ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "gate": (TIPS_DB_ENV,),
    "airflow": VARIABLES,
}


@dataclass(kw_only=True)
class _Read:
    """How far a job's events were folded."""

    fold: Fold = field(default_factory=Fold)
    to: int = 0

    def go_on(self, events: Path) -> None:
        if size_of(events) < self.to:  # the folder was deleted, and the job begun again
            self.fold, self.to = Fold(), 0
        while (chunk := read_events(events, self.to)).next > self.to:
            for line in chunk.lines:
                self.fold.add(line.event)
            self.to = chunk.next


class Jobs:
    """The jobs of one home, each in a folder of its own. Any number of processes may have one of these."""

    def __init__(
        self,
        rows: JobRows,
        folder: Path,
        *,
        own: Settings | None = None,
        grace_s: float = GRACE_S,
        poll_s: float = POLL_S,
    ) -> None:
        """`own` are the settings of the service itself, which may hold logins that jobs need."""
        self._rows = rows
        self._states = JobStates(rows, grace_s=grace_s)
        self._folder = folder.absolute()
        self._grace_s = grace_s
        self._tails = Tails(poll_s=poll_s)
        self._logins = _by_stored(full_addresses(own)) if own else {}
        self._reads: dict[str, _Read] = {}
        self._reading = Lock()

    def start_collect(self, settings: Settings, *, by: str) -> Job:
        """Start a collection. HostBusy says who is using the host, unless the settings say to wait."""
        check_parallel(settings)
        return self._start("collect", settings, title=_grid(settings), host=lock_name(settings), by=by)

    def start_on_airflow(self, settings: Settings, asked: Asked, *, by: str) -> Job:
        """Start a collection on Airflow, and follow it. Any number may: its pools keep them apart."""
        conf_of(settings, asked)  # what cannot be told to Airflow is to be no job
        return self._start("airflow", settings, title=_grid(settings), host=None, by=by, more=asdict(asked))

    def start_judging(self, settings: Settings, spec: str, *, by: str, same_family: bool = False) -> Job:
        """Let `proxy`, `ollama:MODEL` or `openai:MODEL` judge; a model on a host needs it for itself."""
        judge = spec.strip()
        kind, _, model = judge.partition(":")
        if judge != "proxy" and not (kind in {"ollama", "openai"} and model):
            raise BadSetting("judge", f"{spec!r} is neither proxy, nor ollama:MODEL, nor openai:MODEL")
        host = lock_name(settings) if kind == "ollama" else None
        asked = {"judge": judge, "same_family": same_family}
        return self._start("judge", settings, title=f"judged by {judge}", host=host, by=by, more=asked)

    def start_gate(self, settings: Settings, options: GateOptions, *, by: str) -> Job:
        """Hold a gate in a process of its own. One simulation runs at a time, on either side."""
        title = f"gate: {options.challenger} against {options.champion}"
        return self._simulate("gate", settings, asdict(options), world=options.world, title=title, by=by)

    def start_simulation(self, settings: Settings, options: SimOptions, *, by: str) -> Job:
        """Run policies side by side in a process of its own, without a service to ask."""
        names = ("world", "seeds", "users", "rounds")
        asked = {"policies": ",".join(options.policies)} | {name: getattr(options, name) for name in names}
        title = f"{', '.join(options.policies)} in the world {options.world}"
        return self._simulate("sim", settings, asked, world=options.world, title=title, by=by)

    def _simulate(
        self, kind: Kind, settings: Settings, asked: Mapping[str, Any], *, world: str, title: str, by: str
    ) -> Job:
        recorded = replace(settings, experiment=f"{EXPERIMENT}{world}")
        return self._start(kind, recorded, title=title, host=None, by=by, more={"asked": dict(asked)})

    def resume(self, job_id: str) -> Job:
        """Start a job again that was broken off or failed: what it has done is not done again.

        A simulation begins anew: half of it is worth nothing.
        """
        job = self.get(job_id)
        _refuse_unless(job, RESUMABLE, "resumed")
        settings = self._settings_of(job)
        with self._alone():
            _refuse_unless(self.get(job_id), RESUMABLE, "resumed")
            self._refuse_busy(job, wait=settings.wait)
            with JobFolder(Path(job.folder)).claimed() as lock:
                if not self._queued_again(job):
                    raise CheckFailed(f"job {job_id} was changed by somebody else this moment; look again")
                JobFolder(Path(job.folder)).prepare(_heading("resumed"))
                return self._launch(job, settings, _arguments(job, settings), lock=lock)

    def cancel(self, job_id: str) -> Job:
        """Ask a job to end, and return without waiting: it keeps what it has done and frees the host.

        One that does not listen is told more firmly after a while.
        """
        job = self.get(job_id)
        _refuse_unless(job, LIVE, "cancelled")
        folder = JobFolder(Path(job.folder))
        folder.cancel(process_of(job), grace_s=self._grace_s)
        job = self.get(job_id)
        folder.insist_later(process_of(job), grace_s=self._grace_s)
        return job

    def get(self, job_id: str) -> Job:
        """The job as it is now; NotFound where there is none of that id."""
        return self._states.get(job_id)

    def page(self, *, before: str | None = None, limit: int = 50) -> list[Job]:
        """The newest jobs as they are now, or those before one of them."""
        return [self._states.now(job) for job in self._rows.page(before=before, limit=limit)]

    def reconcile(self) -> list[Job]:
        """Look after every job that is said to run; those that turn out to have ended."""
        return [job for job in self._states.live() if job.state not in LIVE]

    def reason(self, job: Job) -> str:
        """Why a job failed or was broken off, as a sentence; nothing for one that did not."""
        if job.state not in {"failed", "interrupted"}:
            return ""
        return job_outcome.reason(JobFolder(Path(job.folder)), job.exit_code)

    def log(self, job_id: str, *, tail: int = 200) -> str:
        """The last lines that the job wrote."""
        return "\n".join(job_outcome.last_lines(JobFolder(Path(self.get(job_id).folder)).log, tail))

    def progress(self, job_id: str) -> Progress:
        """How far the job is. Only what is new since the last call is read."""
        job = self.get(job_id)
        folder, ended = JobFolder(Path(job.folder)), job.state not in LIVE
        with self._reading:
            read = self._reads.pop(job_id, None) or _Read()
            read.go_on(folder.events)
            found = replace(read.fold.progress(ended=ended), last_event=read.to)
            self._reads[job_id] = read
            while len(self._reads) > _MOST_READS:
                del self._reads[next(iter(self._reads))]
        if ended and found.summary is None:
            return replace(found, summary=job_outcome.printed(folder.out))
        return found

    def follow(
        self, job_id: str, *, after: int = 0, quiet_s: float | None = None
    ) -> AsyncIterator[tuple[int, Event]]:
        """The job's events after one that was seen, with their ids, until it has ended: see `Tails`."""
        events = JobFolder(Path(self.get(job_id).folder)).events
        return self._tails.follow(
            events, after=after, ended=lambda: self.get(job_id).state not in LIVE, quiet_s=quiet_s
        )

    def stop_watching(self) -> None:
        """End what everybody follows, whether or not the jobs have ended; they go on."""
        self._tails.close()

    def _start(
        self,
        kind: Kind,
        settings: Settings,
        *,
        title: str,
        host: str | None,
        by: str,
        more: Mapping[str, Any] | None = None,
    ) -> Job:
        job_id = new_job_id()
        logins = full_addresses(settings)
        params = {
            **(more or {}),
            "host": host,
            "settings": kept_settings(settings),
            "logins": sorted(logins),
            "cwd": _where(),
        }
        job = Job(
            job_id=job_id,
            kind=kind,
            title=title,
            experiment=settings.experiment,
            params=params,
            folder=str(self._folder / job_id),
            by=by,
            created_ms=now_ms(),
        )
        arguments = _arguments(job, settings)  # where a value cannot be passed on, there is to be no job
        self._logins |= _by_stored(logins)
        with self._alone():
            self._refuse_busy(job, wait=settings.wait)
            with JobFolder(Path(job.folder)).claimed() as lock:
                JobFolder(Path(job.folder)).prepare(_heading(f"started by {by}"))
                self._rows.add(job)
                return self._launch(job, settings, arguments, lock=lock)

    def _queued_again(self, job: Job) -> bool:
        return self._rows.change(
            job.job_id,
            RESUMABLE,
            revision=job.revision,
            state="queued",
            pid=None,
            pid_started=None,
            exit_code=None,
            started_ms=now_ms(),
            ended_ms=None,
        )

    def _launch(self, job: Job, settings: Settings, arguments: Sequence[str], *, lock: int) -> Job:
        """Start the process of a job that is queued, and hand it the job's lock."""
        folder = JobFolder(Path(job.folder))
        env = job_environment(settings, more=_MORE.get(job.kind, ()))
        try:
            process = folder.spawn(arguments, lock=lock, env=env, cwd=job.params["cwd"])
        except OSError as error:
            sentence = f"no process could be started in {job.params['cwd']} ({error.strerror})"
            with suppress(OSError):
                folder.say(sentence)
            self._rows.change(
                job.job_id, LIVE, state="failed", ended_ms=now_ms(), exit_code=Unavailable.exit_code
            )
            raise Unavailable(f"job {job.job_id}: {sentence}; resume it when that is mended") from None
        self._rows.change(
            job.job_id,
            QUEUED,
            state="running",
            pid=process.pid,
            pid_started=process.at,
            started_ms=now_ms(),
        )
        return self.get(job.job_id)

    def _refuse_busy(self, job: Job, *, wait: bool) -> None:
        """HostBusy where a job of ours, or a collection of anybody's, has what this job needs for itself."""
        if wait:
            return
        for other in self._states.live():
            if other.state in LIVE and _claim(other) == _claim(job) and other.job_id != job.job_id:
                since = _utc(other.started_ms or other.created_ms)
                raise HostBusy(
                    f"job {other.job_id} ({other.title}), started by {other.by}, has had {_claim(job)} since "
                    f"{since}; wait for it to end, or cancel it"
                )
        held = busy_lock(job.params["host"]) if job.params["host"] else None
        if held:
            raise HostBusy(held)

    def _settings_of(self, job: Job) -> Settings:
        """What the job was started with. Passwords are not stored: they must be known from elsewhere."""
        stored, known = job.params["settings"], _by_stored(full_addresses(Settings.of({}))) | self._logins
        full = {name: known.get((name, stored[name]), "") for name in job.params["logins"]}
        unknown = [name for name, address in full.items() if not address]
        if unknown:
            variables = {row.name: row.metadata["env"] for row in table()}
            raise BadInput(
                f"job {job.job_id} used {stored[unknown[0]]} with a login, and passwords are not stored; "
                f"start the service with {variables[unknown[0]]} set to the full address, or start a new job"
            )
        return restored_settings(stored, full)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Of several who would start a job, one after the other looks whether the host is free."""
        try:
            make_folder(self._folder)
            with file_lock(self._folder / "start.lock", patience_s=_PATIENCE_S) as mine:
                if not mine:
                    raise Unavailable("another job has been starting for half a minute; try again")
                yield
        except OSError as error:
            raise Unavailable(f"{self._folder} cannot be used ({error.strerror}); free the disk") from None


def _where() -> str:
    """The folder that the service runs in, which is where a job finds a suite by a relative path."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        raise Unavailable("the folder that the service was started in is gone; start it in another") from None


def _grid(settings: Settings) -> str:
    grid = make_grid(settings)
    sizes = f"{_counted(grid.prompts, 'prompt')} × {_counted(grid.scenarios, 'scenario')}"
    return f"{', '.join(settings.models)} × {sizes}"


def _counted(things: Collection[object], what: str) -> str:
    return f"{len(things)} {what}{'' if len(things) == 1 else 's'}"


def _arguments(job: Job, settings: Settings) -> list[str]:
    return job_arguments(job, settings, events=JobFolder(Path(job.folder)).events)


def _by_stored(addresses: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """Full addresses by setting and by what is stored of them: a login is for one setting and no other."""
    return {(name, without_login(address)): address for name, address in addresses.items()}


def _claim(job: Job) -> str:
    """What a job needs for itself: a host, to be the one that judges in another's name, or to simulate.

    One on Airflow needs no more than its own run.
    """
    if job.kind == "airflow":
        return run_name(job.job_id)
    if job.kind in {"gate", "sim"}:
        return "the simulation"
    host: str | None = job.params["host"]
    return host or f"{job.params['judge']} judging {job.experiment}"


def _refuse_unless(job: Job, states: Collection[State], what: str) -> None:
    if job.state not in states:
        raise CheckFailed(f"job {job.job_id} is {job.state}, so it cannot be {what}")


def _heading(what: str) -> str:
    return f"{_utc(now_ms())}: {' '.join(what.split())}"


def _utc(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
