"""Whether a file is a report that `compare` wrote: such a file may be overwritten."""

from __future__ import annotations

import csv
import json

MARK = "tipbench leaderboard"
MD_MARK = f"<!-- {MARK} -->"
HTML_MARK = '<meta name="generator" content="tipbench">'
# Pages of earlier versions have no generator.
_EARLIER_HTML = '<p class="kicker">tipbench report</p>'
_JSON_KEYS = {"title", "made_ms", "ground", "rows", "winner", "recommended", "sentences", "notes"}
_CSV_NAMES = ["model", "prompt", "n_scenarios", "n_judged", "n_unjudged", "mean", "low", "high", "estimate"]


def is_report(data: bytes, form: str) -> bool:
    """Whether the content is a report in this format: table, json, csv, md or html."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return _CHECKS[form](text)


def _is_json(text: str) -> bool:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.keys() >= _JSON_KEYS


def _is_csv(text: str) -> bool:
    names = next(csv.reader(text.splitlines()[:1]), [])
    return names[:2] == _CSV_NAMES[:2] and {*names} >= {*_CSV_NAMES}


def _is_md(text: str) -> bool:
    first = text.partition("\n")[0].strip()
    return first.startswith("# ") and first.endswith(MD_MARK)


def _is_html(text: str) -> bool:
    return text.lstrip().lower().startswith("<!doctype html>") and (
        HTML_MARK in text or _EARLIER_HTML in text
    )


def _is_table(text: str) -> bool:
    return text.startswith(f"{MARK}: ")


_CHECKS = {"table": _is_table, "json": _is_json, "csv": _is_csv, "md": _is_md, "html": _is_html}
