"""The models an engine offers: names as Ollama reads them, digests, what `/api/tags` and `/api/show` say."""

from __future__ import annotations

import hashlib
import math
import re
import threading
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tipbench.engine.embedded.gguf_header import GgufHeader, read_header
from tipbench.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"([a-z0-9][\w.-]{0,79}/)?[a-z0-9][\w.-]{0,79}(:[a-z0-9_][\w.-]{0,79})?", re.IGNORECASE)
_SHORT_ARRAY = 5
Stamp = tuple[Path, int, int]
_ALL = 1 << 62


def is_name(name: str) -> bool:
    """Whether Ollama would take it for a model's name: `name`, `name:tag` or `owner/name:tag`."""
    return _NAME.fullmatch(name) is not None


def full_name(name: str) -> str:
    """The name with its tag, without the parts that go without saying."""
    short = name.strip().removeprefix("registry.ollama.ai/").removeprefix("library/")
    return short if ":" in short.rpartition("/")[2] else f"{short}:latest"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A model as its file is right now; the stamp changes when the file does."""

    name: str
    path: Path
    header: GgufHeader
    size: int
    modified_ns: int

    @property
    def stamp(self) -> Stamp:
        return self.path, self.size, self.modified_ns

    @property
    def details(self) -> dict[str, Any]:
        return {
            "parent_model": "",
            "format": "gguf",
            "family": self.header.architecture,
            "families": [self.header.architecture],
            "parameter_size": human_count(self.header.parameters),
            "quantization_level": self.header.quantization,
        }

    @property
    def modified_at(self) -> str:
        return datetime.fromtimestamp(self.modified_ns / 1e9, tz=timezone.utc).isoformat()


class Catalog:
    """Looks files up anew for every call, so that one that was replaced or removed is seen as it is."""

    def __init__(self, models: Mapping[str, Path]) -> None:
        self._paths = {full_name(name): path for name, path in models.items()}
        if len({name.lower() for name in self._paths}) < len(models):
            raise BadInput(f"two models have one name among {', '.join(sorted(models))}; rename one of them")
        self._headers: dict[Stamp, GgufHeader] = {}
        self._digests: dict[Stamp, str] = {}
        self._hashing = threading.Lock()

    def find(self, name: str) -> Entry | None:
        """The model of that name in any case, None where there is none; BadInput for a damaged file."""
        wanted = full_name(name).lower()
        found = next((known for known in self._paths if known.lower() == wanted), None)
        return None if found is None else self._entry(found)

    def entries(self) -> list[Entry]:
        """Every model whose file is there and whole, newest first."""
        found = []
        for name in self._paths:
            try:
                entry = self._entry(name)
            except BadInput:
                continue
            found += [entry] if entry else []
        return sorted(found, key=lambda entry: entry.modified_ns, reverse=True)

    def digest(self, entry: Entry) -> str:
        """The SHA-256 of the file, worked out once for each state of it. Takes a while for a large one."""
        with self._hashing:
            known = self._digests.get(entry.stamp)
            if known is None:
                known = _sha256(entry.path)
                if _stamp(entry.path) == entry.stamp:
                    self._digests[entry.stamp] = known
            return known

    def _entry(self, name: str) -> Entry | None:
        stamp = _stamp(self._paths[name])
        if stamp is None:
            return None
        if stamp not in self._headers:
            self._headers[stamp] = read_header(stamp[0])
        path, size, modified_ns = stamp
        return Entry(name=name, path=path, header=self._headers[stamp], size=size, modified_ns=modified_ns)


def _stamp(path: Path) -> Stamp | None:
    try:
        state = path.stat()
    except OSError:
        return None
    return path, state.st_size, state.st_mtime_ns


def tag(entry: Entry, *, digest: str) -> dict[str, Any]:
    """A model as `/api/tags` lists it."""
    return {
        "name": entry.name,
        "model": entry.name,
        "modified_at": entry.modified_at,
        "size": entry.size,
        "digest": digest,
        "details": entry.details,
    }


def show(entry: Entry, *, verbose: bool) -> dict[str, Any]:
    """A model as `/api/show` tells it; `verbose` keeps the long arrays of its header."""
    header = read_header(entry.path, longest_array=_ALL) if verbose else entry.header
    licence = header.keys.get("general.license")
    return {
        "license": licence if isinstance(licence, str) else "",
        "modelfile": f"FROM {entry.path}\n",
        "parameters": "",
        "template": str(header.keys.get("tokenizer.chat_template") or ""),
        "details": entry.details,
        "model_info": _model_info(header, verbose=verbose),
        "tensors": [
            {"name": tensor.name, "type": tensor.kind_name, "shape": list(tensor.shape)}
            for tensor in header.tensors
        ],
        "capabilities": ["completion"],
        "modified_at": entry.modified_at,
    }


def human_count(count: int) -> str:
    """A number of parameters as Ollama writes it: 134.52M, 3.2B."""
    for unit, size, decimals in (("B", 10**9, 1), ("M", 10**6, 2), ("K", 10**3, 0)):
        if count >= size:
            number = count / size
            return f"{number:.0f}{unit}" if number.is_integer() else f"{number:.{decimals}f}{unit}"
    return str(count)


def _model_info(header: GgufHeader, *, verbose: bool) -> dict[str, Any]:
    told = {"general.name", "tokenizer.chat_template"}
    info = {key: _as_json(value, verbose=verbose) for key, value in header.keys.items() if key not in told}
    return {**info, "general.parameter_count": header.parameters}


def _as_json(value: Any, *, verbose: bool) -> Any:  # noqa: ANN401 - whatever a header may hold
    """JSON knows no infinities, and Ollama leaves long arrays out unless asked for them."""
    if isinstance(value, list):
        long = len(value) > _SHORT_ARRAY and not verbose
        return None if long else [_as_json(each, verbose=verbose) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(1 << 20))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
    return digest.hexdigest()
