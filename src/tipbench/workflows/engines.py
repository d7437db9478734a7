"""Which engine answers: Ollama where it is, the embedded llama.cpp where it is not and has the models."""

from __future__ import annotations

import re
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tipbench.engine.embedded import known_models, parse_gguf_option, start_engine
from tipbench.engine.lock import EMBEDDED, hold_host, host_name, lock_folder
from tipbench.engine.ollama import connect, full_name
from tipbench.errors import BadSetting, EngineFailure, EngineUnreachable, ModelRefused
from tipbench.settings import size_of
from tipbench.suite.problems import did_you_mean
from tipbench.text import without_login
from tipbench.workflows.interrupt import run_interruptible

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tipbench.engine.lock import HostLock
    from tipbench.engine.ollama import OllamaHost
    from tipbench.records import Emit, EngineKind, Model
    from tipbench.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine that answers at `url`, for as long as `open_engine` is open."""

    kind: EngineKind
    url: str

    @property
    def lock_name(self) -> str:
        """Two embedded engines on one machine share its memory, so they share one lock."""
        return EMBEDDED if self.kind == "embedded" else host_name(self.url)

    @asynccontextmanager
    async def host(self, *, timeout_s: float) -> AsyncIterator[OllamaHost]:
        host = await connect(self.url, kind=self.kind, timeout_s=timeout_s)
        try:
            yield host
        except EngineFailure as failure:
            raise EngineUnreachable(
                f"{without_login(self.url)} does not do what Ollama does ({failure}); see its log, or run "
                "`tipbench doctor`"
            ) from None
        finally:
            await host.close()


@contextmanager
def open_engine(settings: Settings, *, emit: Emit) -> Iterator[Engine]:
    """The engine the settings ask for. An embedded one lives exactly as long as this context."""
    with ExitStack() as stack:
        if settings.engine == "embedded" or not _ollama_answers(settings):
            if settings.engine == "auto":
                where = without_login(settings.ollama_url)
                emit({"event": "notice", "message": f"no Ollama at {where}: using the embedded engine"})
            url = stack.enter_context(_embedded(settings))
            yield Engine(kind="embedded", url=url)
        else:
            yield Engine(kind="ollama", url=settings.ollama_url)


@contextmanager
def hold_engine(engine: Engine, settings: Settings, *, emit: Emit) -> Iterator[HostLock]:
    """The engine's host for ourselves: nobody else who asks for this lock may load a model there."""

    def waiting(message: str) -> None:
        emit({"event": "notice", "message": message})

    with hold_host(
        engine.lock_name,
        folder=lock_folder(),
        experiment=settings.experiment,
        wait=settings.wait,
        waiting=waiting,
    ) as lock:
        yield lock


def embedded_models(settings: Settings) -> dict[str, Path]:
    """What the embedded engine has: the shipped weights where they are installed, and `--gguf` files."""
    return known_models(dict(parse_gguf_option(option) for option in settings.gguf))


def _ollama_answers(settings: Settings) -> bool:
    """Whether to use Ollama; raises where neither it nor the embedded engine can serve the models."""
    try:
        run_interruptible(_greet(settings.ollama_url))
    except EngineUnreachable as error:
        missing = _not_embedded(settings)
        if settings.engine == "ollama":
            if missing or find_spec("xllamacpp") is None:
                raise
            raise EngineUnreachable(f"{error}, or use --engine embedded") from None
        if missing:
            have = embedded_models(settings)
            raise EngineUnreachable(
                f"{error}; the embedded engine does not have {', '.join(missing)} "
                f"(it has {', '.join(have) or 'nothing: run `tipbench engine pull`'})"
                f"{_near_names(missing, have)}"
            ) from None
        return False
    return True


async def _greet(url: str) -> None:
    host = await connect(url, kind="ollama", timeout_s=5)
    await host.close()


def _not_embedded(settings: Settings) -> list[str]:
    have = {full_name(name) for name in embedded_models(settings)}
    return [name for name in settings.models if full_name(name) not in have]


@contextmanager
def _embedded(settings: Settings) -> Iterator[str]:
    missing = _not_embedded(settings)
    if missing:
        have = ", ".join(embedded_models(settings)) or "nothing yet: run `tipbench engine pull`"
        raise ModelRefused(
            f"the embedded engine does not have {', '.join(missing)}; it has {have}"
            f"{_near_names(missing, embedded_models(settings)) or '; add a GGUF file with --gguf name=path'}"
        )
    wanted = {full_name(name) for name in settings.models}
    models = {name: path for name, path in embedded_models(settings).items() if full_name(name) in wanted}
    with start_engine(models=models, parallel=settings.parallel, prompt_cache=settings.prompt_cache) as url:
        yield url


async def find_models(host: OllamaHost, settings: Settings, *, emit: Emit) -> list[Model]:
    """The models asked for, as the host has them; every one that is missing or too large in one message."""
    found = [await host.model(name) for name in settings.models]
    missing = [name for name, model in zip(settings.models, found, strict=True) if model is None]
    if missing and settings.pull and host.host.kind == "ollama":
        _refuse_by_name(missing, settings.max_model_b)
        for name in missing:
            await _pull(host, name, emit=emit)
        found = [await host.model(name) for name in settings.models]
        missing = [name for name, model in zip(settings.models, found, strict=True) if model is None]
    sizes = _assumed_sizes(settings, emit)
    models = [with_size(model, sizes) for model in found if model is not None]
    problems = [_missing(host, missing, installed=await host.names())] if missing else []
    problems += too_large(models, settings.max_model_b)
    if problems:
        raise ModelRefused("; ".join(problems))
    _tell_of_aliases(models, emit)
    return models


