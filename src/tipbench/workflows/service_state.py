"""What the service's handlers share: its configuration, its store, its jobs, and reports kept while they
stand.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tipbench.bandit.policies import NAMES
from tipbench.errors import BadInput, BadSetting
from tipbench.settings import SHADOW_POLICIES, Settings, home, normal_url, shadow_policies
from tipbench.store import Store
from tipbench.text import without_login
from tipbench.workflows import canary_keeper
from tipbench.workflows.access import Access, is_local_request, is_loopback_name
from tipbench.workflows.airflow_address import airflow_url
from tipbench.workflows.comparing import compare
from tipbench.workflows.dag_conf import asked_of
from tipbench.workflows.jobs import Jobs
from tipbench.workflows.recording import the_ledger
from tipbench.workflows.remembered_suite import is_of_suite, is_remembered
from tipbench.workflows.tip_desk import TipDesk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tipbench.compare.report import Report
    from tipbench.settings import ShadowPolicy
    from tipbench.workflows.access import Principal
    from tipbench.workflows.dag_conf import Asked

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8700
# The kinds of job that fill an experiment.
COLLECTIONS = frozenset({"collect", "airflow"})
_REPORTS_KEPT = 16
_JOBS_LOOKED_AT = 200
_ON_THIS_MACHINE = re.compile(
    r"https?://([\w.~%!$&'()*+,;=:-]*@)?(localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\])(:[0-9]{1,5})?(/[\w.~%/-]*)?",
    re.ASCII | re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class ServiceConfig:
    """How the service was started. Lists of addresses beyond the machine's own are spelled out by the
    person.

    `require_token` closes the serving routes to requests without a token. `behind_proxy` is true if the
    environment names the addresses of proxies.
    """

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    settings: Settings = field(default_factory=lambda: Settings.of({}))
    ollama_urls: tuple[str, ...] = ()
    mlflow_urls: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    webhook_url: str = ""
    webhook_secret: str = field(default="", repr=False)
    airflow_url: str = ""
    require_token: bool = False
    behind_proxy: bool = field(default_factory=lambda: "FORWARDED_ALLOW_IPS" in os.environ)
    shadows: Mapping[str, ShadowPolicy] = field(default_factory=lambda: dict(SHADOW_POLICIES))

    @classmethod
    def from_environment(
        cls,
        *,
        host: str,
        port: int,
        settings: Settings,
        shadows: Sequence[str] = (),
        require_token: bool = False,
    ) -> ServiceConfig:
        """The configuration in the environment, with these options. `shadows` are switched on as well."""
        hook = os.environ.get("TIPBENCH_WEBHOOK_URL", ""), os.environ.get("TIPBENCH_WEBHOOK_SECRET", "")
        check_hook(*hook)
        return cls(
            shadows=shadow_policies(known=NAMES, enable=shadows),
            host=host,
            port=port,
            settings=settings,
            ollama_urls=tuple(normal_url(one) for one in _listed("TIPBENCH_OLLAMA_URLS")),
            mlflow_urls=tuple(one.rstrip("/") for one in _listed("TIPBENCH_MLFLOW_URLS")),
            allowed_hosts=tuple(one.lower() for one in _listed("TIPBENCH_ALLOWED_HOSTS")),
            airflow_url=airflow_url(),
            webhook_url=hook[0],
            webhook_secret=hook[1],
            require_token=require_token,
        )

    @property
    def known_as(self) -> frozenset[str]:
        """The names that a request may call this service by."""
        own = {"localhost", "127.0.0.1", "::1", self.host.lower().strip("[]")}
        return frozenset(own | set(self.allowed_hosts)) - {"0.0.0.0", "::"}  # noqa: S104 - names nobody

    @cached_property
    def serves_without_token(self) -> bool:
        """Whether the serving routes answer requests of this machine without a token."""
        closed = self.require_token or self.behind_proxy or is_exposed(self.host)
        return not closed and all(map(is_loopback_name, self.allowed_hosts))


def check_hook(url: str, secret: str) -> None:
    """Refuse what would silently announce nothing."""
    if url and not re.fullmatch(r"https?://[^\s/?#\\]+([/?]\S*)?", url):
        raise BadInput("TIPBENCH_WEBHOOK_URL is no address such as https://example.org/hook; correct it")
    if url and not secret:
        raise BadInput("TIPBENCH_WEBHOOK_URL needs a TIPBENCH_WEBHOOK_SECRET to sign with; set both or none")


def on_this_machine(url: str) -> bool:
    """Whether an address is surely one of this machine's own.

    Programs read an odd address differently (a backslash ends the host's name for some of them), so only
    what leaves no room for that is let through.
    """
    return _ON_THIS_MACHINE.fullmatch(url) is not None


def _not_listed(url: str) -> str:
    return f"{without_login(url)} is not on the list of hosts of this service; add it to TIPBENCH_OLLAMA_URLS"


def is_exposed(host: str) -> bool:
    """Whether a service that listens there can be reached from other machines."""
    return host.lower() not in {"localhost", "127.0.0.1", "::1"}


def _listed(name: str) -> list[str]:
    return [part.strip() for part in os.environ.get(name, "").split(",") if part.strip()]


class Service:
    """One running service. Handlers ask it; it asks the workflows."""

    def __init__(self, config: ServiceConfig, *, folder: Path | None = None) -> None:
        place = folder or home()
        self.config = config
        self.store = Store(place / "service.db")
        self.access = Access(
            tokens=self.store.tokens,
            attempts=self.store.attempts,
            ended=self.store.seen,
            key=self.store.secrets.get("session"),
        )
        self.jobs = Jobs(self.store.jobs, folder=place / "jobs", own=config.settings)
        self.desk = TipDesk(
            config.settings,
            shadows=config.shadows,
            folder=place,
            audit=lambda now: canary_keeper.audited(self.store, now),
        )
        self._reports: OrderedDict[tuple[Any, ...], Report] = OrderedDict()
        self._lock = threading.Lock()
        self.applications = 0

    def close(self) -> None:
        """End what serves tips, and let go of the files."""
        self.desk.stop()
        self.store.close()

    def needs_token(self, scope: Mapping[str, Any]) -> bool:
        """Whether a request to a serving route needs a token, by its ASGI scope."""
        return not (self.config.serves_without_token and is_local_request(scope))

    def settings(self, values: Mapping[str, Any] | None = None) -> Settings:
        """The service's own settings with these in their place; a BadSetting for an address it must not
        reach.
        """
        own = self.config.settings
        given = {name: value for name, value in (values or {}).items() if value is not None}
        names = ("ollama_url", "mlflow_url", "mlflow_host_header", "engine", "suite")
        usual = {name: getattr(own, name) for name in names}
        for name in ("ollama_url", "mlflow_url"):
            if given.get(name) == without_login(usual[name]):  # pages show the address without its login
                given[name] = usual[name]
        settings = Settings.of({**usual, "gguf": list(own.gguf), **given})
        self._check_ollama(settings.ollama_url)
        self._check_mlflow(settings.mlflow_url)
        return settings

    def asked_of_airflow(self, hosts: object, wait_for_judge: object) -> Asked:
        """What a run on Airflow is told beyond the settings; its hosts must be ones that may be reached."""
        asked = asked_of(hosts, wait_for_judge)
        known = {without_login(url) for url in (self.config.settings.ollama_url, *self.config.ollama_urls)}
        for url in asked.hosts:
            if url not in known and not on_this_machine(url):
                raise BadSetting("hosts", _not_listed(url))
        return asked

    def came_in(self) -> None:
        """Note that a batch was applied: there may be another one to announce."""
        with self._lock:
            self.applications += 1

    def judging_settings(self, experiment: str) -> Settings:
        """The settings to judge an experiment with. `suite` is empty where the experiment remembers it.

        Of an experiment of an earlier version it is the one that the latest job collected. Where an
        experiment remembers too little of its suite, it is the service's own, if that is the same suite.
        """
        settings = self.settings({"experiment": experiment})
        ledger = the_ledger(settings)
        pin = ledger.pinned(experiment)
        if pin is not None and pin.places:
            own = settings.suite if settings.suite != Settings.suite else ""
            if own and is_of_suite(own, pin) and not is_remembered(ledger, experiment, pin):
                return settings
            return replace(settings, suite="")
        suites = [
            job.params.get("settings", {}).get("suite")
            for job in self.store.jobs.page(limit=_JOBS_LOOKED_AT)
            if job.kind in COLLECTIONS and job.experiment == experiment
        ]
        return self.settings({"experiment": experiment, "suite": suites[0] if suites else None})

    def _check_ollama(self, url: str) -> None:
        if url in {self.config.settings.ollama_url, *self.config.ollama_urls} or on_this_machine(url):
            return
        raise BadSetting("ollama_url", _not_listed(url))

    def _check_mlflow(self, url: str) -> None:
        plain = url.rstrip("/")
        if plain in {self.config.settings.mlflow_url.rstrip("/"), *self.config.mlflow_urls}:
            return
        if on_this_machine(plain):
            return
        raise BadSetting(
            "mlflow_url", "is not on the list of servers of this service; add it to TIPBENCH_MLFLOW_URLS"
        )

    def report(self, experiment: str, **options: Any) -> Report:  # noqa: ANN401 - what `compare` takes
        """The comparison of an experiment, kept for as long as the ledger says that nothing has changed."""
        settings = self.settings({"experiment": experiment})
        revision = the_ledger(settings).revision(experiment)
        key = (experiment, revision, repr(sorted(options.items())))
        with self._lock:
            if revision and key in self._reports:
                self._reports.move_to_end(key)
                return self._reports[key]
        report = compare(settings, **options)
        with self._lock:
            self._reports[key] = report
            while len(self._reports) > _REPORTS_KEPT:
                self._reports.popitem(last=False)
        return report

    def audit(
        self, principal: Principal | None, action: str, target: str = "", detail: str = "", *, ip: str = ""
    ) -> None:
        """Write down who changed what, and from where: `ip` where nobody is known. Never a token."""
        who, role = (principal.name, principal.role) if principal else ("", "")
        self.store.audit.add(
            who=who,
            role=role,
            action=action,
            target=target,
            detail=detail,
            ip=principal.ip if principal else ip,
            now_ms=now_ms(),
        )


def now_ms() -> int:
    return time.time_ns() // 1_000_000
