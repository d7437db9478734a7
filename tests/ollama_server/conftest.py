"""The servers of these tests: a real Ollama, started once, and the fakes."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from network import REACHABLE
from real_ollama import RealOllama, Unusable, named_server, own_server
from tipbench.settings import normal_url

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def real_ollama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealOllama]:
    """The server that OLLAMA_HOST names, otherwise one of our own."""
    address = os.environ.get("OLLAMA_HOST")
    try:
        if not address:
            with own_server(tmp_path_factory.mktemp("ollama")) as server:
                yield server
            return
        url = normal_url(address)
        name = urlsplit(url).hostname
        REACHABLE.update(str(entry[4][0]) for entry in socket.getaddrinfo(name, None))
        with named_server(url) as server:
            yield server
    except (Unusable, OSError) as reason:
        pytest.exit(str(reason), returncode=2)
