"""`suite new`: a small suite that works, to be edited."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

from tipbench.errors import SuiteError
from tipbench.suite.load import SHIPPED, shipped_folder

_STARTER = "starter"


def new_suite(path: str | os.PathLike[str]) -> list[Path]:
    """The files of a new suite, written all or none; whatever is there already is never touched."""
    target = Path(path).expanduser()
    suite_id = _id_for(target)
    _check_free(target)
    source = shipped_folder(_STARTER).path
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{suite_id}-", dir=target.parent))
    except OSError as error:
        raise SuiteError(target, f"cannot be made: {error.strerror}") from None
    try:
        names = _write_draft(source, draft, suite_id)
        _move(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return [target / name for name in names]


def _id_for(target: Path) -> str:
    """The suite's id: the folder's name in the letters that an id may have."""
    name = Path(os.path.abspath(target)).name  # noqa: PTH100 - "." has no name, and links must stay as they are
    suite_id = re.sub(r"[^a-z0-9._-]+", "-", name.casefold()).strip("-._")[:64]
    if not suite_id:
        raise SuiteError(target, "this name makes no id; use letters or digits")
    if suite_id in SHIPPED:
        raise SuiteError(target, f"'{suite_id}' is the name of a suite that ships; choose another one")
    return suite_id


def _check_free(target: Path) -> None:
    if not os.path.lexists(target):
        return
    if os.path.realpath(target) == os.path.realpath("."):
        raise SuiteError(target, "is the folder you are in; go one up and give the new suite's name")
    if target.is_symlink() or not target.is_dir() or any(target.iterdir()):
        raise SuiteError(target, "is there already; a new suite needs a name that is free or an empty folder")


def _write_draft(source: Path, draft: Path, suite_id: str) -> list[Path]:
    names = sorted(path.relative_to(source) for path in source.rglob("*") if path.suffix in {".yaml", ".md"})
    for name in names:
        text = (source / name).read_text(encoding="utf-8").replace(f"id: {_STARTER}", f"id: {suite_id}")
        (draft / name).parent.mkdir(exist_ok=True)
        (draft / name).write_text(text, encoding="utf-8", newline="\n")
    return names


def _move(draft: Path, target: Path) -> None:
    """Put the finished draft in its place in one step; an empty folder is replaced, a filled one is not."""
    draft.chmod(0o777 & ~_umask())
    try:
        draft.rename(target)
    except OSError as error:
        raise SuiteError(target, f"cannot be made: {error.strerror}") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
