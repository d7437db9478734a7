"""MLflow, in plain values: the one file that imports it. Every error that leaves here is one of ours."""

from __future__ import annotations

import logging
import os
import re
import time
import warnings
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

from tipbench.errors import BadInput, LedgerUnreachable, NotFound
from tipbench.ledger import artifact_files
from tipbench.ledger.chunks import portions
from tipbench.ledger.database import ready_database
from tipbench.ledger.faults import code_of, fault, is_transient, not_mlflow
from tipbench.ledger.shape import KEY, KIND, Row, mark_numbers, mark_tags
from tipbench.private import make_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tipbench.ledger.address import Address
    from tipbench.records import Mark

T = TypeVar("T")

# Retries are ours alone: MLflow's own would repeat a `create run` whose first try had come through.
_ALWAYS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
# Registering a prompt would look these up at whatever address MLflow takes for its default.
_NEVER = ("MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID")
_UNLESS_SET = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "20", "GIT_PYTHON_REFRESH": "quiet"}
_PAUSES_S = (0.2, 0.8)
_PAGE = 500

# SQLAlchemy's warnings are told of whoever called it.
_IN_MLFLOW = r"mlflow(\.|$)"
_HUSHED = ("ignore", None, Warning, re.compile(_IN_MLFLOW), 0)

_host_header: ContextVar[str] = ContextVar("tipbench_mlflow_host_header", default="")


@dataclass(frozen=True, kw_only=True)
class ExperimentRow:
    experiment_id: str
    name: str
    deleted: bool
    tags: Mapping[str, str]


