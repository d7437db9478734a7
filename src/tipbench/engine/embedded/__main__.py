"""The engine's own process: `python -m tipbench.engine.embedded --gguf name=path`."""

from __future__ import annotations

import argparse
import os
import sys
import threading

from tipbench.engine.embedded.server import serve
from tipbench.engine.embedded.weights import parse_gguf_option
from tipbench.errors import TipbenchError
from tipbench.text import visible


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.until_stdin_closes:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        serve(
            models=dict(map(parse_gguf_option, options.gguf)),
            host=options.host,
            port=options.port,
            threads=options.threads,
            parallel=options.parallel,
            prompt_cache=options.prompt_cache,
            verbose=options.verbose,
            ready=_say,
        )
    except TipbenchError as error:
        sys.stderr.write(visible(f"{error}\n"))
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tipbench.engine.embedded", allow_abbrev=False)
    parser.add_argument("--gguf", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=11434)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--prompt-cache", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--until-stdin-closes", action="store_true")
    return parser


def _say(address: str) -> None:
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()


def _end_with_stdin() -> None:
    """The pipe's other end is our parent's alone: when it closes, nobody needs us, and nothing is to save."""
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
