"""Gates on this disk: what was planned, written before anything is simulated, and what came of it.

    gates/plans/KEY-NUMBER.json   the plan of the NUMBER-th gate against one champion in one world
    gates/GATE_ID.json            plan and verdict; the id is a hash of the content

A plan is there before its seeds have been looked at, and stays when the gate is broken off: it counts as
tried.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from tipbench.errors import BadInput, NotFound, StateUnusable
from tipbench.private import make_folder, opener
from tipbench.records import content_hash
from tipbench.settings import home
from tipbench.workflows.whole_files import write_whole

if TYPE_CHECKING:
    from pathlib import Path

    from tipbench.sim.gate import GatePlan

_ID = re.compile(r"[0-9a-f]{16}")


def the_folder() -> Path:
    return home() / "gates"


def register(plan: GatePlan, folder: Path) -> GatePlan:
    """The plan under the next free number, which no other has, and with seeds that nobody can have seen; on
    disk before it is returned.
    """
    plans = folder / "plans"
    _made(plans)
    key = plan_key(plan)
    found = (re.fullmatch(rf"{key}-([0-9]{{1,9}})\.json", path.name) for path in plans.iterdir())
    number = max((int(match[1]) for match in found if match), default=0) + 1
    while True:
        numbered = replace(plan, number=number, salt=secrets.token_hex(16))
        if _claimed(plans / f"{key}-{number}.json", asdict(numbered)):
            return numbered
        number += 1


def plan_key(plan: GatePlan) -> str:
    """What gates are counted by: the champion and the world."""
    return content_hash([plan.champion, plan.champion_version, plan.world_hash])[:12]


def keep(record: dict[str, Any], folder: Path) -> str:
    """Keep what came of a gate; its id, by which it is found again and cannot be changed unnoticed."""
    gate_id = content_hash(record)[:16]
    _made(folder)
    try:
        text = json.dumps(record, ensure_ascii=False, indent=1) + "\n"
        write_whole(folder / f"{gate_id}.json", text)
        _settled(folder)
    except OSError as error:
        raise StateUnusable(f"the gate cannot be kept in {folder} ({error.strerror})") from None
    return gate_id


def kept(gate_id: str, folder: Path) -> dict[str, Any]:
    """A gate by its id. One whose content does not match the id was changed, and is an error."""
    if not _ID.fullmatch(gate_id):
        raise BadInput(f"{gate_id!r} is not a gate's id: it has 16 characters from 0-9 and a-f")
    path = folder / f"{gate_id}.json"
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFound(f"there is no gate {gate_id} in {folder}; run tipbench sim gate --record") from None
    except (OSError, ValueError) as error:
        raise StateUnusable(f"{path} cannot be read ({error}); run the gate again") from None
    if not isinstance(record, dict) or content_hash(record)[:16] != gate_id:
        raise StateUnusable(f"{path} is not what was written there; run the gate again")
    return record


def newest(folder: Path, *, limit: int) -> list[str]:
    """The ids of the gates that were written last, the newest first."""
    try:
        with os.scandir(folder) as entries:
            gates = [one for one in entries if one.name.endswith(".json") and _ID.fullmatch(one.name[:-5])]
            found = [(one.stat().st_mtime, one.name[:-5]) for one in gates]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StateUnusable(f"{folder} cannot be read ({error.strerror})") from None
    return [gate_id for _, gate_id in sorted(found, reverse=True)[:limit]]


def _claimed(path: Path, plan: dict[str, Any]) -> bool:
    """Whether the file was made by us, whole and on disk; False where it is somebody else's already."""
    try:
        place = opener(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        return False
    except OSError as error:
        raise StateUnusable(f"the plan cannot be written to {path} ({error.strerror})") from None
    with os.fdopen(place, "w", encoding="utf-8") as file:
        json.dump(plan, file, ensure_ascii=False, indent=1)
        file.flush()
        os.fsync(file.fileno())
    _settled(path.parent)
    return True


def _made(folder: Path) -> None:
    try:
        make_folder(folder)
    except OSError as error:
        raise StateUnusable(f"{folder} cannot be made ({error.strerror})") from None


def _settled(folder: Path) -> None:
    """Have the folder itself on disk: a new file's name is kept there."""
    place = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)
