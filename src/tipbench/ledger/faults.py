"""What MLflow's errors mean: each becomes one of ours, in a sentence that says where and what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tipbench.errors import BadInput, LedgerMisconfigured, LedgerUnreachable, NotFound
from tipbench.settings import is_unknown_host
from tipbench.text import hide_logins

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tipbench.errors import TipbenchError
    from tipbench.ledger.address import Address

_BUSY = re.compile(
    r"QueuePool limit|database is locked|too many (429|5\d\d) error"
    # another has just made the same row; the second try finds it (SQLite, PostgreSQL, MySQL)
    r"|UNIQUE constraint failed|duplicate key value|Duplicate entry"
)
_SILENT = re.compile(r"timed out|timeout", re.IGNORECASE)
_SCHEMA = re.compile(r"out-of-date database schema \(found version (\w+), but expected (\w+)\)")
_DENIED = {"UNAUTHENTICATED", "CUSTOMER_UNAUTHORIZED", "PERMISSION_DENIED"}
_REFUSED = {"INVALID_PARAMETER_VALUE", "BAD_REQUEST"}


def code_of(error: BaseException) -> str:
    """MLflow's own word for what happened, such as RESOURCE_DOES_NOT_EXIST; empty where it has none."""
    return str(getattr(error, "error_code", ""))


def is_transient(error: BaseException) -> bool:
    """Whether a retry may help. It cannot after a time-out, or if the host name is unknown."""
    text = _whole(error)
    if _BUSY.search(text):
        return True
    return _is_connection(error) and not _SILENT.search(text) and not is_unknown_host(text)


def fault(error: BaseException, address: Address) -> TipbenchError:
    """The error to raise in place of MLflow's."""
    if code_of(error) == "RESOURCE_DOES_NOT_EXIST":
        return NotFound(f"{address.public} does not have it: {_reason(error)}")
    if address.is_server:
        return _server_fault(error, address.public)
    schema = _SCHEMA.search(_whole(error))
    if schema:
        return other_version(address, found=schema[1], expected=schema[2])
    if code_of(error) in _REFUSED:
        return BadInput(f"MLflow's store {address.public} refused what was written: {_reason(error)}")
    return LedgerUnreachable(
        f"MLflow's store {address.public} cannot be used ({_reason(error)}); "
        "see that its disk is not full and that you may write to it, then try again"
    )


def other_version(address: Address, *, found: str, expected: str) -> LedgerUnreachable:
    return LedgerUnreachable(
        f"{address.public} was made by another version of MLflow (its schema is {found}, "
        f"this one needs {expected}): keep a copy and run `mlflow db upgrade {address.public}`, "
        "or install the MLflow that made it"
    )


def not_mlflow(where: str) -> LedgerUnreachable:
    return LedgerUnreachable(
        f"{where} answers, but not as an MLflow server does; "
        "see that the address, with its port and path prefix, is that of `mlflow server`"
    )


def _server_fault(error: BaseException, where: str) -> TipbenchError:
    text = _whole(error)
    code = code_of(error)
    if "Invalid Host header" in text:
        return LedgerMisconfigured(
            f"the MLflow server {where} refuses this host name (its --allowed-hosts does not list it): "
            "send a name that it lists with --mlflow-host-header, or start it with this one in the list"
        )
    if code in _DENIED or "401 Client Error" in text or "403 Client Error" in text:
        return LedgerUnreachable(
            f"the MLflow server {where} does not let you in ({_reason(error)}); set MLFLOW_TRACKING_USERNAME "
            "and MLFLOW_TRACKING_PASSWORD to an account that may write there"
        )
    if _is_connection(error) or _BUSY.search(text):
        return _unreachable(text, where)
    if code == "ENDPOINT_NOT_FOUND" or "valid JSON" in text or _foreign(error):
        return not_mlflow(where)
    if code in _REFUSED:
        return BadInput(f"the MLflow server {where} refused what was written: {_reason(error)}")
    return LedgerUnreachable(f"the MLflow server {where} failed ({_reason(error)}); see its log")


def _unreachable(text: str, where: str) -> LedgerUnreachable:
    said = re.search(r"too many (\d\d\d) error", text)
    if said:
        return LedgerUnreachable(
            f"the MLflow server {where} answers HTTP {said[1]}; see its log, then try again"
        )
    if _BUSY.search(text):
        return LedgerUnreachable(
            f"the MLflow server {where} is too busy (its database did not answer in time); try again later"
        )
    if is_unknown_host(text):
        return LedgerUnreachable(
            f"the MLflow server {where} cannot be reached: its host name is unknown; correct the address"
        )
    what = "does not answer in time" if _SILENT.search(text) else "cannot be reached"
    return LedgerUnreachable(
        f"the MLflow server {where} {what}; start it with `mlflow server`, or correct the address"
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it came from: MLflow wraps the errors of the libraries below it."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or link.__context__


def _whole(error: BaseException) -> str:
    return " ".join(str(link) for link in _chain(error))


def _is_connection(error: BaseException) -> bool:
    from requests import exceptions as http  # noqa: PLC0415 - slow to import, and only needed once in trouble

    kinds = (http.ConnectionError, http.Timeout, http.RetryError, http.ChunkedEncodingError)
    return any(isinstance(link, kinds) for link in _chain(error))


def _foreign(error: BaseException) -> bool:
    """An answer without MLflow's error code, or a redirect: some other service has the port."""
    said = getattr(error, "json", None)
    redirected = re.search(r"failed with error code 3\d\d", str(error))
    return bool(redirected) or (isinstance(said, dict) and "error_code" not in said)


def _reason(error: BaseException) -> str:
    """Return the first line of MLflow's message, short and without the login of an address."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    body = re.search(r"Response body: '(.+)'", line)
    return hide_logins(body[1] if body else line)[:200]
