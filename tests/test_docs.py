"""Docs that are derived from code are up to date, and links in docs lead somewhere."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SPEC = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
assert SPEC
assert SPEC.loader
GENERATE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(GENERATE)


@pytest.mark.parametrize("path", GENERATE.PAGES, ids=lambda path: path.name)
def test_generated_pages_are_up_to_date(path: Path) -> None:
    """`make docs` would change nothing."""
    assert path.read_text(encoding="utf-8") == GENERATE.PAGES[path]()


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")), ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link in the docs names a file that is there."""
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_pins_hold_hashes_and_no_address() -> None:
    """Every pinned package has a hash, and no registry is named."""
    for pins in (ROOT / "requirements").glob("*.txt"):
        text = pins.read_text()
        assert "://" not in text
        assert "--index" not in text
        for entry in re.split(r"\n(?=\S)", text):
            assert entry.startswith("#") or "--hash=sha256:" in entry, entry[:80]


def test_documented_proxy_set_ups_require_a_token() -> None:
    """Each documented start behind a proxy, or in a container, has --require-token."""
    pages = [ROOT / "compose.yaml", ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    starts = [line for line in lines if "FORWARDED_ALLOW_IPS=" in line or "expose-to-the-network" in line]
    shown = [line for line in starts if "serve" in line]
    assert len(shown) >= 4
    assert [line for line in shown if "--require-token" not in line] == []
