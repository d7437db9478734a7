"""What serves tips is kept free of what is slow to import: all threads of a process wait for an import."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import httpx

from job_world import wait_until
from ledger_servers import Proxy

if TYPE_CHECKING:
    from pathlib import Path

SLOW = ("mlflow", "sqlalchemy", "scipy", "pandas", "ollama", "matplotlib")
CANDIDATES = [{"id": "a", "text": "Call Ann"}, {"id": "b", "text": "Take a walk"}]


def test_a_process_that_serves_tips_never_imports_mlflow(fresh_home: Path, tmp_path: Path) -> None:
    """Decisions, rewards, recommendations, and the ledger asked: in another process."""
    errors = tmp_path / "imports.txt"
    with Proxy(decide=lambda _request: "hang").running() as ledger, errors.open("w") as said:
        env = os.environ | {"MLFLOW_TRACKING_URI": ledger.url, "PYTHONPROFILEIMPORTTIME": "1"}
        command = [sys.executable, "-m", "tipbench", "serve", "--only", "tips", "--port", "0"]
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=said, text=True) as process:
            try:
                line = next(line for line in process.stdout or () if "http://" in line)
                _use(line.strip().rpartition(" ")[2])
                wait_until(lambda: ledger.seen, within_s=60)
            finally:
                process.terminate()
    names = {line.rpartition("|")[2].strip() for line in errors.read_text().splitlines()}
    assert "tipbench.bandit.counter" in names
    assert not {name for name in names if name.partition(".")[0] in SLOW}


def _use(url: str) -> None:
    asked: dict[str, Any] = {"user_id": "u", "candidates": CANDIDATES}
    for path in ("/score/hybrid", "/recommend"):
        reply = httpx.post(url + path, json=asked, timeout=30)
        assert reply.status_code == 200
        told = {"decision_id": reply.json()["decision_id"], "reward_id": "r", "event": "completed"}
        assert httpx.post(f"{url}/reward", json=told).json()["learned"]
    assert httpx.post(f"{url}/recommend", json={"user_id": "u"}).status_code == 404
    assert httpx.get(f"{url}/stats/hybrid").status_code == 200
