"""The embedded engine: a real llama.cpp behind Ollama's HTTP API, in a process of its own on loopback.

A request comes in through `app`, is read by `asks`, and waits in `resident` for the one place in memory;
`prompts` makes it fit the context, `llama` generates, `replies` words the answer. `catalog` and
`gguf_header` know the files, `server` and `child` the process, `weights` where models come from.
"""

from tipbench.engine.embedded.child import start_engine
from tipbench.engine.embedded.server import serve
from tipbench.engine.embedded.weights import (
    SMOLLM2,
    find_weights,
    known_models,
    parse_gguf_option,
    pull_weights,
)

__all__ = [
    "SMOLLM2",
    "find_weights",
    "known_models",
    "parse_gguf_option",
    "pull_weights",
    "serve",
    "start_engine",
]
