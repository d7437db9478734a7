"""Reading a suite's files: plain, bounded, UTF-8 text, the same on every platform."""

from __future__ import annotations

import re
import stat
from typing import TYPE_CHECKING

from tipbench.errors import SuiteError

if TYPE_CHECKING:
    from pathlib import Path

SMALL = 256 * 1024
LARGE = 8 * 1024 * 1024

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def read_text(path: Path, *, limit: int = SMALL, links: bool = False) -> str:
    r"""The file's text without a byte order mark and with `\\n` line ends; a SuiteError where there is none.

    A suite is self-contained, so a link is refused unless `links` (an installed package may be made of them).
    """
    return decoded(read_bytes(path, limit=limit, links=links), path)


def read_bytes(path: Path, *, limit: int, links: bool = False) -> bytes:
    """The bytes of a regular file of at most `limit` bytes."""
    try:
        mode = (path.stat() if links else path.lstat()).st_mode
        _check_kind(path, mode)
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        raise SuiteError(path, "there is no such file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SuiteError(path, f"cannot be read: {reason}") from None
    if len(data) > limit:
        raise SuiteError(path, f"is larger than the {limit // 1024} KiB that such a file may have")
    return data


def decoded(data: bytes, path: Path) -> str:
    r"""UTF-8 text with `\\n` line ends; a SuiteError names the line of the first byte that is not."""
    if data.startswith(_UTF16):
        raise SuiteError(path, "is saved as UTF-16; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SuiteError(path, _not_utf8(data, error.start), line=_line_of(data, error.start)) from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    control = _CONTROL.search(text)
    if control:
        line = text.count("\n", 0, control.start()) + 1
        raise SuiteError(
            path, f"holds the control character U+{ord(control.group()):04X}; remove it", line=line
        )
    return text


def _check_kind(path: Path, mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise SuiteError(path, "is a link; a suite holds its own files, so put a copy here")
    if stat.S_ISDIR(mode):
        raise SuiteError(path, "is a folder where a file is expected")
    if not stat.S_ISREG(mode):
        raise SuiteError(path, "is not a regular file")


def _not_utf8(data: bytes, at: int) -> str:
    return f"is not UTF-8 (byte 0x{data[at]:02X}), perhaps Latin-1 or Windows-1252; save it as UTF-8"


def _line_of(data: bytes, at: int) -> int:
    before = data[:at].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return before.count(b"\n") + 1
