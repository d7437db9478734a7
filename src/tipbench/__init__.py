"""Which small local model and which prompt should I ship? An answer with proof, on your own machine.

The public API: `runs(experiment)` reads what a collection recorded; `rank(rows)` ranks anyone's scores.
"""

from tipbench.compare.leaderboard import rank
from tipbench.workflows.browse import runs

__all__ = ["rank", "runs"]
