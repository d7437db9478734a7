"""`ship` and its undoing: what becomes the app's generator, where that is written, and never by halves."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from compared_worlds import BIG, SMALL
from judged_world import plant
from ledger_servers import MlflowServer, Proxy
from shipped_world import plant_judged, settings
from tipbench.compare.recommendation import Preferences
from tipbench.errors import (
    BadInput,
    CheckFailed,
    LedgerUnreachable,
    NotFound,
    PinConflict,
    StoreUnusable,
)
from tipbench.ledger import open_ledger
from tipbench.ledger.locks import file_lock
from tipbench.ledger.shipments import model_name
from tipbench.records import Sampling
from tipbench.settings import home as settings_home
from tipbench.suite import load_suite
from tipbench.workflows.shipped_file import read_filed, write_filed
from tipbench.workflows.shipping import history, refreshed, roll_back, ship, shipped
from verdict_planting import ANNA, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ledger_servers import Request
    from tipbench.records import CellResult


@pytest.fixture(scope="module")
def planted(made_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with every experiment, which tests copy: planting takes a while."""
    home = tmp_path_factory.mktemp("planted") / "home"
    shutil.copytree(made_home, home)
    names = ("won", "won-by-the-small-one", "tied", "unsure", "rules", "not judged")
    plant_judged(*names, ledger=open_ledger("", home=home))
    return home


@pytest.fixture
def home(fresh_home: Path, planted: Path) -> Path:
    shutil.copytree(planted, fresh_home)
    return fresh_home


def test_the_winner_is_shipped_with_all_that_is_known(home: Path) -> None:
    """What was chosen, by which numbers, with which options: in MLflow under the alias, and on this disk."""
    done = ship(settings(), experiment="won")
    assert (done.model, done.prompt_id, done.because, done.ground) == (*BIG, "winner", "human")
    assert (done.mean, done.version, done.replaces, done.n_tips) == (16.5, 1, None, 2)
    assert done.low is not None
    assert done.high is not None
    assert done.low < 16.5 < done.high
    assert done.sampling == Sampling(temperature=0.7, num_ctx=2048, num_predict=400)
    assert done.cautions[0].startswith("Judge drift not checked")
    assert open_ledger("", home=home).shipped("tip") == done
    assert shipped() == shipped(home) == done
    tags = (
        open_ledger("", home=home)._store._client.get_model_version_by_alias("tipbench-tip", "shipped").tags
    )
    for name in ("model", "digest", "prompt_id", "prompt_hash", "suite_hash", "experiment", "mean", "low"):
        assert tags[f"tipbench.{name}"] == str(getattr(done, name))


def test_nothing_is_shipped_at_first(home: Path) -> None:
    """No file, no version, and nothing to go back to."""
    assert (shipped(), refreshed(settings()), history(settings()).versions) == (None, None, ())
    with pytest.raises(NotFound, match="nothing is shipped for the suite 'tip'"):
        roll_back(settings())


def test_a_best_guess_is_refused_with_the_tie_group(home: Path) -> None:
    """The message lists each variant that is tied for first with its numbers; nothing is shipped."""
    with pytest.raises(CheckFailed) as refusal:
        ship(settings(), experiment="unsure")
    lines = str(refusal.value).splitlines()
    assert lines[0].startswith("No winner: 2 of 2 variants are tied for first")
    assert "a-big:1b with v1 is the best guess: with 39 % probability it is more than 0.75" in lines[0]
    assert [line.split()[0] for line in lines[1:3]] == ["a-big:1b/v1", "b:500m/v1"]
    assert "11.50 (" in lines[1]
    assert "on 4 scenarios" in lines[1]
    assert lines[3] == (
        "Pass --recommended to ship the best guess a-big:1b with v1, or --cell with one of these names."
    )
    assert shipped() is None
    assert open_ledger("", home=home).shipments("tip") == []


def test_the_best_guess_or_a_named_variant_is_shipped_when_a_person_chooses(home: Path) -> None:
    """Both versions carry that there was no winner."""
    guess = ship(settings(), experiment="unsure", recommended=True)
    assert ((guess.model, guess.prompt_id), guess.because) == (BIG, "recommended")
    assert any("is the best guess" in line for line in guess.cautions)
    other = ship(settings(), experiment="unsure", cell="b:500m/v1")
    assert ((other.model, other.prompt_id), other.because, other.replaces) == (SMALL, "named", guess.version)
    assert any("No winner" in line for line in other.cautions)
    spoken = ship(settings(), experiment="unsure", cell="a-big:1b with v1")
    assert (spoken.model, spoken.prompt_id) == BIG


