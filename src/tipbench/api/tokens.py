"""Who is asking, who may ask, and who changed what."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from tipbench.api.access import Admin, Anybody, GuardedRoute, TheService
from tipbench.api.errors import documented
from tipbench.api.fields import Strict, Text
from tipbench.store import Token, token_name
from tipbench.workflows import tokens as workflow
from tipbench.workflows.access import PersonKind, Principal, Role

router = APIRouter(prefix="/api", tags=["access"], route_class=GuardedRoute, responses=documented(422, 503))
_LARGEST_ID = 2**63 - 1


class Me(BaseModel):
    name: str
    role: Role
    via: str


class TokenAnswer(BaseModel):
    """A token without what is secret about it."""

    name: str
    role: Role
    prefix: str = Field(description="how the token begins")
    created_ms: int
    last_used_ms: int | None
    revoked_ms: int | None
    kind: PersonKind = Field(description="what a judge who has it is: a person, or a program that judges")


class TokenRequest(Strict):
    """A token to make."""

    name: Text
    role: Role
    kind: PersonKind = "human"


class NewToken(BaseModel):
    """A new token. This is the only time that it is shown."""

    name: str
    role: Role
    token: str


class AuditEntry(BaseModel):
    entry_id: int
    at_ms: int
    who: str
    role: str
    action: str
    target: str
    detail: str
    ip: str


@router.get("/me")
def me(who: Anybody) -> Me:
    """Who the token or the cookie speaks for."""
    return Me(name=who.name, role=who.role, via=who.via)


@router.get("/tokens")
def list_tokens(service: TheService, _who: Admin, *, revoked: bool = False) -> list[TokenAnswer]:
    """The tokens that hold; with `revoked`, those too that no longer do."""
    return [_told(token) for token in service.store.tokens.list(revoked=revoked)]


@router.post("/tokens", status_code=201)
def create_token(service: TheService, who: Admin, body: TokenRequest, response: Response) -> NewToken:
    """Make a token. It is in this answer and nowhere else."""
    plain = workflow.create_token(
        service.store, name=body.name, role=body.role, kind=body.kind, by=_doer(who)
    )
    response.headers["Cache-Control"] = "no-store"
    return NewToken(name=token_name(body.name), role=body.role, token=plain)


@router.delete("/tokens/{name:path}", responses=documented(404))
def revoke_token(service: TheService, who: Admin, name: str) -> TokenAnswer:
    """End a token, and every session that was begun with it, at once."""
    return _told(workflow.revoke_token(service.store, name, by=_doer(who)))


def _told(token: Token) -> TokenAnswer:
    return TokenAnswer(**{field: getattr(token, field) for field in TokenAnswer.model_fields})


def _doer(who: Principal) -> workflow.Doer:
    return workflow.Doer(who=who.name, role=who.role, ip=who.ip)


@router.get("/audit")
def audit(
    service: TheService,
    _who: Admin,
    before: Annotated[int | None, Query(ge=0, le=_LARGEST_ID, description="an entry's id")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> list[AuditEntry]:
    """Who changed what, the newest first."""
    return [AuditEntry(**asdict(one)) for one in service.store.audit.page(before_id=before, limit=limit)]
