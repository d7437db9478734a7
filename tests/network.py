"""The addresses that tests may connect to, beside loopback."""

from __future__ import annotations

# `make test-ollama` adds the server that OLLAMA_HOST names.
REACHABLE: set[str] = set()