class Store:
    """One MLflow store, opened on first use. Calls that fail for a moment are tried again."""

    def __init__(self, address: Address, *, home: Path, host_header: str = "") -> None:
        self.address = address
        self._artifacts = home / "artifacts"
        self._host_header = host_header

    def experiment(self, name: str) -> ExperimentRow | None:
        found = self.call(lambda client: client.get_experiment_by_name(name))
        return self._experiment_row(found) if found is not None else None

    def experiments(self, *, tag: str) -> list[ExperimentRow]:
        """The experiments that have the tag, whatever its value."""
        where = f"tags.`{tag}` LIKE '%'"
        found = self.pages(
            lambda client, token: client.search_experiments(
                filter_string=where, max_results=_PAGE, page_token=token
            )
        )
        return [self._experiment_row(experiment) for experiment in found]

    def create_experiment(self, name: str, tags: Mapping[str, str]) -> None:
        """Make the experiment with its tags, in one step; nothing where it is there already."""
        place = None if self.address.is_server else self._artifacts.as_uri()

        def create(client: Any) -> None:  # noqa: ANN401 - MLflow's client
            try:
                client.create_experiment(name, artifact_location=place, tags=dict(tags))
            except _mlflow().MlflowException as error:
                if code_of(error) != "RESOURCE_ALREADY_EXISTS":
                    raise

        self.call(create)

    def tag_experiment(self, experiment_id: str, name: str, value: str) -> None:
        self.call(lambda client: client.set_experiment_tag(experiment_id, name, value))

    def untag_experiment(self, experiment_id: str, name: str) -> None:
        with suppress(NotFound):  # a second try, or another writer's
            self.call(lambda client: client.delete_experiment_tag(experiment_id, name))

    def cells(self, experiment_id: str) -> list[Row]:
        """All cells of an experiment, complete or not."""
        return self.tagged([experiment_id], KIND, "cell")

    def cells_with_key(self, experiment_id: str, key: str) -> list[Row]:
        return self.tagged([experiment_id], KEY, key)

    def tagged(self, experiment_ids: Sequence[str], name: str, value: str) -> list[Row]:
        """The runs whose tag has this value, which must hold no quotes."""
        return self._search(experiment_ids, f"tags.`{name}` = '{value}'")

    def cells_like(self, experiment_ids: Sequence[str], start: str) -> list[Row]:
        """The cells whose run id, or else whose key, begins with `start` (letters and digits only)."""
        is_cell = f"tags.`{KIND}` = 'cell'"
        by_id = self._search(experiment_ids, f"attributes.run_id LIKE '{start}%' AND {is_cell}")
        return by_id or self._search(experiment_ids, f"tags.`{KEY}` LIKE '{start}%' AND {is_cell}")

    def filtered(self, experiment_id: str, text: str) -> list[Row]:
        """The cells that a filter of MLflow's finds; BadInput where MLflow cannot read it."""
        if not text.strip():
            return self.cells(experiment_id)
        try:
            _mlflow().parse_filter(text)
        except Exception as error:  # noqa: BLE001 - the parser raises whatever its libraries do
            raise _bad_filter(text, str(error)) from None
        try:
            return self._search([experiment_id], f"tags.`{KIND}` = 'cell' AND {text}")
        except BadInput as error:
            raise _bad_filter(text, str(error)) from None

    def rows(self, experiment_id: str, run_ids: Sequence[str]) -> list[Row]:
        names = ", ".join(f"'{run_id}'" for run_id in run_ids)
        return self._search([experiment_id], f"attributes.run_id IN ({names})") if run_ids else []

    def create_run(
        self,
        experiment_id: str,
        *,
        name: str,
        started_ms: int,
        tags: Mapping[str, str],
        made: Callable[[], Row | None],
    ) -> Row:
        """Begin a run with its tags. Where an answer got lost, `made` finds the run that was made."""
        first, *rest = portions(tags)
        row = self.call(
            lambda client: _row(
                client.create_run(experiment_id, start_time=started_ms, tags=first, run_name=name)
            ),
            perhaps_done=made,
        )
        for portion in rest:
            self._write_portion(row.run_id, portion)
        return row

    def write_params(
        self, run_id: str, params: Mapping[str, str], metrics: Mapping[str, float], *, at_ms: int
    ) -> None:
        entities = _mlflow().entities
        numbers = [entities.Metric(name, value, at_ms, 0) for name, value in metrics.items()]
        texts = [entities.Param(name, value) for name, value in params.items()]
        self.call(lambda client: client.log_batch(run_id, metrics=numbers, params=texts))

    def write_curves(
        self, run_id: str, curves: Mapping[str, Sequence[tuple[int, float]]], *, at_ms: int
    ) -> None:
        """Numbers that have a value at each of several steps, so that MLflow draws them as a line."""
        make = _mlflow().entities.Metric
        points = [make(name, value, at_ms, step) for name, line in curves.items() for step, value in line]
        parts = [points[start : start + _PAGE] for start in range(0, len(points), _PAGE)]
        self.call(lambda client: [client.log_batch(run_id, metrics=part) for part in parts])

    def write_mark(self, run_id: str, mark: Mark) -> None:
        """The numbers as of now, so that they count before earlier ones, and whether it waits for a judge."""
        entities = _mlflow().entities
        now = time.time_ns() // 1_000_000
        numbers = [entities.Metric(name, value, now, 0) for name, value in mark_numbers(mark).items()]
        tags = [entities.RunTag(name, value) for name, value in mark_tags(mark).items()]
        self.call(lambda client: client.log_batch(run_id, metrics=numbers, tags=tags))

    def write_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        for portion in portions(tags):
            self._write_portion(run_id, portion)

    def _write_portion(self, run_id: str, tags: Mapping[str, str]) -> None:
        every = [_mlflow().entities.RunTag(name, value) for name, value in tags.items()]
        self.call(lambda client: client.log_batch(run_id, tags=every))

    def untag(self, run_id: str, name: str) -> None:
        with suppress(NotFound):  # a second try, when the answer to the first got lost
            self.call(lambda client: client.delete_tag(run_id, name))

    def delete_run(self, run_id: str) -> None:
        self.call(lambda client: client.delete_run(run_id))

    def reopen(self, run_id: str) -> None:
        self.call(lambda client: client.update_run(run_id, status="RUNNING"))

    def end(self, run_id: str, *, failed: bool, ended_ms: int) -> None:
        status = "FAILED" if failed else "FINISHED"
        self.call(lambda client: client.set_terminated(run_id, status=status, end_time=ended_ms))

    def put_texts(self, row: Row, texts: Mapping[str, str]) -> bool:
        """Keep the texts as artifacts; False where the run's artifacts are out of reach from here."""
        if self._is_local(row):
            return artifact_files.write(row.artifact_uri, texts, moved_to=self._artifacts / row.run_id)
        if not self._is_served(row):
            return False
        try:
            for name, text in texts.items():
                self._put_text(row, name, text)
        except (BadInput, LedgerUnreachable):
            return False
        return True

    def _put_text(self, row: Row, name: str, text: str) -> None:
        self.call(lambda _: self._artifact(row, name, text))

    def get_text(self, row: Row, name: str) -> str | None:
        """The text of an artifact, None where it is not there or out of reach."""
        if self._is_local(row):
            return artifact_files.read(row.artifact_uri, name, moved_to=self._artifacts / row.run_id)
        if not self._is_served(row):
            return None
        try:
            return self.call(lambda _: self._artifact(row, name))
        except (BadInput, LedgerUnreachable):
            return None

    @cached_property
    def _client(self) -> Any:  # noqa: ANN401 - MLflow's client
        mlflow = _mlflow()
        if not self.address.is_server:
            ready_database(self.address, migrations=mlflow.migrations, create=self._create_schema)
        return mlflow.MlflowClient(tracking_uri=self.address.uri, registry_uri=self.address.uri)

    def _create_schema(self, uri: str) -> None:
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

        make_folder(self._artifacts)  # MLflow would make it for everybody
        store = SqlAlchemyStore(uri, str(self._artifacts))  # type: ignore[no-untyped-call]
        store.engine.dispose()

    def _experiment_row(self, found: Any) -> ExperimentRow:  # noqa: ANN401 - MLflow's own class
        if not found.experiment_id:
            raise not_mlflow(self.address.public)
        return ExperimentRow(
            experiment_id=found.experiment_id,
            name=found.name,
            deleted=found.lifecycle_stage == "deleted",
            tags=dict(found.tags),
        )

    def _search(self, experiment_ids: Sequence[str], where: str) -> list[Row]:
        """Rows in the order of their start, so that none is skipped when others are written meanwhile."""
        if not experiment_ids:
            return []
        found = self.pages(
            lambda client, token: client.search_runs(
                list(experiment_ids),
                where,
                max_results=_PAGE,
                order_by=["attributes.start_time ASC"],
                page_token=token,
            )
        )
        return list({run.info.run_id: _row(run) for run in found}.values())

    def pages(self, page: Callable[[Any, str | None], Any]) -> Iterator[Any]:
        token: str | None = ""
        while token is not None:
            found = self._page(page, token or None)
            yield from found
            token = found.token or None

    def _page(self, page: Callable[[Any, str | None], Any], token: str | None) -> Any:  # noqa: ANN401
        return self.call(lambda client: page(client, token))

    def _is_local(self, row: Row) -> bool:
        return self.address.path is not None and artifact_files.is_path(row.artifact_uri)

    def _is_served(self, row: Row) -> bool:
        place = urlsplit(row.artifact_uri)
        return self.address.is_server and place.scheme == "mlflow-artifacts" and not place.netloc

    def _artifact(self, row: Row, name: str, text: str | None = None) -> str:
        """Read a text through the server that serves the artifacts, or write one there."""
        folder = quote(urlsplit(row.artifact_uri).path.strip("/"))
        response = _mlflow().http_request(
            _mlflow().host_creds(self.address.uri),
            f"/api/2.0/mlflow-artifacts/artifacts/{folder}/{name}",
            "GET" if text is None else "PUT",
            data=None if text is None else text.encode(),
        )
        response.raise_for_status()
        return str(response.content.decode(errors="replace"))

    def call(
        self,
        ask: Callable[[Any], T],
        *,
        perhaps_done: Callable[[], T | None] = lambda: None,
        pauses: tuple[float, ...] = _PAUSES_S,
    ) -> T:
        """What MLflow answers. Before asking again, `perhaps_done` tells whether the first try did it."""
        errors = _mlflow().errors  # not below: an interrupt may come while they are being imported
        try:
            return self._ask(ask)
        except errors as error:
            if not pauses or not is_transient(error):
                # `from None`: what MLflow says may hold the password of the address
                raise fault(error, self.address) from None
        time.sleep(pauses[0])
        done = perhaps_done()
        return done if done is not None else self.call(ask, perhaps_done=perhaps_done, pauses=pauses[1:])

    def _ask(self, ask: Callable[[Any], T]) -> T:
        with _sending_host(self._host_header):
            _hush()
            return ask(self._client)


