"""Which small local model and which prompt should I ship? An answer with proof, on your own machine.

The public API: `runs(experiment)` reads what a collection recorded.
"""

from tipbench.workflows.browse import runs

__all__ = ["runs"]
