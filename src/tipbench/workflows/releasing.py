"""An admin lets a judge submit a closed batch again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tipbench.errors import Conflict
from tipbench.records import Release
from tipbench.workflows.hints import experiment_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tipbench.records import Batch, Ledger


def release_batch(ledger: Ledger, batch_id: str, *, by: str, options: Sequence[str] = ()) -> Batch:
    """Forgive the rejections of a closed batch. Its judge then has three more attempts.

    Raises Conflict for a batch that is not closed, or that another batch replaces. `options` name the ledger
    in the command that the message prints.
    """
    batch = ledger.batch(batch_id)
    if not batch.is_closed:
        status = experiment_command("judge", "status", experiment=batch.experiment, options=options)
        raise Conflict(f"batch {batch_id} is not closed; see the batches that are: {status}")
    for other in ledger.batches(batch.experiment):
        if other.replaces == batch_id:
            raise Conflict(
                f"batch {batch_id} is replaced by {other.batch_id}; its judge judges that one instead"
            )
    forgiven = tuple(one.rejection_id for one in batch.rejections)
    ledger.release(batch, Release(at_ms=time.time_ns() // 1_000_000, by=by, forgiven=forgiven))
    return batch
