"""`serve`: the bench in a browser and as an API."""

from __future__ import annotations

from enum import Enum
from importlib import import_module
from typing import Annotated

import typer

from tipbench.cli.options import settings_options
from tipbench.settings import Settings


class Part(str, Enum):
    """What can be served alone."""

    tips = "tips"


def add_to(app: typer.Typer) -> None:
    app.command("serve")(serve_command)


@settings_options("mlflow_url", "mlflow_host_header", "ollama_url", "engine", "gguf", "suite")
def serve_command(
    *,
    settings: Settings,
    host: Annotated[str, typer.Option("--host", help="where to listen")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="on which port; 0 takes a free one")
    ] = 8700,
    only: Annotated[
        Part | None, typer.Option("--only", help="serve nothing but tips: no pages, no bench")
    ] = None,
    shadow: Annotated[
        list[str] | None,
        typer.Option("--shadow", help="switch a registered shadow on; may be repeated"),
    ] = None,
    expose: Annotated[
        bool,
        typer.Option("--expose-to-the-network", help="allow a --host that other machines can reach"),
    ] = False,
    require_token: Annotated[
        bool,
        typer.Option(
            "--require-token",
            help="tips need a token on this machine too; use it behind every proxy",
        ),
    ] = False,
) -> None:
    """Serve the pages and the API: start a bench, watch it, judge it, read the answer.

    The first start makes an admin token and shows it once; `tipbench token create` makes others.
    Collections that were started here go on when this ends. An app gets tips from /recommend and sends the
    results to /reward; `--only tips` serves that alone. Programs on this machine need no token for that,
    unless a proxy or another host name is configured, or with `--require-token`.

    SIGTERM ends it with exit code 0 once all that was asked is answered, and with 130 if that takes too long.
    """
    from tipbench.workflows.service_state import ServiceConfig

    config = ServiceConfig.from_environment(
        host=host, port=port, settings=settings, shadows=shadow or (), require_token=require_token
    )
    # By name: the service stands above the commands, as it is made of the API and the pages beside them.
    import_module("tipbench.service").main(config, exposed=expose, only_tips=only is Part.tips)
