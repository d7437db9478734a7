"""Draws docs/demo.svg from what `tipbench demo` really prints: run it after a demo, so that it only reads."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 84
PICTURE = Path(__file__).parent / "demo.svg"


def main() -> None:
    terminal = {"FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "tipbench", "demo"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | terminal)  # noqa: S603
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print("[bold green]$[/] make demo")
    home = os.environ.get("TIPBENCH_HOME", "")
    console.print(Text.from_ansi(done.stdout.replace(home, "~") if home else done.stdout))
    svg = console.export_svg(title="tipbench")
    # No font from elsewhere: every reader's own fixed-width font will do.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace("<svg ", '<svg xml:space="preserve" ', 1).replace(
        "Fira Code", "ui-monospace, Menlo, Consolas"
    )
    PICTURE.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