@pytest.mark.parametrize("recommended", [False, True])
def test_a_recommended_variant_is_shipped_although_it_is_no_winner(home: Path, recommended: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """The cheapest of a tie is close enough to the best; the version carries the tie and the probability."""
    done = ship(settings(), experiment="tied", recommended=recommended)
    assert ((done.model, done.prompt_id), done.because) == (SMALL, "recommended")
    (said,) = (line for line in done.cautions if "No winner" in line)
    assert "Ship b:500m with v1" in said
    assert "81 % probability" in said
    assert open_ledger("", home=home).shipped("tip") == shipped() == done


def test_a_cheaper_variant_than_the_winner_is_shipped_within_the_accepted_loss(home: Path) -> None:
    """The version names the winner and the variant that is shipped in its place."""
    done = ship(settings(), experiment="won", preferences=Preferences(accept_loss=6.0))
    assert ((done.model, done.prompt_id), done.because) == (SMALL, "recommended")
    (said,) = (line for line in done.cautions if "is the best of 2" in line)
    assert said.startswith("a-big:1b with v1 is the best of 2")
    assert "Ship b:500m with v1: it is the cheapest variant that is close enough to the best" in said
    strict = ship(settings(), experiment="tied", preferences=Preferences(accept_loss=0.2))
    assert (strict.model, strict.prompt_id) == BIG


def test_the_recommended_one_of_an_experiment_with_a_winner_is_the_winner(home: Path) -> None:
    """So a script may always pass --recommended."""
    assert ship(settings(), experiment="won", recommended=True).because == "winner"


def test_one_that_is_behind_says_so(home: Path) -> None:
    """Whoever names the loser gets it, and it is written down that it was behind."""
    done = ship(settings(), experiment="won", cell="b:500m/v1")
    assert "b:500m with v1 was named although it is behind a-big:1b with v1." in done.cautions


@pytest.mark.parametrize("cell", ["b:500/v1", "b:500m", "", "/", "v1/b:500m"])
def test_a_cell_that_is_not_there_is_named(home: Path, cell: str) -> None:
    """The message lists those that are."""
    with pytest.raises(NotFound, match=r"there are a-big:1b/v1, b:500m/v1; write MODEL/PROMPT"):
        ship(settings(), experiment="won", cell=cell)


def test_two_choices_are_one_too_many(home: Path) -> None:
    """--recommended and --cell contradict each other."""
    with pytest.raises(BadInput, match="give one of them"):
        ship(settings(), experiment="won", recommended=True, cell="b:500m/v1")


def test_what_nobody_judged_says_what_to_do(home: Path) -> None:
    """The winner, the recommended and a named one are refused alike; insisting ships what is named."""
    for recommended in (False, True):
        with pytest.raises(CheckFailed, match="nothing of experiment 'not judged' is judged yet") as refusal:
            ship(settings(), experiment="not judged", recommended=recommended)
        assert "tipbench judge export --experiment 'not judged'" in str(refusal.value)
    with pytest.raises(CheckFailed, match="nobody has judged b:500m with v1"):
        ship(settings(), experiment="not judged", cell="b:500m/v1")
    done = ship(settings(), experiment="not judged", cell="b:500m/v1", insist=True)
    assert (done.mean, done.low, done.ground) == (None, None, None)
    assert done.cautions[0] == "Nobody has judged b:500m with v1."
    assert done.cautions[1].startswith("None of its tips was judged worth serving")
    assert open_ledger("", home=home).shipped("tip") == shipped() == done


def test_the_proxy_alone_is_no_ground_for_shipping(home: Path) -> None:
    """Refused as `compare` refuses; insisted on, none is picked, but one that is named is shipped as such."""
    for cell in (None, "a-big:1b/v1"):
        with pytest.raises(CheckFailed, match="would stand on proxy alone"):
            ship(settings(), experiment="rules", cell=cell)
    for recommended in (False, True):
        with pytest.raises(CheckFailed, match="no ground for choosing what to ship"):
            ship(settings(), experiment="rules", insist=True, recommended=recommended)
    assert shipped() is None
    done = ship(settings(), experiment="rules", insist=True, cell="a-big:1b/v1")
    assert done.ground == "proxy"
    assert done.cautions[0].startswith(
        "Scores come from simple word rules (the proxy judge). Do not ship on them."
    )


def test_an_unknown_experiment_is_named(home: Path) -> None:
    """Those that are there are listed."""
    with pytest.raises(NotFound, match="there is no experiment 'own'"):
        ship(settings(), experiment="own")


def test_what_is_shipped_already_is_not_shipped_again(home: Path) -> None:
    """The same command twice makes one version, and puts back a lost file; more verdicts make another."""
    first = ship(settings(), experiment="won")
    (home / "shipped.json").unlink()
    assert ship(settings(), experiment="won") == first == shipped()
    judge(open_ledger("", home=home), "won", ANNA, lambda _run, _slot: 15, batch_id="b2", at_ms=2000)
    second = ship(settings(), experiment="won", cell="a-big:1b/v1")
    assert (second.version, second.replaces) == (2, 1)


def test_rolling_back_goes_down_the_chain_and_says_where_it_ends(home: Path) -> None:
    """Each step puts back what was replaced, in MLflow and on disk, also past what was rolled back before."""
    first = ship(settings(), experiment="won")
    second = ship(settings(), experiment="won-by-the-small-one")
    assert roll_back(settings()) == first == shipped() == open_ledger("", home=home).shipped("tip")
    third = ship(settings(), experiment="tied", recommended=True)
    assert (second.replaces, third.replaces) == (1, 1)
    fourth = ship(settings(), experiment="won")
    found = history(settings())
    assert (len(found.versions), found.in_use, found.before) == (4, fourth.version, (3, 1))
    assert [roll_back(settings()) for _ in range(2)] == [third, first]
    with pytest.raises(NotFound, match=r"version 1 \(a-big:1b with v1\) is the first .* nothing before it"):
        roll_back(settings())
    assert shipped() == first
    filed = read_filed(home)
    assert filed is not None
    assert filed.kinds[0].tips


def test_a_version_that_was_deleted_in_mlflow_cannot_be_gone_back_to(home: Path) -> None:
    """It is named; what is shipped stays."""
    ship(settings(), experiment="won")
    second = ship(settings(), experiment="won-by-the-small-one")
    open_ledger("", home=home)._store._client.delete_model_version(model_name("tip"), "1")
    with pytest.raises(NotFound, match="version 1 of 'tipbench-tip', which was shipped before, is not at"):
        roll_back(settings())
    assert shipped() == second


def test_the_file_follows_what_was_shipped_elsewhere(home: Path) -> None:
    """Where the alias was moved from another machine; what another ledger shipped is left alone."""
    first = ship(settings(), experiment="won")
    ship(settings(), experiment="won-by-the-small-one")
    ledger = open_ledger("", home=home)
    ledger.set_shipped("tip", first.version)
    found = refreshed(settings())
    assert found == read_filed(home)
    assert found is not None
    assert found.shipped == first
    elsewhere = replace(found, ledger="http://other:5000")
    write_filed(home, elsewhere)
    ledger.set_shipped("tip", 2)
    assert refreshed(settings()) == elsewhere == read_filed(home)


def test_the_tips_beside_it_are_the_judged_ones_best_first(home: Path) -> None:
    """By scenario; no overlong one, none of a failed reply, none that is worth no more than a failure."""
    ledger = open_ledger("", home=home)

    def changed(one: CellResult) -> CellResult:
        if one.cell.model.name != BIG[0] or one.cell.scenario_id != "maya-monday-morning":
            return one
        assert one.reading is not None
        texts = ("Poor.", "Long " * 100, "Good.", "Bad.", "Good. ", "Fair.")
        candidates = tuple(replace(one.candidates[0], text=text) for text in texts)
        return replace(one, cell=replace(one.cell, n_tips=6), candidates=candidates)

    plant("x", quality={BIG: 3.0, SMALL: 3.0}, ledger=ledger, changed=changed)
    worth = {"Good.": 15, "Good. ": 15, "Fair.": 9, "Poor.": 6, "Bad.": 1}
    texts = {run.run_id: [one.text for one in run.candidates] for run in ledger.runs("x")}
    judge(ledger, "x", ANNA, lambda run, slot: max(3, worth.get(texts[run.run_id][slot], 9)))
    done = ship(settings(), experiment="x", cell="a-big:1b/v1")
    filed = read_filed(home)
    assert filed is not None
    assert [kind.id for kind in filed.kinds][:2] == ["maya-monday-morning", "jonas-before-shift"]
    maya = filed.kinds[0]
    assert (maya.who, maya.weekday, maya.hour) == ("Maya", 0, 8.5)
    assert maya.tips[:3] == ("Good.", "Fair.", "Poor.")
    assert not any(text.startswith("Long") for text in maya.tips)
    assert len(filed.kinds) == 8
    assert filed.kinds[7].tips == ()
    assert done.n_tips == 2
    assert any("2 different sets of options" in line for line in done.cautions)


def test_a_prompt_that_changed_since_is_refused(home: Path, tmp_path: Path) -> None:
    """What would be served is not what was judged."""
    folder = own_suite(tmp_path)
    plant("mine", quality={("a-big:1b", "v1"): 3.0, ("b:500m", "v1"): 3.0}, suite=str(folder))
    judge(open_ledger("", home=home), "mine", ANNA, lambda _run, _slot: 9)
    with pytest.raises(BadInput, match="give the folder of 'mine' with --suite"):
        ship(settings(), experiment="mine", recommended=True)
    prompt = folder / "prompts" / "v1.md"
    text = prompt.read_text()
    prompt.write_text(text + "\nAnd be quick.\n")
    with pytest.raises(PinConflict, match=r"the prompt 'v1' of .* is not the one that experiment 'mine'"):
        ship(settings(suite=str(folder)), experiment="mine", recommended=True)
    prompt.write_text(text)
    done = ship(settings(suite=str(folder)), experiment="mine", recommended=True)
    filed = read_filed(home)
    assert filed is not None
    assert (filed.suite, done.suite_id) == (str(folder), "mine")
    assert refreshed(settings()) == filed


def test_rolling_back_goes_to_the_suite_that_was_served_before(home: Path, tmp_path: Path) -> None:
    """Step by step through all that this machine served, whichever suite it was of."""
    folder = own_suite(tmp_path)
    mine = settings(suite=str(folder))
    plant("mine", quality={BIG: 3.0, SMALL: 3.0}, suite=str(folder))
    judge(open_ledger("", home=home), "mine", ANNA, lambda _run, _slot: 9)
    tip = ship(settings(), experiment="won")
    other = ship(mine, experiment="mine", cell="b:500m/v1")
    newer = ship(mine, experiment="mine", cell="a-big:1b/v1")
    again = ship(settings(), experiment="tied", recommended=True)
    assert (other.suite_id, other.version, again.version) == ("mine", 1, 2)
    assert [roll_back(settings()) for _ in range(2)] == [newer, other]
    filed = read_filed(home)
    assert filed is not None
    assert filed.suite == str(folder)
    assert roll_back(settings()) == tip == shipped() == open_ledger("", home=home).shipped("tip")
    with pytest.raises(NotFound, match="nothing before it"):
        roll_back(settings())


def test_an_experiment_without_a_tip_says_so(home: Path) -> None:
    """There is no combination to list, and the name that was typed is not to blame."""
    plant("empty", quality={BIG: 3.0}, changed=lambda result: replace(result, reading=None, candidates=()))
    with pytest.raises(NotFound, match="no combination of experiment 'empty' has a tip that can be read"):
        ship(settings(), experiment="empty", cell="a-big:1b/v1", insist=True)


@pytest.mark.usefixtures("home")
def test_a_variant_is_shipped_with_its_own_texts_alone() -> None:
    """Texts that the same model and prompt wrote with other sampling options are not served."""

    def colder(one: CellResult) -> CellResult:
        if one.cell.repeat == 0:
            return one
        cold = replace(one.cell.sampling, temperature=0.2)
        return replace(one, cell=replace(one.cell, sampling=cold, repeat=0))

    plant("mixed", quality={BIG: 3.0}, repeats=2, changed=colder)
    ledger = open_ledger("", home=settings_home())
    judge(ledger, "mixed", ANNA, lambda _run, _slot: 12)
    done = ship(settings(), experiment="mixed", cell="a-big:1b/v1 · t=0.2")
    assert done.sampling.temperature == 0.2
    assert done.combination == "a-big:1b · v1 · t=0.2"
    filed = read_filed(settings_home())
    assert filed is not None
    served = {text for kind in filed.kinds for text in kind.tips}
    texts: dict[float, set[str]] = {0.2: set(), 0.7: set()}
    for run in ledger.runs("mixed"):
        assert run.sampling is not None
        texts[run.sampling.temperature] |= {candidate.text for candidate in run.candidates}
    assert served
    assert served <= texts[0.2]


def own_suite(tmp_path: Path) -> Path:
    """A folder of somebody's own that is not known by its name."""
    folder = tmp_path / "my suite"
    shutil.copytree(load_suite("tip").path, folder)
    main = folder / "suite.yaml"
    main.write_text(main.read_text().replace("id: tip", "id: mine"))
    return folder


def test_a_file_that_cannot_be_read_is_named(home: Path) -> None:
    """Never taken for nothing shipped; deleted, it is taken anew from MLflow; shipping again replaces it."""
    done = ship(settings(), experiment="won")
    path = home / "shipped.json"
    path.write_text(path.read_text()[:-20])
    for deed in (shipped, lambda: roll_back(settings()), lambda: refreshed(settings())):
        with pytest.raises(StoreUnusable, match=r"shipped.json is damaged") as refusal:
            deed()
        assert "tipbench ship --status" in str(refusal.value)
    assert ship(settings(), experiment="won") == done == shipped()
    path.unlink()
    assert refreshed(settings()) is not None
    assert shipped() == done


def test_another_shipping_under_way_is_waited_for(home: Path) -> None:
    """Two at once end one after the other, each whole."""
    with ThreadPoolExecutor(1) as pool:
        with file_lock(home / "ship.lock", patience_s=1):
            waiting = pool.submit(ship, settings(), experiment="won")
            with pytest.raises(FutureTimeout):
                waiting.result(timeout=0.5)
        assert waiting.result(timeout=30) == shipped()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    folder = tmp_path_factory.mktemp("server")
    root = (folder / "out-of-reach").as_uri()
    options = ("--no-serve-artifacts", "--default-artifact-root", root)
    with MlflowServer(folder, options).running() as running:
        plant_judged("won", "won-by-the-small-one", ledger=open_ledger(running.url, home=folder / "home"))
        yield running


def test_a_server_that_dies_half_way_leaves_one_or_the_other_shipped(
    server: MlflowServer, fresh_home: Path
) -> None:
    """Whichever request of the registry is its last: the alias decides, the file is never ahead of it."""
    direct = settings(mlflow_url=server.url)
    first = ship(direct, experiment="won")
    ledger = open_ledger(server.url, home=fresh_home)
    seen: list[bool] = []
    while True:
        with Proxy(server.port, decide=dying(last=len(seen))).running() as proxy:
            try:
                ship(settings(mlflow_url=proxy.url), experiment="won-by-the-small-one")
            except LedgerUnreachable:
                ended = False
            else:
                ended = True
        now, held = ledger.shipped("tip"), shipped()
        assert now is not None
        moved = now.model == SMALL[0]
        assert moved or now == first
        assert held in (now, first)
        assert not ended or held == now
        seen.append(moved)
        ledger.set_shipped("tip", first.version)
        refreshed(direct)
        if ended:
            break
        (fresh_home / "shipped.json").unlink()
        assert ship(direct, experiment="won") == first
    assert seen == sorted(seen)
    assert (seen.count(False) > 3, seen.count(True) >= 1) == (True, True)


def dying(*, last: int) -> Callable[[Request], str]:
    """A server that takes in the request `last` to its registry, and is never heard of again."""
    count = 0

    def decide(request: Request) -> str:
        nonlocal count
        if "registered-models" not in request.path and "model-versions" not in request.path:
            return "pass" if count <= last else "drop before"
        count += 1
        return "pass" if count <= last else "drop after" if count == last + 1 else "drop before"

    return decide


def test_a_server_that_is_away_leaves_the_file(server: MlflowServer, fresh_home: Path) -> None:
    """What is shipped is known without it; shipping and going back say that it cannot be reached."""
    done = ship(settings(mlflow_url=server.url), experiment="won")
    away = settings(mlflow_url="http://127.0.0.1:9")
    deeds = (lambda: ship(away, experiment="won"), lambda: roll_back(away), lambda: history(away))
    for deed in deeds:
        with pytest.raises(LedgerUnreachable, match=r"127.0.0.1:9 cannot be reached"):
            deed()
    assert shipped() == done
