"""Ctrl-C while a command still starts: the second in which MLflow is imported."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

STARTED = """
import os, signal, sys
from importlib.abc import MetaPathFinder

MODULE = sys.argv.pop()

class CtrlC(MetaPathFinder):
    comes = True

    def find_spec(self, name, path=None, target=None):
        if name == MODULE and self.comes:
            self.comes = False
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, CtrlC())
from tipbench.cli import main
sys.argv += ["ship", "--history"]
sys.exit(main())
"""


@pytest.mark.parametrize(
    "module", ["mlflow", "mlflow.version", "mlflow.entities.span", "mlflow.utils.rest_utils"]
)
def test_ctrl_c_while_mlflow_is_imported_is_one_sentence(fresh_home: Path, module: str) -> None:
    """Exit code 130, wherever in it the interrupt comes; half of MLflow is not imported once more."""
    done = subprocess.run(
        [sys.executable, "-c", STARTED, module], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.strip()) == (130, "tipbench: interrupted")
