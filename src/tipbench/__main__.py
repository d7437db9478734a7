"""`python -m tipbench`, the same as the command `tipbench`."""

from tipbench.cli import main

main()
