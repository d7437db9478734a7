"""Adding scenarios to a hand-written `scenarios.yaml` without touching what is there, comments included."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tipbench.errors import SuiteError
from tipbench.suite.files import LARGE, decoded, read_bytes
from tipbench.suite.load import layered_personas
from tipbench.suite.problems import Problems
from tipbench.suite.scenario import ScenarioFile, read_scenarios
from tipbench.suite.yamldoc import UNPRINTABLE, written

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tipbench.suite.load import Folder
    from tipbench.suite.scenario import Scenario

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_EMPTY_LIST = re.compile(r"(scenarios:)\s*\[\s*\](\s*(?:#.*)?)")

Entry = tuple["Scenario", "Mapping[str, Any]"]


def append_scenarios(folder: Folder, entries: Sequence[Entry]) -> Path:
    """Write the entries below a suite's scenarios, in one step; the new text is read back before that."""
    path = folder.path / "scenarios.yaml"
    before = read_bytes(path, limit=LARGE) if folder.has(path.name) else b""
    old = _read(decoded(before, path), folder)
    after = _with_entries(before, old, [{**values, "id": scenario.id} for scenario, values in entries], path)
    _check(old, _read(decoded(after, path), folder), [scenario for scenario, _ in entries], path)
    if len(after) > LARGE:
        raise SuiteError(path, f"would be larger than {LARGE // 1024} KiB; make a second suite")
    replace_file(path, before, after)
    return path


def _read(text: str, folder: Folder) -> ScenarioFile:
    problems = Problems()
    path = folder.path / "scenarios.yaml"
    file = read_scenarios(text, path=path, personas=layered_personas(folder), problems=problems)
    problems.raise_first()
    return file


def _check(old: ScenarioFile, new: ScenarioFile, added: Sequence[Scenario], path: Path) -> None:
    """The text that is about to be written must hold what it held and what was added, and nothing else."""
    kept = [scenario for scenario, _ in old.scenarios]
    found = [scenario for scenario, _ in new.scenarios]
    if found[: len(kept)] != kept or len(found) != len(kept) + len(added):
        raise SuiteError(path, "its layout cannot be added to; write all scenarios as '- id:' lines")
    for entry, scenario in zip(found[len(kept) :], added, strict=True):
        if entry != scenario:
            raise SuiteError(
                path, f"the values of '{scenario.id}' cannot be kept as they are; write them as text"
            )


def _with_entries(
    before: bytes, old: ScenarioFile, entries: Sequence[Mapping[str, Any]], path: Path
) -> bytes:
    text = before.decode("utf-8")
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = _LINE.findall(text)
    if lines and not lines[-1].endswith(("\n", "\r")):
        lines[-1] += newline
    at, indent, head = _place(old, lines, path)
    new = [*head, *(line for entry in entries for line in _entry(entry, " " * indent))]
    return "".join([*lines[:at], *(line + newline for line in new), *lines[at:]]).encode()


def _place(old: ScenarioFile, lines: list[str], path: Path) -> tuple[int, int, list[str]]:
    """After which line the entries go, how far they are indented, and what must stand before them."""
    items = old.items
    if items is None or (items.value is None and not _has_key(lines)):
        return len(lines), 2, ["scenarios:"]
    if items.value is None:
        return items.line, 2, []
    if items.flow:
        line = lines[items.line - 1]
        emptied = _EMPTY_LIST.sub(r"\1\2", line)
        if emptied == line:
            raise SuiteError(path, "the list in [ ] cannot be added to; write '- id:' lines", line=items.line)
        lines[items.line - 1] = emptied
        return items.line, 2, []
    return items.end, items.column, []


def _has_key(lines: Sequence[str]) -> bool:
    return any(line.lstrip("\ufeff").startswith("scenarios:") for line in lines)


def _entry(values: Mapping[str, Any], indent: str) -> Iterator[str]:
    ordered = {"id": values["id"], **values}
    for index, (name, value) in enumerate(ordered.items()):
        lines = list(_lines(name, value))
        yield f"{indent}{'- ' if index == 0 else '  '}{lines[0]}"
        yield from (f"{indent}  {line}" if line else "" for line in lines[1:])


def _lines(name: str, value: object) -> Iterator[str]:
    if isinstance(value, list) and value and not any(isinstance(item, (list, dict)) for item in value):
        yield f"{name}:"
        yield from (f"  - {written(item)}" for item in value)
    elif isinstance(value, str) and _fits_block(value):
        yield f"{name}: |-"
        yield from (f"  {line}" if line else "" for line in value.split("\n"))
    else:
        yield f"{name}: {written(value)}"


def _fits_block(text: str) -> bool:
    """Whether a text of several lines can be written as it is, below `|-`."""
    lines = text.split("\n")
    plain = all(line == line.strip() for line in lines) and not UNPRINTABLE.search(text) and "\t" not in text
    return len(lines) > 1 and bool(lines[0]) and bool(lines[-1]) and plain


def replace_file(path: Path, before: bytes, after: bytes) -> None:
    """Put the new text in the file's place in one step, unless somebody else has changed it meanwhile."""
    try:
        handle, name = tempfile.mkstemp(prefix=".scenarios-", dir=path.parent)
    except OSError as error:
        raise SuiteError(path, f"cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(after)
            file.flush()
            os.fsync(file.fileno())
        _keep_mode(path, Path(name))
        if (path.read_bytes() if path.exists() else b"") != before:
            raise SuiteError(path, "was changed by somebody else during the import; import again")
        Path(name).replace(path)
    except OSError as error:
        raise SuiteError(path, f"cannot be written: {error.strerror}") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()


def _keep_mode(path: Path, draft: Path) -> None:
    if path.exists():
        shutil.copymode(path, draft)
    else:
        draft.chmod(0o644)