def _bad_filter(text: str, reason: str) -> BadInput:
    said = " ".join(reason.split()).rstrip(".")
    return BadInput(
        f"filter {text!r} cannot be read by MLflow ({said}); write one such as "
        "\"metrics.composite > 12 and params.model = 'gemma3:1b'\""
    )


def _row(run: Any) -> Row:  # noqa: ANN401 - MLflow's own class
    return Row(
        run_id=run.info.run_id,
        experiment_id=run.info.experiment_id,
        status=run.info.status,
        artifact_uri=run.info.artifact_uri or "",
        params=run.data.params,
        tags=run.data.tags,
        metrics=run.data.metrics,
    )


@contextmanager
def _sending_host(name: str) -> Iterator[None]:
    """For the block, what this thread asks goes out with this Host header; empty is the usual one."""
    token = _host_header.set(name)
    try:
        yield
    finally:
        _host_header.reset(token)


def _hush() -> None:
    """Ignore what Python warns of in MLflow's code: what it does wrong is not for our users to read.

    `catch_warnings` would do it for a block, but belongs to the process: a thread that leaves such a block
    ends it for another that is in one.
    """
    if _HUSHED not in warnings.filters:
        warnings.filterwarnings("ignore", module=_IN_MLFLOW)


@dataclass(frozen=True, kw_only=True)
class _Mlflow:
    """What this file uses of MLflow, once it is imported."""

    MlflowClient: Any
    MlflowException: type[Exception]
    entities: Any
    errors: tuple[type[Exception], ...]
    host_creds: Any
    http_request: Any
    migrations: Path
    parse_filter: Callable[[str], object]


