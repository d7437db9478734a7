"""The service's own socket."""

from __future__ import annotations

import socket
from contextlib import closing

from tipbench.service import _listening
from tipbench.workflows.service_state import ServiceConfig


def test_answers_are_sent_at_once() -> None:
    """The end of an answer does not wait for the client to confirm its beginning, which takes 40 ms."""
    with _listening(ServiceConfig(port=0)) as listening:
        listening.settimeout(10)
        with closing(socket.create_connection(listening.getsockname(), timeout=10)):
            accepted, _ = listening.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
