"""What is known of the machine: read from what its kernel and tools say, and never a failure."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import pytest

from tipbench.engine.machine import hardware, this_machine

if TYPE_CHECKING:
    from pathlib import Path


def put(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_this_machine_has_a_name_and_hardware() -> None:
    """Its node name; and in words at least how much RAM there is."""
    assert this_machine().name == platform.node()
    assert this_machine().hardware.count("of RAM") == 1
    assert "core" in this_machine().hardware


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("processor\t: 0\nmodel name\t: AMD  Ryzen 7\nmodel name\t: other\n", "AMD Ryzen 7"),
        ("processor\t: 0\nBogoMIPS\t: 50\nModel\t\t: Raspberry Pi 4\n", "Raspberry Pi 4"),
    ],
)
def test_the_processor_is_named_by_the_kernel(tmp_path: Path, text: str, named: str) -> None:
    """By its model where the kernel says it, else by the board."""
    assert hardware(put(tmp_path, {"proc/cpuinfo": text})).split(", ")[0] == named


@pytest.mark.parametrize("text", [None, "", "\x00\xff nothing that is known\n"])
def test_an_unknown_processor_is_named_by_its_kind(
    tmp_path: Path, text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is missing, empty or strange is no error."""
    monkeypatch.setenv("PATH", str(tmp_path))
    root = put(tmp_path, {} if text is None else {"proc/cpuinfo": text})
    assert hardware(root).split(", ")[0] == platform.machine()


def test_graphics_cards_are_listed_by_their_drivers(tmp_path: Path) -> None:
    """Equal ones are counted; an AMD card is one only with memory of its own."""
    nvidia = "Model: \t\t NVIDIA RTX A4000\nIRQ: 5\n"
    root = put(
        tmp_path,
        {
            "proc/driver/nvidia/gpus/0000:01:00.0/information": nvidia,
            "proc/driver/nvidia/gpus/0000:02:00.0/information": nvidia,
            "sys/class/drm/card0/device/vendor": "0x1002\n",
            "sys/class/drm/card0/device/mem_info_vram_total": "17163091968\n",
            "sys/class/drm/card1/device/vendor": "0x8086\n",
            "sys/class/drm/card2/device/vendor": "0x1002\n",
            "sys/class/drm/card2/device/mem_info_vram_total": "much\n",
        },
    )
    assert hardware(root).endswith("of RAM, 2 × NVIDIA RTX A4000, AMD graphics with 17.2 GB")


@pytest.mark.parametrize(
    ("script", "found"),
    [("echo Some Card", True), ("echo Some Card; exit 9", False), ("printf '\\377'", False)],
)
def test_the_tool_is_asked_where_the_driver_lists_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, *, found: bool
) -> None:
    """What it prints is taken over, unless it fails."""
    tool = put(tmp_path, {"bin/nvidia-smi": f"#!/bin/sh\n{script}\n"}) / "bin/nvidia-smi"
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent))
    assert hardware(tmp_path).endswith("of RAM, Some Card") is found
