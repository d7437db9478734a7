"""The service's own affairs: health, tokens, the audit log."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from tipbench.web import prose
from tipbench.web.guard import need
from tipbench.web.render import address, ago, page
from tipbench.workflows.access import Principal
from tipbench.workflows.doctor import examine
from tipbench.workflows.service_state import Service, now_ms

router = APIRouter(include_in_schema=False)

_ENTRIES = 100
WORDS = {"ok": "fine", "warn": "look at it", "bad": "broken"}
_WORST_FIRST = ("bad", "warn", "ok")


@router.get("/system")
def health(request: Request, _who: Principal = need("admin")) -> Response:
    """What works and what does not, the worst first, with what to do."""
    service: Service = request.app.state.service
    found = sorted(examine(service.settings()), key=lambda one: _WORST_FIRST.index(one.state))
    bad = sum(one.state == "bad" for one in found)
    warned = sum(one.state == "warn" for one in found)
    told = [f"{bad} broken" if bad else "", f"{warned} to look at" if warned else ""]
    sentence = ", ".join(part for part in told if part) or "Everything is fine"
    return page(request, "system.html.j2", findings=found, words=WORDS, sentence=sentence, inline=prose.code)


@router.get("/tokens")
def tokens(request: Request, who: Principal = need("admin")) -> Response:
    service: Service = request.app.state.service
    now = now_ms()
    rows = [
        {
            "token": token,
            "own": token.token_id == who.token_id,
            "made": ago(token.created_ms, now),
            "used": "never" if token.last_used_ms is None else ago(token.last_used_ms, now),
        }
        for token in service.store.tokens.list()
    ]
    return page(request, "tokens.html.j2", rows=rows)


@router.get("/audit")
def audit(request: Request, before: int | None = None, _who: Principal = need("admin")) -> Response:
    service: Service = request.app.state.service
    found = service.store.audit.page(before_id=before, limit=_ENTRIES + 1)
    entries = found[:_ENTRIES]
    older = address("audit", before=entries[-1].entry_id) if len(found) > _ENTRIES else ""
    return page(request, "audit.html.j2", entries=entries, older=older, newest=before is None)