async def installed_of(host: OllamaHost, settings: Settings, *, emit: Emit) -> list[Model]:
    """Check the models like `find_models`, and download none: with `pull`, return only the installed ones."""
    if not settings.pull or host.host.kind != "ollama":
        return await find_models(host, settings, emit=emit)
    installed = [name for name in settings.models if await host.model(name) is not None]
    missing = [name for name in settings.models if name not in installed]
    _refuse_by_name(missing, settings.max_model_b)
    if missing:
        emit({"event": "notice", "message": f"not installed yet and not counted: {', '.join(missing)}"})
    names = {full_name(name) for name in installed}
    sizes = tuple(one for one in settings.assume_size if full_name(size_of(one)[0]) in names)
    return await find_models(host, replace(settings, models=tuple(installed), assume_size=sizes), emit=emit)


def _assumed_sizes(settings: Settings, emit: Emit) -> dict[str, float]:
    """Billions of parameters by full name, from `--assume-size`.

    A name that is not one of the models may be mistyped. It may also be a model of another host of a DAG.
    """
    sizes = {full_name(name): billions for name, billions in map(size_of, settings.assume_size)}
    strange = sorted(sizes.keys() - {full_name(name) for name in settings.models})
    if strange:
        unused = f"--assume-size: {', '.join(strange)} is not one of the models {', '.join(settings.models)}"
        emit({"event": "notice", "message": unused})
    return sizes


def with_size(model: Model, sizes: Mapping[str, float]) -> Model:
    """A model of unknown size with the size that the user assumes, or else the one that its tag contains."""
    if model.parameters is not None:
        return model
    given, tagged = sizes.get(full_name(model.name)), _size_in_tag(model.name)
    billions = given or tagged
    if not billions:
        return model
    return replace(model, parameters=round(billions * 1e9), size_assumed="option" if given else "tag")


def _size_in_tag(name: str) -> float | None:
    """Billions of parameters from a tag such as `3b`, `1.5b-q4` or `8x7b`."""
    tag = full_name(name).rpartition("/")[2].rpartition(":")[2].lower()
    found = re.search(r"(?<![a-z0-9.])(?:(\d+)x)?(\d+(?:\.\d+)?)([bm])(?![a-z0-9])", tag)
    if found is None:
        return None
    return float(found[1] or 1) * float(found[2]) / (1 if found[3] == "b" else 1000)


def _tell_of_aliases(models: Sequence[Model], emit: Emit) -> None:
    """Whoever names the same weights twice finds one of the names in no table."""
    first: dict[str, str] = {}
    for model in models:
        name = first.setdefault(model.digest, model.name)
        if name != model.name:
            same = f"{model.name} has the same weights as {name}: they are benched once, as {name}"
            emit({"event": "notice", "message": same})


def _refuse_by_name(names: Sequence[str], limit: float) -> None:
    """A model whose tag says that it is too large is not downloaded only to be refused."""
    for name in names:
        tag = re.search(r"[:-](\d+(?:\.\d+)?)b\b", name.lower())
        if tag and round(float(tag[1]), 1) > limit:
            raise ModelRefused(
                f"{name} is above --max-model-b {limit:g} by its name, so it is not downloaded"
            )


async def _pull(host: OllamaHost, name: str, *, emit: Emit) -> None:
    try:
        async for status, completed, total in host.pull(name):
            emit({"event": "pull", "model": name, "status": status, "completed": completed, "total": total})
    except EngineFailure as failure:
        raise ModelRefused(f"{name} could not be pulled ({failure}); check its name") from None


def _missing(host: OllamaHost, names: Sequence[str], *, installed: Sequence[str]) -> str:
    lines = " && ".join(f"ollama pull {name}" for name in names)
    hint = _near_names(names, installed)
    return f"{host.host.url} does not have {', '.join(names)}{hint or f': run `{lines}`, or pass --pull'}"


def _near_names(names: Sequence[str], known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for each name that is close to a known one."""
    return "".join(did_you_mean(name, known, cutoff=0.8) for name in names)


def too_large(models: Sequence[Model], limit: float) -> list[str]:
    """Compared after rounding to one decimal, so that a 4.02B model sold as 4b passes 4.0."""
    unknown = [model.name for model in models if model.parameters is None]
    nameless = [model.name for model in models if not model.digest]
    large = [m for m in models if m.parameters is not None and round(m.parameters / 1e9, 1) > limit]
    problems = []
    if large:
        sizes = ", ".join(f"{model.name} ({(model.parameters or 0) / 1e9:.1f}B)" for model in large)
        problems.append(f"{sizes}: above --max-model-b {limit:g}; leave it out, or raise the limit")
    problems += [
        f"{name}: the host does not give its size: name the size with `--assume-size {name}=3.2` (in "
        f"billions of parameters), or use a tag that contains it, such as {_without_tag(name)}:3.2b"
        for name in unknown
    ]
    if nameless:
        problems.append(
            f"{', '.join(nameless)}: the host gives no digest, so its cells could not be told apart"
        )
    return problems


def _without_tag(name: str) -> str:
    return full_name(name).rpartition(":")[0]


def check_parallel(settings: Settings) -> None:
    """Unloading after every reply and sharing one loaded model cannot both be had."""
    if settings.keep_alive == "0" and settings.parallel > 1:
        raise BadSetting("parallel", "--keep-alive 0 unloads after every reply, so --parallel must be 1")
