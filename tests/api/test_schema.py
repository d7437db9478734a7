"""Random requests that fit the OpenAPI, and random ones that do not: no failure, no undocumented answer."""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api_world import EXPERIMENT, Api, open_api
from stand_in import FakeModel, StandIn, running
from tipbench import api as the_api
from tipbench.settings import Settings
from tipbench.store import Job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from judged_world import World

CHECKS: list[Any] = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
]  # fmt: skip
MODES: tuple[Any, ...] = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
# These start processes, or have no end; what they take is tested by itself.
STARTING = {
    ("/api/bench/run", "POST"),
    ("/api/judge/{experiment}/auto", "POST"),
    ("/api/gates", "POST"),
    ("/api/simulations", "POST"),
    ("/signals", "GET"),
}
OPERATIONS = sorted(
    [
        (str(getattr(route, "path_format", "")), method)
        for router in the_api.routers()
        for route in router.routes
        for method in getattr(route, "methods", ())
        if getattr(route, "include_in_schema", False) and (getattr(route, "path", ""), method) not in STARTING
    ]
    + [(path, "POST") for path in the_api.TIP_PATHS]
)


@pytest.fixture(scope="module")
def hosted(planted: tuple[Path, World], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """One service for all: what a request leaves behind is there for the next ones."""
    folder = tmp_path_factory.mktemp("schema") / "home"
    shutil.copytree(planted[0], folder)
    with pytest.MonkeyPatch.context() as patch, running(StandIn(models=[FakeModel("qwen2.5:0.5b")])) as host:
        patch.setenv("TIPBENCH_HOME", str(folder))
        opened = open_api(planted[1], settings=Settings.of({"ollama_url": host.url, "engine": "ollama"}))
        yield opened
        opened.service.close()


@pytest.fixture(scope="module")
def known(hosted: Api) -> dict[str, str]:
    """What is there: random names alone would be told 404 and reach nothing."""
    batch = hosted.admin.get(f"/api/judge/{EXPERIMENT}/batch").json()
    runs = hosted.admin.get(f"/api/bench/runs/{EXPERIMENT}").json()["runs"]
    job = Job(job_id="j1", kind="collect", title="t", experiment=EXPERIMENT, params={}, folder="nowhere",
              by="x", created_ms=1, state="done", ended_ms=2)  # fmt: skip
    hosted.service.store.jobs.add(job)
    return {"experiment": EXPERIMENT, "batch": batch["batch"], "item": batch["items"][0]["id"],
            "run": runs[0]["run_id"], "job_id": job.job_id, "name": "program",
            "policy": "hybrid", "gate_id": "0" * 16}  # fmt: skip


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_no_request_makes_the_service_fail(
    hosted: Api, known: dict[str, str], path: str, method: str
) -> None:
    """Whatever is sent, the answer is one that the OpenAPI tells of, in the shape that it tells of.

    Every other request is about something that is there.
    """
    schema = schemathesis.openapi.from_dict(hosted.app.openapi())
    schema.app = hosted.app
    schema.config.seed = 1
    operation = schema[path][method]
    headers = {"Authorization": f"Bearer {hosted.tokens['root']}"}
    asked: list[int] = []
    for mode in MODES:

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=8,
            derandomize=True,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def check(case: Any) -> None:  # noqa: ANN401 - a generated request
            asked.append(1)
            if len(asked) % 2:
                case.path_parameters |= {name: known[name] for name in case.path_parameters}
            case.call_and_validate(base_url="http://localhost", headers=headers, checks=CHECKS)

        with suppress(Unsatisfiable):  # what has no parameters cannot be asked wrongly
            check()
    assert asked
