"""Requests made from the settings table: its names, types and help, checked as the table checks them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field as Row
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, create_model

from tipbench.api.errors import BadFields
from tipbench.errors import BadSetting, NotFound, SuiteError
from tipbench.judge.answers import unwritable
from tipbench.settings import RUN_SETTINGS, Settings, default_of, table
from tipbench.suite import load_suite
from tipbench.text import without_login
from tipbench.workflows.collect import make_grid
from tipbench.workflows.dag_conf import WAYS, Asked
from tipbench.workflows.service_state import Service

_NAMES = {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}
_SCHEMAS: Mapping[type, Mapping[str, Any]] = {
    tuple: _NAMES,
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
}
_TYPES = {tuple: "names", bool: "flag", int: "whole number", float: "number", str: "text"}
_LONGEST = 10_000


class Strict(BaseModel):
    """A request: what it does not know is refused, and nothing is taken for something else."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def _readable(text: str) -> str:
    held = unwritable(text)
    if held:
        raise ValueError(f"holds {held}")
    return text


Text = Annotated[str, Field(max_length=_LONGEST), AfterValidator(_readable)]
ExperimentName = Annotated[str, Field(max_length=1000, description="an experiment's name")]


class SettingRow(BaseModel):
    """One setting of a collection, as a form would show it."""

    name: str
    type: str = Field(description="names, flag, whole number, number or text")
    default: list[str] | bool | int | float | str
    help: str
    group: str
    choices: list[str]


def run_rows() -> list[Row[Any]]:
    """The rows of the settings table that a request may set, in the table's order."""
    return [row for row in table() if row.name in RUN_SETTINGS]


def setting_rows(service: Service) -> list[SettingRow]:
    """What can be set, with the defaults that this service has."""
    own = service.settings()
    return [
        SettingRow(
            name=row.name,
            type=_TYPES[type(default_of(row))],
            default=_shown(row.name, getattr(own, row.name)),
            help=row.metadata["help"],
            group=row.metadata["group"],
            choices=list(row.metadata["choices"]),
        )
        for row in run_rows()
    ]


def _shown(name: str, value: Any) -> Any:  # noqa: ANN401 - a setting may be of any type
    return shown_params({name: value})[name]


def shown_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as they may be shown: lists for tuples, and no login or query in an address."""
    told = {name: list(value) if isinstance(value, tuple) else value for name, value in params.items()}
    for name in ("mlflow_url", "ollama_url", "base_url"):
        if told.get(name):
            told[name] = without_login(str(told[name]))
    return told


def run_request() -> type[BaseModel]:
    """The body of a request to collect. Values are taken as loosely as the command line takes them."""
    return _request("RunRequest", {})


def airflow_request() -> type[BaseModel]:
    """The body of a request to collect on Airflow: the same, and which hosts share the work."""
    hosts = {**_NAMES, "description": "Ollama hosts to share the models among; none is `ollama_url` alone"}
    way = {"enum": list(WAYS), "description": "what the run waits for before it makes the leaderboard"}
    return _request("AirflowRequest", {"hosts": _nullable(hosts), "wait_for_judge": _nullable(way)})


def _request(name: str, more: Mapping[str, Any]) -> type[BaseModel]:
    fields: dict[str, Any] = {row.name: _field(row) for row in run_rows()} | dict(more)
    return create_model(
        name,
        # Names that are not known are refused where the values are checked, with all else that is wrong.
        __config__=ConfigDict(extra="allow", json_schema_extra={"additionalProperties": False}),
        __doc__="What to collect. What is left out, or null, takes its default.",
        **fields,
    )


def _field(row: Row[Any]) -> tuple[Any, Any]:
    schema = {**_SCHEMAS[type(default_of(row))], "description": row.metadata["help"]}
    return _nullable(schema)


def _nullable(schema: Mapping[str, Any]) -> tuple[Any, Any]:
    return Annotated[Any, WithJsonSchema({"anyOf": [dict(schema), {"type": "null"}]})], None


def checked_settings(service: Service, values: Mapping[str, Any]) -> Settings:
    """The settings that a request asks for; BadFields names every field that is wrong."""
    wrong = _wrong_fields(service, values)
    if wrong:
        raise BadFields(wrong)
    return service.settings(values)


def _wrong_fields(service: Service, values: Mapping[str, Any]) -> dict[str, str]:
    wrong = {name[:100]: "there is no such field" for name in values if name not in RUN_SETTINGS}
    for name, value in values.items():
        try:
            if name in RUN_SETTINGS and value is not None:
                _check_texts(name, value)
                service.settings({name: value})
        except BadSetting as error:
            wrong[name] = error.message
    return wrong


def collection_settings(service: Service, values: Mapping[str, Any]) -> Settings:
    """As `checked_settings`, for a collection that could be started: its suite is there, and its prompts."""
    wrong = _wrong_fields(service, values)
    try:
        load_suite(service.settings({"suite": None if "suite" in wrong else values.get("suite")}).suite)
    except (NotFound, SuiteError) as error:
        wrong["suite"] = str(error)
    if wrong:
        raise BadFields(wrong)
    settings = service.settings(values)
    try:
        make_grid(settings)
    except NotFound as error:
        raise BadFields({"prompts": str(error)}) from None
    return settings


def airflow_settings(service: Service, values: Mapping[str, Any]) -> tuple[Settings, Asked]:
    """As `collection_settings`, with what a run on Airflow is told beside; every field that is wrong."""
    own = {name: values[name] for name in ("hosts", "wait_for_judge") if name in values}
    rest = {name: value for name, value in values.items() if name not in own}
    wrong: dict[str, str] = {}
    for name, value in own.items():
        try:
            _check_texts(name, value)
            service.asked_of_airflow(**{"hosts": None, "wait_for_judge": None, name: value})
        except BadSetting as error:
            wrong[name] = error.message
    try:
        settings = collection_settings(service, rest)
    except BadFields as error:
        raise BadFields({**error.fields, **wrong}) from None
    if wrong:
        raise BadFields(wrong)
    return settings, service.asked_of_airflow(own.get("hosts"), own.get("wait_for_judge"))


def _check_texts(name: str, value: object) -> None:
    """What a process or a database cannot be handed is refused before it gets there."""
    for text in _texts(value):
        held = unwritable(text)
        if held or len(text) > _LONGEST:
            raise BadSetting(name, f"holds {held}" if held else f"is longer than {_LONGEST} characters")


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        yield from (part for part in value if isinstance(part, str))


def experiment_settings(service: Service, experiment: str) -> Settings:
    """The settings for reading an experiment; what cannot be the name of one is not there."""
    try:
        return service.settings({"experiment": experiment})
    except BadSetting as error:
        if error.name != "experiment":
            raise
        raise NotFound(f"there is no experiment that can be opened by this name: {error.message}") from None
