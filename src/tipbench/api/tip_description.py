"""The tip routes in the OpenAPI: they stand before the framework, which therefore does not know them."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI

from tipbench.api.errors import ErrorAnswer
from tipbench.bandit.asked import (
    RecommendReply,
    RecommendRequest,
    ResetRequest,
    RewardReply,
    RewardRequest,
    ScoreReply,
    ScoreRequest,
)
from tipbench.workflows.tip_desk import ROUTES

_REFUSALS = {
    401: "no token, where one is needed",
    403: "another role's token, or another site's page",
    404: "a decision, a scenario or a shipped winner that is not there",
    409: "a decision of another policy, or one too old to learn from",
    413: "more than 1 MB",
    421: "a name that is not this service's",
    422: "a body that cannot be used; `fields` says where",
    503: "state that cannot be read or written, or too much at once",
}


def describe_tips(app: FastAPI) -> None:
    """Let the application's own description hold the tip routes too."""
    framework = app.openapi

    def openapi() -> dict[str, Any]:
        known = app.openapi_schema is not None
        document = framework()
        if not known:
            document["paths"].update(_paths())
            document.setdefault("components", {}).setdefault("schemas", {}).update(_schemas())
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _paths() -> dict[str, Any]:
    paths = {
        "/recommend": _post(
            "A tip for a user: the active policy picks, shadows look on.", RecommendRequest, RecommendReply
        ),
        "/reward": _post("What came of a decision, whichever policy made it.", RewardRequest, RewardReply),
    }
    for route, policy in ROUTES.items():
        paths[f"/score/{route}"] = _post(f"A decision by {policy}.", ScoreRequest, ScoreReply)
        told = f"What came of a decision of {policy}; another policy's is refused."
        paths[f"/reward/{route}"] = _post(told, RewardRequest, RewardReply)
    return paths


def _post(about: str, takes: type, gives: type) -> dict[str, Any]:
    refusals = {
        str(status): {"description": told, "content": _json("ErrorAnswer")}
        for status, told in _REFUSALS.items()
    }
    return {
        "post": {
            "tags": ["tips"],
            "summary": about,
            "description": about,
            "security": [{"HTTPBearer": []}, {}],
            **body_of(takes),
            "responses": {
                "200": {"description": "it is on disk", "content": _json(gives.__name__)},
                **refusals,
            },
        }
    }


def body_of(takes: type) -> dict[str, Any]:
    """The `requestBody` of a route that reads this struct from JSON."""
    return {"requestBody": {"required": True, "content": _json(takes.__name__)}}


def _json(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def _schemas() -> dict[str, Any]:
    requests = (ScoreRequest, RewardRequest, RecommendRequest, ResetRequest)
    kinds = (*requests, ScoreReply, RewardReply, RecommendReply)
    _, schemas = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    problem = ErrorAnswer.model_json_schema(ref_template="#/components/schemas/{model}")
    return {**schemas, **problem.pop("$defs", {}), "ErrorAnswer": problem}
