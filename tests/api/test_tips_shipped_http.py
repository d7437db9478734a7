"""From the bench to the app: what is shipped is what `/recommend` picks from."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from compared_worlds import BIG, SMALL
from judged_world import plant
from shadow_world import until
from shipped_world import filed, plant_judged, settings
from tiny_gguf import write_tiny_gguf
from tip_service import NOWHERE, ONLY_TIPS, TipService, serving
from tipbench.ledger import open_ledger
from tipbench.suite import load_suite
from tipbench.workflows.shipped_file import FILE, write_filed
from tipbench.workflows.shipping import roll_back, ship
from verdict_planting import ANNA, judge

if TYPE_CHECKING:
    from pathlib import Path

MAYA = {"scenario": "maya-monday-morning"}
ENGINE_AWAY = ("--only", "tips", "--ollama-url", NOWHERE, "--engine", "ollama")


def tip(service: TipService, user: str = "app", **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any field
    answer = service.post("/recommend", {"user_id": user, "context": MAYA, **changes})
    assert answer.status_code == 200, answer.text
    said: dict[str, Any] = answer.json()
    return said


def test_what_is_shipped_is_served_and_rolled_back_without_a_restart(home: Path) -> None:
    """Nothing, then a winner, then another, then the first again: judged tips, as the engine is away.

    A repeated request has the tip that it had, whatever is shipped by then, also when nothing is.
    """
    plant_judged("won", "won-by-the-small-one")
    with serving(home, *ENGINE_AWAY) as service:
        assert service.post("/recommend", {"user_id": "app"}).status_code == 404
        first = ship(settings(), experiment="won")
        until(lambda: service.post("/recommend", {"user_id": "app", "context": MAYA}).status_code == 200)
        one = tip(service, request_id="r")
        assert (one["source"], one["policy"], set(one["propensities"])) == ("judged", "egreedy", ids(home))
        assert one["tip"]["id"] == one["tip_id"]
        assert one["tip"]["text"] in texts(home)
        assert service.reward(one["decision_id"]).json()["learned"]
        before = ids(home)
        ship(settings(), experiment="won-by-the-small-one")
        assert ids(home) != before
        until(lambda: set(tip(service)["propensities"]) == ids(home))
        assert tip(service, request_id="r") == one
        assert roll_back(settings()).version == first.version
        until(lambda: set(tip(service)["propensities"]) == before)
        refused = service.post("/recommend", {"user_id": "app", "context": {"scenario": "nope"}})
        assert refused.status_code == 404
        assert "nope" in refused.json()["error"]["message"]
    (home / FILE).unlink()
    shutil.rmtree(home / "mlflow", ignore_errors=True)
    with serving(home, *ONLY_TIPS) as service:
        assert tip(service, request_id="r") == one
        assert service.post("/recommend", {"user_id": "app", "request_id": "other"}).status_code == 404


def test_each_suite_has_its_own_policy_state(home: Path, tmp_path: Path) -> None:
    """What `/score` learned belongs to the first suite; another starts fresh; going back brings it back."""
    folder = tmp_path / "mine"
    shutil.copytree(load_suite("tip").path, folder)
    main = folder / "suite.yaml"
    main.write_text(main.read_text().replace("id: tip", "id: mine"))
    plant_judged("won")
    plant("mine", quality={BIG: 3.0, SMALL: 3.0}, suite=str(folder))
    judge(open_ledger("", home=home), "mine", ANNA, lambda _run, _slot: 9)
    with serving(home, *ENGINE_AWAY) as service:

        def weights() -> dict[str, float] | None:
            by_name = service.get("/stats", user_id="anna")["policies"]
            found: dict[str, float] | None = by_name["egreedy"]["weights"]
            return found

        assert service.reward(service.score()).json()["learned"]
        learned = weights()
        assert learned
        ship(settings(), experiment="won")
        until(lambda: service.post("/recommend", {"user_id": "app", "context": MAYA}).status_code == 200)
        assert weights() == learned
        ship(settings(suite=str(folder)), experiment="mine", cell="b:500m/v1")
        until(lambda: weights() is None)
        assert service.reward(service.score()).json()["learned"]
        own = weights()
        roll_back(settings())
        until(lambda: weights() == learned)
        service.end()
    ship(settings(suite=str(folder)), experiment="mine", cell="b:500m/v1")
    with serving(home, *ENGINE_AWAY) as service:
        assert weights() == own


def test_state_follows_a_suite_that_was_shipped_while_it_was_away(home: Path) -> None:
    """A service that starts with another shipped suite than the state's uses that suite's state."""
    write_filed(home, filed())
    with serving(home, *ENGINE_AWAY) as service:
        assert service.reward(service.score()).json()["learned"]
    write_filed(home, replace(filed(), shipped=replace(filed().shipped, suite_id="other"), suite=""))
    with serving(home, *ENGINE_AWAY) as service:
        found = service.get("/stats", user_id="anna")["policies"]
        assert found["egreedy"]["weights"] is None


def ids(home: Path) -> set[str]:
    """The ids of the tips that the file has for Maya's Monday."""
    from tipbench.judge.candidates import candidate_key

    return {candidate_key(MAYA["scenario"], text) for text in texts(home)}


def texts(home: Path) -> set[str]:
    from tipbench.workflows.shipped_file import read_filed

    found = read_filed(home)
    assert found is not None
    return {text for kind in found.kinds if kind.id == MAYA["scenario"] for text in kind.tips}


def test_a_moment_is_matched_to_what_it_is_like(tmp_path: Path) -> None:
    """By persona, hour and weekday where no scenario is named; what is named is served or refused."""
    write_filed(made(tmp_path), replace(filed(), ledger=NOWHERE))
    with serving(tmp_path / "home", *ONLY_TIPS) as service:
        said = service.post(
            "/recommend", {"user_id": "app", "context": {"persona": "Maya", "hour": 9}}
        ).json()
        assert said["tip"]["text"] in {"Best for maya-monday-morning.", "Good."}
        assert said["tip"]["kind"]
        other = service.post("/recommend", {"user_id": "app", "context": {"hour": 20, "weekday": 3}})
        assert other.status_code == 200
        until(lambda: "engine" in service.get("/stats")["pool_troubles"])
        assert NOWHERE in service.get("/stats")["pool_troubles"]["engine"]
        named = {"user_id": "app", "context": {"scenario": "maya-thursday-evening"}}
        assert service.post("/recommend", named).status_code == 503


def test_fresh_tips_are_written_by_the_real_engine(tmp_path: Path) -> None:
    """Judged tips at first; then what the shipped model has just written, by a llama.cpp of the service's."""
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    shipped = filed(model="tiny", digest=digest, prompt="v4-structured")
    write_filed(made(tmp_path), replace(shipped, ledger=NOWHERE))
    engine = ("--engine", "embedded", "--gguf", f"tiny={path}", "--mlflow-url", NOWHERE)
    with serving(tmp_path / "home", "--only", "tips", *engine) as service:
        assert tip(service)["source"] == "judged"
        until(lambda: tip(service)["source"] == "fresh", within_s=120)
        said = tip(service)
        assert said["tip"]["text"]
        assert len(said["propensities"]) == 2
        assert service.reward(said["decision_id"]).json()["learned"]
        assert service.end() == 0


def made(folder: Path) -> Path:
    (folder / "home").mkdir()
    return folder / "home"
