"""Worlds in files: those that ship, a person's own, and every mistake with its line."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sim_samples import OWN_WORLD, world_file
from tipbench.errors import NotFound, SuiteError
from tipbench.sim.world_file import SHIPPED, load_world

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", SHIPPED)
def test_worlds_that_ship_can_be_read(name: str) -> None:
    """Every world that ships is whole, and has the four personas of the suite at two times each."""
    world = load_world(name)
    assert [persona.id for persona in world.personas] == ["maya", "jonas", "priya", "carl"]
    assert {len(persona.slots) for persona in world.personas} == {2}
    assert all(slot.tasks for persona in world.personas for slot in persona.slots)


def test_what_a_world_does_not_say_is_taken_from_the_one_it_extends() -> None:
    """`drift` and `null` are `tip` but for what they say themselves."""
    tip, drift, null = (load_world(name) for name in ("tip", "drift", "null"))
    assert replace(drift, id=tip.id, title=tip.title, drift=tip.drift) == tip
    assert replace(null, id=tip.id, title=tip.title, same_for_all=None) == tip
    assert len({tip.hash, drift.hash, null.hash}) == 3


def test_a_world_of_ones_own(tmp_path: Path) -> None:
    """A person's file is read as it is written, and what is left out has a plain default."""
    world = load_world(world_file(tmp_path))
    ann, ben = world.personas
    assert (world.id, world.candidates, world.missing, world.delay) == ("own", 2, 0.0, (1.0,))
    assert (ann.likes, ann.slots[0].tasks) == ({"focus": 1.0}, ("write the report", "call the bank"))
    assert (ben.share, ben.slots[0].likes, world.profile.share) == (2.0, {"rest": 1.5}, 0.0)
    assert world.tips[0] == ("focus", "Write the report for 20 minutes.")


def test_the_hash_is_of_the_content(tmp_path: Path) -> None:
    """Comments, a title and the file's name do not change what a world is; a number does."""
    same = world_file(tmp_path, "# mine\n" + OWN_WORLD.replace("Two people", "Ann and Ben"), name="b.yaml")
    other = world_file(tmp_path, OWN_WORLD.replace("taste: 0.3", "taste: 0.4"), name="c.yaml")
    own = load_world(world_file(tmp_path)).hash
    assert load_world(same).hash == own
    assert load_world(other).hash != own


def test_a_file_beside_it_can_be_extended(tmp_path: Path) -> None:
    """`extends` finds a file in the same folder, whatever the working folder is."""
    world_file(tmp_path)
    world = load_world(world_file(tmp_path, "extends: own.yaml\ntaste: 2\n", name="more.yaml"))
    assert (world.taste, world.intercept) == (2.0, -0.5)


MISTAKES = {
    "misspelt key": ("taste: 0.3", "tast: 0.3", 4, "unknown key 'tast'; did you mean 'taste'?"),
    "not a number": ("taste: 0.3", "taste: much", 4, "'taste' must be a number"),
    "out of bounds": ("taste: 0.3", "missing: 1.5", 4, "'missing' must be from 0 to 0.99, not 1.5"),
    "unknown kind": (
        "{focus: 1}",
        "{focsu: 1}",
        8,
        "'focsu' is not a kind of tip here; did you mean 'focus'?",
    ),
    "no hour": ("hour: 9", "weight: 9", 10, "has no 'hour'"),
    "hour out of the day": ("hour: 9", "hour: 25", 11, "'hour' must be from 0 to 24"),
    "no tips": ("    tips: [Go to bed., Breathe out slowly.]", "    dwell_s: {}", 21, "has no 'tips'"),
    "too many candidates": ("candidates: 2", "candidates: 9", 2, "the kinds have 4 tips together"),
    "one candidate": ("candidates: 2", "candidates: 1", 2, "from 2 to 50"),
    "unknown scenario": (
        "tasks: [write the report, call the bank]",
        "scenario: maya",
        12,
        "no scenario 'maya'",
    ),
    "shares that do not add up": ("taste: 0.3", "delay: [0.5, 0.2]", 4, "shares that add up to 1"),
    "drift without a pair": (
        "taste: 0.3",
        "drift: {after: [0.5], swap: [focus, rest]}",
        4,
        "list of pairs of kinds",
    ),
    "drift of an unknown kind": (
        "taste: 0.3",
        "drift: {after: [0.5], swap: [[focus, rset]]}",
        4,
        "'rset' in 'swap' is not a kind of tip here; did you mean 'rest'?",
    ),
    "the same key twice": ("taste: 0.3", "overlap: 1", 5, "already given on line 4"),
    "an unknown suite": ("taste: 0.3", "suite: tipp", 4, "'suite' cannot be used"),
    "a file that is not there": ("taste: 0.3", "extends: nowhere.yaml", 4, "which is not there"),
    "an unknown world": ("taste: 0.3", "extends: drfit", 4, "did you mean 'drift'?"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_its_line(mistake: str, tmp_path: Path) -> None:
    """The message begins with file and line, names the thing, and says what was meant where it can."""
    right, wrong, line, message = MISTAKES[mistake]
    assert right in OWN_WORLD
    path = world_file(tmp_path, OWN_WORLD.replace(right, wrong, 1))
    with pytest.raises(SuiteError) as caught:
        load_world(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "a: [1\n", "title: x\n", "personas: {}\nkinds: {}\n"])
def test_what_is_no_world_is_refused(text: str, tmp_path: Path) -> None:
    """A file that is empty, of another shape, broken, or without people or tips is an error."""
    with pytest.raises(SuiteError, match=r"own\.yaml"):
        load_world(world_file(tmp_path, text))


def test_a_world_cannot_extend_itself(tmp_path: Path) -> None:
    """A circle of files is an error and not an endless loop."""
    world_file(tmp_path, "extends: b.yaml\n", name="a.yaml")
    path = world_file(tmp_path, "extends: a.yaml\n", name="b.yaml")
    with pytest.raises(SuiteError, match="extends itself"):
        load_world(path)


def test_a_world_that_is_not_there() -> None:
    """A misspelt name has a suggestion, and a path that is not there is named."""
    with pytest.raises(NotFound, match="did you mean 'drift'"):
        load_world("drfit")
    with pytest.raises(SuiteError, match="there is no such file"):
        load_world("nowhere/own.yaml")
