"""Where a team's Airflow is, and who we are there: from the environment alone.

So no command line, no row and no page ever holds the password.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tipbench.airflow import Client
from tipbench.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Mapping

URL_ENV, USER_ENV, PASSWORD_ENV = (
    "TIPBENCH_AIRFLOW_URL", "TIPBENCH_AIRFLOW_USER", "TIPBENCH_AIRFLOW_PASSWORD",
)  # fmt: skip
VARIABLES = (URL_ENV, USER_ENV, PASSWORD_ENV)


def airflow_url(environment: Mapping[str, str] = os.environ) -> str:
    """The address of Airflow, empty where there is none; BadInput for one that could not be called."""
    url = environment.get(URL_ENV, "").strip().rstrip("/")
    if url and not _is_address(url):
        raise BadInput(f"{URL_ENV} is no address such as http://localhost:8080; correct it")
    if "@" in url:
        raise BadInput(
            f"{URL_ENV} holds a login, and the address is shown to people; set {USER_ENV} and {PASSWORD_ENV}"
        )
    return url


def connect(environment: Mapping[str, str] = os.environ) -> Client:
    """Airflow as the environment says; nothing is asked yet."""
    url = airflow_url(environment)
    user, password = environment.get(USER_ENV, ""), environment.get(PASSWORD_ENV, "")
    if not url:
        raise BadInput(f"{URL_ENV} is not set; set it to Airflow's address, such as http://localhost:8080")
    if bool(user) != bool(password):
        raise BadInput(f"of {USER_ENV} and {PASSWORD_ENV} one is not set; set both, or neither")
    return Client(url, user=user, password=password)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port_ok = parts.port is None or parts.port > 0
    except ValueError:
        return False
    plain = re.fullmatch(r"https?://[^\s?#\\\"'<>]+", url, re.IGNORECASE)
    return bool(plain and parts.hostname and port_ok)
