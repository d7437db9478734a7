"""Who may call a route: `need("admin")` among its dependencies, and the answer to everybody else."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from tipbench.workflows.access import NotAllowed, Principal, Role
from tipbench.workflows.service_state import Service

# Only for the OpenAPI: who is asking has been found out before any handler is reached.
_bearer = HTTPBearer(auto_error=False, description="a token of `tipbench token create`")


class Need:
    """A dependency: the caller, who must have one of these roles; any role where none is named."""

    def __init__(self, *roles: Role) -> None:
        self.roles = roles

    def __call__(
        self, request: Request, _given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
    ) -> Principal:
        return self.check(request)

    def check(self, request: Request) -> Principal:
        principal: Principal | None = request.state.principal
        if principal is None:
            raise NotAllowed("log in, or send a token: Authorization: Bearer TOKEN", status=401)
        if self.roles and principal.role not in self.roles:
            raise NotAllowed(f"this is for {' and '.join(self.roles)}, not for {principal.role}", status=403)
        return principal


def need(*roles: Role) -> Need:
    return Need(*roles)


class GuardedRoute(APIRoute):
    """A route that looks at the caller before it reads a body: nobody else's is worth parsing."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        needs = [one.call for one in self.dependant.dependencies if isinstance(one.call, Need)]

        async def guarded(request: Request) -> Response:
            for one in needs:
                one.check(request)
            return await handle(request)

        return guarded


def the_service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


TheService = Annotated[Service, Depends(the_service)]
Anybody = Annotated[Principal, Depends(need())]
Admin = Annotated[Principal, Depends(need("admin"))]
JudgeOrAdmin = Annotated[Principal, Depends(need("judge", "admin"))]
