"""How much disk it takes: an environment without the embedded engine, and one with it and its weights."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from measures import Measure
from processes import ROOT, clean_env, run

if TYPE_CHECKING:
    from measures import Options

BASE_BAR_MB, FULL_BAR_MB = 420, 640
_LARGEST = 6


def bench_install(options: Options) -> list[Measure]:
    """Two fresh environments from the pinned versions, with the bytecode that the installer makes."""
    pins = _pins_without_hashes(options.work)
    base = _site(options.work / "base", str(ROOT), pins)
    full = _site(options.work / "full", f"{ROOT}[embedded]", pins)
    python = options.work / "full" / "bin" / "python"
    # The new environment has no pip, so the weights come by way of the uv that is beside our own Python.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run(
        [str(python), "-m", "tipbench", "engine", "pull"],
        env=clean_env(options.work / "pull") | {"PATH": path},
    )
    return [
        Measure(what="base install", value=_mb(base), unit="MB", bar=BASE_BAR_MB),
        Measure(what="with engine and weights", value=_mb(full), unit="MB", bar=FULL_BAR_MB),
        Measure(what="base install, in whole disk blocks", value=_blocks_mb(base), unit="MB"),
        Measure(what="with engine and weights, in whole disk blocks", value=_blocks_mb(full), unit="MB"),
        Measure(what="base install, bytecode", value=_mb(base, "*.pyc"), unit="MB"),
        Measure(what="base install, files", value=len(_files(base)), unit=""),
        *_parts(full),
    ]


def _pins_without_hashes(work: Path) -> Path:
    """The package itself has no hash, and an installer asks for all hashes or none."""
    text = (ROOT / "requirements" / "run.txt").read_text()
    pins = work / "pins.txt"
    pins.write_text(re.sub(r"\\?\s*--hash=\S+", "", text))
    return pins


def _site(folder: Path, what: str, pins: Path) -> Path:
    """The folder of an environment's packages. It has no pip of its own: ours installs into it."""
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--disable-pip-version-check"]
    run([*pip, "--quiet", "--constraint", str(pins), what])
    return next(folder.glob("lib/python*/site-packages"))


def _files(folder: Path, pattern: str = "*") -> list[Path]:
    return [path for path in folder.rglob(pattern) if path.is_file() and not path.is_symlink()]


def _mb(folder: Path, pattern: str = "*") -> float:
    return sum(path.stat().st_size for path in _files(folder, pattern)) / 1e6


def _blocks_mb(folder: Path) -> float:
    return sum(path.stat().st_blocks for path in _files(folder)) * 512 / 1e6


def _parts(site: Path) -> list[Measure]:
    sizes = {folder.name: _mb(folder) for folder in site.iterdir() if folder.is_dir()}
    largest = sorted(sizes, key=lambda name: -sizes[name])[:_LARGEST]
    return [Measure(what=f"  of it {name}", value=sizes[name], unit="MB") for name in largest]
