"""Pages from templates: every text escaped, every page with the same frame."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from tipbench.compare import figures
from tipbench.web import assets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tipbench.workflows.access import Principal

# What each role finds in the bar at the top: address and name.
MENUS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "admin": (
        ("/experiments", "Experiments"),
        ("/jobs", "Jobs"),
        ("/judge", "Judge"),
        ("/policies", "Policies"),
        ("/system", "Health"),
        ("/tokens", "Tokens"),
        ("/audit", "Audit"),
    ),
    "judge": (("/judge", "Judge"),),
}
_AGES = ((60, "minute"), (3600, "hour"), (86_400, "day"))
_OLD_S = 14 * 86_400


def page(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:  # noqa: ANN401 - what a template asks for
    """The template as a page for whoever is asking. Pages are made anew each time and kept nowhere."""
    who: Principal | None = getattr(request.state, "principal", None)
    path = request.url.path
    menu = [(to, name, _is_at(path, to)) for to, name in MENUS.get(who.role if who else "", ())]
    text = _environment().get_template(template).render(principal=who, menu=menu, path=path, **values)
    return HTMLResponse(text, status_code=status, headers={"cache-control": "no-store"})


def _is_at(path: str, menu: str) -> bool:
    return path == menu or path.startswith(f"{menu}/")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("tipbench.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: figures.readable(value) if type(value) is str else value,
    )
    environment.globals |= {"static": assets.address, "address": address, "count": figures.count}
    environment.filters |= {
        "moment": figures.moment,
        "part": part,
        "duration": figures.duration,
        "gigabytes": figures.gigabytes,
        "rate": figures.rate,
        "parameters": figures.parameters,
        "iso": lambda ms: figures.moment(ms).replace(" UTC", "Z").replace(" ", "T"),
    }
    return environment


def address(*parts: str, **query: object) -> str:
    """A path of these parts, each quoted whole, with what is given of the query."""
    path = "/" + "/".join(quote(str(part), safe="") for part in parts)
    given = {name: value for name, value in query.items() if value not in (None, "", False)}
    return f"{path}?{urlencode(given)}" if given else path


def part(done: float, whole: float) -> int:
    """In percent; all only where it is all of it, none only where it is none."""
    if whole <= 0:
        return 0
    share = 100 * done / whole
    return math.ceil(share) if share < 50 else math.floor(share)


def ago(ms: int | None, now_ms: int) -> str:
    """How long ago, in words; a date for what is older than two weeks."""
    if ms is None:
        return figures.UNKNOWN
    seconds = (now_ms - ms) / 1000
    if seconds < 60:
        return "just now"
    if seconds > _OLD_S:
        return figures.moment(ms)[:10]
    size, noun = next(pair for pair in reversed(_AGES) if seconds >= pair[0])
    return f"{figures.count(int(seconds // size), noun)} ago"
