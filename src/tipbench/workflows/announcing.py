"""Telling the configured address that a batch is ready: after a collection, and after the batch before."""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING

from tipbench.errors import TipbenchError
from tipbench.workflows.dag_following import waits_for_judge
from tipbench.workflows.recording import synced_ledger
from tipbench.workflows.service_state import COLLECTIONS, now_ms
from tipbench.workflows.webhooks import announce

if TYPE_CHECKING:
    from collections.abc import Collection

    from tipbench.settings import Settings
    from tipbench.store import Delivery, Job
    from tipbench.workflows.service_state import Service
    from tipbench.workflows.webhooks import Hook

# A batch that nobody brings back within this time is anybody's again, so its news is stale.
_FRESH_MS = 7 * 24 * 3600 * 1000
# Batches may come in by other ways than this service, which nobody tells it of.
_LOOK_AGAIN_S = 30.0
_log = logging.getLogger(__name__)


class Announcer:
    """Looks now and then at the newest collection of each experiment, and at what was announced of it.

    One batch is out at a time: the next follows when it is in, until nothing is left to judge.
    """

    def __init__(self, service: Service, hook: Hook) -> None:
        self._service = service
        self._hook = hook
        self._over: set[str] = set()
        self._looked: dict[str, tuple[int, float]] = {}

    def look(self) -> int:
        """Announce what has become ready since; how many batches that were."""
        return sum(self._announced(job) for job in self._ready())

    def _ready(self) -> Collection[Job]:
        newest: dict[str, Job] = {}
        for job in self._service.jobs.page(limit=50):
            if _has_ended(job) or self._waits(job):
                newest.setdefault(job.experiment, job)
        return newest.values()

    def _waits(self, job: Job) -> bool:
        """Whether it is a run on Airflow that waits for the judge, and so will not end before."""
        if job.kind != "airflow" or job.state != "running":
            return False
        return waits_for_judge(self._service.jobs.progress(job.job_id).summary or {})

    def _announced(self, job: Job) -> bool:
        """What is wrong with one experiment keeps no other one from being announced."""
        try:
            return self._next(job)
        except TipbenchError as error:
            _log.warning("no batch of %s is announced: %s", job.experiment, error)
            return False

    def _next(self, job: Job) -> bool:
        # A job that was resumed ends once more, with more to judge.
        occasion = f"{job.job_id}.{job.ended_ms}"
        if occasion in self._over or not self._is_time(occasion):
            return False
        settings = self._service.judging_settings(job.experiment)
        key, last = self._first_free(occasion)
        if last is not None and not _is_in(settings, last):
            return False
        made = announce(self._service.store, self._hook, settings, key=key, now_ms=now_ms())
        if not made:
            self._over.add(occasion)
        return made

    def _is_time(self, occasion: str) -> bool:
        """At once where something was applied here since, else every half minute."""
        now = self._service.applications, time.monotonic()
        before = self._looked.get(occasion)
        if before is not None and before[0] == now[0] and now[1] - before[1] < _LOOK_AGAIN_S:
            return False
        self._looked[occasion] = now
        return True

    def _first_free(self, occasion: str) -> tuple[str, Delivery | None]:
        """The key for the next batch of an occasion, and the message about the one before."""
        key, last, number = occasion, None, 1
        while (found := self._service.store.deliveries.get(key)) is not None:
            number += 1
            key, last = f"{occasion}.{number}", found
        return key, last


def _is_in(settings: Settings, sent: Delivery) -> bool:
    """Whether the batch came back with verdicts, or is closed. Otherwise no further batch is announced."""
    batch = synced_ledger(settings).batch(str(json.loads(sent.body)["batch"]))
    return batch.is_closed or any(one.verdicts for one in batch.applications)


def _has_ended(job: Job) -> bool:
    fresh = now_ms() - (job.ended_ms or 0) < _FRESH_MS
    return job.kind in COLLECTIONS and job.state in {"done", "failed"} and fresh
