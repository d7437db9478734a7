"""Measure every statistical claim of the docs. Prints one table: claim, bar, measured, cells that fail.

`python benchmarks/truth/truth.py --boards 100` takes minutes; the table in the docs has 2,000 boards a cell.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from claims import table
from gate_and_race import gate_and_race_cells
from measured_boards import all_cells

if TYPE_CHECKING:
    from claims import AnyCell, Sums

SEEDS = (20261119, 20261120, 20261121)


def main() -> None:
    given = _arguments()
    cells = [
        cell for cell in (*all_cells(), *gate_and_race_cells()) if not given.only or cell.family in given.only
    ]
    found = measure_all(cells, boards=given.boards, seeds=given.seed or SEEDS, processes=given.processes)
    print(table(found, every_cell=given.cells))
    if given.out:
        plain = {str(cell): dict(sums) for cell, sums in found.items()}
        given.out.write_text(json.dumps(plain, indent=1, ensure_ascii=False) + "\n")


def measure_all(
    cells: list[AnyCell], *, boards: int, seeds: tuple[int, ...], processes: int
) -> dict[AnyCell, Sums]:
    """The sums of each cell over all seeds, `boards` in all. Progress goes to standard error."""
    share = [boards // len(seeds) + (at < boards % len(seeds)) for at in range(len(seeds))]
    found: dict[AnyCell, Sums] = {}
    started = time.monotonic()
    with ProcessPoolExecutor(processes) as pool:
        waiting = [
            (
                cell,
                [pool.submit(cell.measure, boards=n, seed=s) for n, s in zip(share, seeds, strict=True) if n],
            )
            for cell in cells
        ]
        for done, (cell, parts) in enumerate(waiting, start=1):
            found[cell] = _added([part.result() for part in parts])
            left = (time.monotonic() - started) / done * (len(cells) - done)
            print(f"\r{done} of {len(cells)} cells, {left / 60:.0f} min left ", end="", file=sys.stderr)
    print(file=sys.stderr)
    return found


def _added(parts: list[dict[str, float]]) -> Sums:
    names = {name for part in parts for name in part}
    return defaultdict(float, {name: sum(part.get(name, 0.0) for part in parts) for name in names})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--boards", type=int, default=2000, help="boards a cell, over all seeds (2000)")
    parser.add_argument("--seed", type=int, action="append", help="a seed; may be repeated")
    parser.add_argument("--processes", type=int, default=2, help="how many run at once (2)")
    parser.add_argument("--only", action="append", help="a family of boards, such as own or clusters")
    parser.add_argument("--cells", action="store_true", help="print every cell, not only those that fail")
    parser.add_argument("--out", type=Path, help="also write the sums to this file, as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
