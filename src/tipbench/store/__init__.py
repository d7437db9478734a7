"""The service's own file: tokens, the audit log, jobs, drafts, messages in and out, failed logins.

One SQLite file in tipbench's home, which commands and a running service use at the same time. Time is
handed in, in milliseconds since 1970.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tipbench.store.attempts import Attempts
from tipbench.store.audit import Audit, Entry
from tipbench.store.database import Database
from tipbench.store.deliveries import Deliveries, Delivery, DeliveryState
from tipbench.store.drafts import DraftItem, Drafts
from tipbench.store.jobs import Job, Jobs, Kind, State, new_job_id
from tipbench.store.seen import Seen
from tipbench.store.signing_keys import Secrets
from tipbench.store.tokens import KINDS, ROLES, PersonKind, Role, Token, Tokens, name_key, token_name

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

__all__ = [
    "FILE_NAME",
    "KINDS",
    "ROLES",
    "Delivery",
    "DeliveryState",
    "DraftItem",
    "Entry",
    "Job",
    "Kind",
    "PersonKind",
    "Role",
    "State",
    "Store",
    "Token",
    "name_key",
    "new_job_id",
    "token_name",
]

FILE_NAME = "service.db"


class Store:
    """The file's parts. Opened on first use; may be used by several threads and several processes at once.

    Whatever cannot be read or written is a StoreUnusable that names the file.
    """

    def __init__(self, path: Path) -> None:
        self._database = Database(path)
        self.path = self._database.path
        self.tokens = Tokens(self._database)
        self.audit = Audit(self._database)
        self.jobs = Jobs(self._database)
        self.drafts = Drafts(self._database)
        self.deliveries = Deliveries(self._database)
        self.seen = Seen(self._database)
        self.secrets = Secrets(self._database)
        self.attempts = Attempts(self._database)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file. It is opened again when it is needed."""
        self._database.close()

    def together(self) -> AbstractContextManager[object]:
        """What this thread writes within the block is kept as a whole or not at all.

        Others who write wait meanwhile, so a block does nothing slow.
        """
        return self._database.writing()