@cache
def _mlflow() -> _Mlflow:
    """MLflow, imported on first use: it takes a second, and would phone home and chatter if let."""
    os.environ.update(_ALWAYS)
    for name in _NEVER:
        os.environ.pop(name, None)
    for name, value in _UNLESS_SET.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlflow
        from google.protobuf.json_format import ParseError  # type: ignore[import-untyped]  # noqa: PLC0415
        from mlflow import MlflowClient, entities
        from mlflow.exceptions import MlflowException
        from mlflow.utils.credentials import get_default_host_creds
        from mlflow.utils.rest_utils import http_request
        from mlflow.utils.search_utils import SearchUtils
        from sqlalchemy.exc import SQLAlchemyError
    for noisy in ("mlflow", "alembic", "git", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    _register_host_header()
    return _Mlflow(
        MlflowClient=MlflowClient,
        MlflowException=MlflowException,
        entities=entities,
        errors=(MlflowException, SQLAlchemyError, ParseError, OSError),
        host_creds=get_default_host_creds,
        http_request=http_request,
        migrations=Path(mlflow.__file__).parent / "store" / "db_migrations",
        parse_filter=SearchUtils.parse_search_filter,
    )


def _register_host_header() -> None:
    """Let requests carry a Host header of our choice, through MLflow's extension point for headers."""
    from mlflow.tracking.request_header.abstract_request_header_provider import (
        RequestHeaderProvider,
    )
    from mlflow.tracking.request_header.registry import (
        _request_header_provider_registry as registry,
    )

    class HostHeader(RequestHeaderProvider):
        def in_context(self) -> bool:
            return bool(_host_header.get())

        def request_headers(self) -> dict[str, str]:
            return {"Host": _host_header.get()}

    registry.register(HostHeader)  # type: ignore[no-untyped-call]
