"""Where cells and verdicts are recorded: MLflow, a crash-safe spool in front of it, a read cache behind it.

address       what people write for a ledger, and the part of it that may be shown
mlflow_store  MLflow in plain values, the one file that imports it
mlflow_ledger one run per cell, exactly once; shape, pins and chunks say how it looks there
batches       one run per batch, and what was applied to it
registry      MLflow's registries: prompts, and models with versions and aliases
shipments     one model version per shipping; an alias says which is in force
suites        one run for each text of the suite that an experiment was collected with
notes         one run for each thing else that is worth keeping: simulations, gates
words         how readers learn that something was written
memory        the same without MLflow
spool         results that are not recorded yet
writer        from the spool into the ledgers
cache         what was read, until its revision changes
"""

from tipbench.ledger.address import public_uri
from tipbench.ledger.memory import MemoryLedger
from tipbench.ledger.mlflow_ledger import MlflowLedger, open_ledger
from tipbench.ledger.notes import Note
from tipbench.ledger.pins import merge_pins
from tipbench.ledger.spool import Spool, Waiting
from tipbench.ledger.writer import Drained, DrainReport, drain, follow, lock_of, lock_unusable

__all__ = [
    "DrainReport",
    "Drained",
    "MemoryLedger",
    "MlflowLedger",
    "Note",
    "Spool",
    "Waiting",
    "drain",
    "follow",
    "lock_of",
    "lock_unusable",
    "merge_pins",
    "open_ledger",
    "public_uri",
]
