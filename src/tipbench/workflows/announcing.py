"""Telling the configured address that a batch is ready, once for every collection that ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tipbench.workflows.service_state import now_ms
from tipbench.workflows.webhooks import announce

if TYPE_CHECKING:
    from tipbench.store import Job
    from tipbench.workflows.service_state import Service
    from tipbench.workflows.webhooks import Hook

# What ended longer ago than this was announced, or its news is stale.
_FRESH_MS = 24 * 3600 * 1000


class Announcer:
    """Looks at the newest jobs now and then; remembers which of them it need not look at again."""

    def __init__(self, service: Service, hook: Hook) -> None:
        self._service = service
        self._hook = hook
        self._done: set[str] = set()

    def look(self) -> int:
        """Announce what has ended since; how many batches that were."""
        return sum(self._announced(job) for job in self._service.jobs.page(limit=50) if _has_ended(job))

    def _announced(self, job: Job) -> bool:
        # A job that was resumed ends once more, with more to judge.
        key = f"{job.job_id}.{job.ended_ms}"
        if key in self._done:
            return False
        settings = self._service.settings(
            {"experiment": job.experiment, "suite": job.params.get("settings", {}).get("suite")}
        )
        made = announce(self._service.store, self._hook, settings, key=key, now_ms=now_ms())
        self._done.add(key)
        return made


def _has_ended(job: Job) -> bool:
    fresh = now_ms() - (job.ended_ms or 0) < _FRESH_MS
    return job.kind == "collect" and job.state in {"done", "failed"} and fresh
