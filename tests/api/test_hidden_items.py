"""A judge's token cannot find the hidden items: replies in words, three rejections, then other texts."""

from __future__ import annotations

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from api_world import EXPERIMENT, GOOD, POOR, Api, judge_all, open_api, score
from judged_world import plant, with_tips
from tipbench.judge.attempts import hidden_texts
from tipbench.judge.foils import scenario_stems, stems
from tipbench.service import create_app
from tipbench.settings import Settings
from tipbench.suite import load_suite
from tipbench.workflows.applying import apply_file
from tipbench.workflows.exporting import batch_file
from tipbench.workflows.judge_replies import Rejected
from tipbench.workflows.judged import read_judged
from tipbench.workflows.service_state import Service
from verdict_planting import BEN, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from starlette.testclient import TestClient

    from judged_world import World
    from tipbench.records import Batch, CellResult

BATCH = f"/api/judge/{EXPERIMENT}/batch"
EXPORT = f"/api/judge/{EXPERIMENT}/export"
STATUS = f"/api/judge/{EXPERIMENT}/status"
APPLY = "/api/judge/apply"

Answer = dict[str, Any]


def filled(
    api: Api, file: Answer, change: Callable[[int, Answer], Mapping[str, Any] | None] | None = None
) -> Answer:
    """The file with true scores; `change` may return others for the nth item, or None to skip it."""
    for number, item in enumerate(file["items"]):
        given = score(api.world, item) if change is None else change(number, item)
        if given is not None:
            item["judge"] |= given
    return file


def far_off(api: Api, file: Answer, n: int) -> Answer:
    """The file with scores far too low, of which the nth item varies."""

    def change(number: int, item: Answer) -> Mapping[str, int]:
        low = score(api.world, item, shift=-3)
        return low | {"tone": 5} if number == n else low

    return filled(api, file, change)


def message(response: Any) -> str:  # noqa: ANN401 - of the test client
    return str(response.json()["error"]["message"])


def batches(api: Api) -> list[Batch]:
    return api.world.ledger.batches(EXPERIMENT)


def batch_of(api: Api, batch_id: str) -> Batch:
    return next(one for one in batches(api) if one.batch_id == batch_id)


def reject_three_times(api: Api, who: TestClient) -> str:
    file = who.get(EXPORT).json()
    for n in range(3):
        refused = who.post(APPLY, json=far_off(api, json.loads(json.dumps(file)), n))
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "rejected"), refused.text
    return str(file["batch"])


def test_sixty_varied_submissions_tell_no_more_than_three_rejections_a_batch(api: Api) -> None:
    """A token that varies one score at a time gets three rejections of each batch, all in the same words
    without a number, then only refusals that do not depend on the scores; hidden texts never come again.
    """
    rejections: dict[str, list[str]] = {}
    refusals, open_batches, hidden = set[str](), list[str](), list[frozenset[str]]()
    file: Answer = {}
    for n in range(60):
        taken = api.ann.get(EXPORT)
        if taken.status_code == 200 and taken.json()["batch"] != file.get("batch"):
            file = taken.json()
            open_batches.append(file["batch"])
            hidden.append(hidden_texts([batch_of(api, file["batch"])]))
        sent = far_off(api, json.loads(json.dumps(file)), n % len(file["items"]))
        answer = api.ann.post(APPLY, json=sent)
        assert answer.status_code == 409, answer.text
        if answer.json()["error"]["code"] == "rejected":
            rejections.setdefault(file["batch"], []).append(message(answer))
        else:
            refusals.add(message(answer))
    assert {len(found) for found in rejections.values()} == {3}
    assert list(rejections) == open_batches
    assert len({tuple(found) for found in rejections.values()}) == 1, "the words are the same for each batch"
    first, second, third = next(iter(rejections.values()))
    assert first == second
    assert "closed now" in third
    assert not re.search(r"\d|anchor|relevance|actionability|tone|higher|lower", first + third)
    assert len(refusals) == 1
    assert len(hidden) > 2
    assert all(not one & other for n, one in enumerate(hidden) for other in hidden[n + 1 :])
    blocked = api.ann.get(BATCH)
    assert (blocked.status_code, blocked.json()["error"]["code"]) == (409, "closed")
    assert "Ask an admin to release it" in message(blocked)
    assert not re.search(r"\d", message(blocked))


def test_a_closed_batch_refuses_right_scores_too(api: Api) -> None:
    """Once a batch is closed, the reply does not depend on the scores, by file, by strokes and by hook."""
    closed = reject_three_times(api, api.ann)
    file = filled(api, json.loads(json.dumps(exported(api, closed))))
    refused = api.ann.post(APPLY, json=file)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "closed")
    item = file["items"][0]["id"]
    assert api.ann.put(f"/api/judge/batches/{closed}/items/{item}", json={"tone": 1}).status_code == 409
    assert api.ann.post(f"/api/judge/batches/{closed}/submit").status_code in {409, 422}
    assert batch_of(api, closed).applications == ()


def exported(api: Api, batch_id: str) -> Answer:
    """The file of a batch, as somebody may have kept it."""
    state = read_judged(api.world.ledger, EXPERIMENT)
    batch = batch_of(api, batch_id)
    file: Answer = json.loads(batch_file(state, batch, judge=None))
    file["judged_by"] |= {"id": batch.judge, "kind": "human"}
    return file


def test_rejections_count_together_over_every_way_and_a_restart(api: Api, tmp_path: Path) -> None:
    """A submission by strokes, one by upload to a new service and one by `judge apply` close the batch."""
    batch = judge_all(api.ann, api.world, shift=-3)
    assert api.ann.post(f"/api/judge/batches/{batch}/submit").status_code == 409
    api.service.close()
    service = Service(api.service.config)
    again = replace(api, service=service, app=create_app(service))
    file = again.ann.get(EXPORT).json()
    assert file["batch"] == batch
    assert again.ann.post(APPLY, json=far_off(api, json.loads(json.dumps(file)), 1)).status_code == 409
    path = tmp_path / "b.json"
    path.write_text(json.dumps(far_off(api, file, 2)), encoding="utf-8")
    with pytest.raises(Rejected, match="It is closed now"):
        apply_file(api.world.settings, str(path))
    assert again.ann.get(BATCH).json()["batch"] != batch
    service.close()


def test_the_same_scores_again_and_files_with_mistakes_count_no_more(api: Api) -> None:
    """The same scores count once, also with another note; a file with a mistake is no submission."""
    file = far_off(api, api.ann.get(EXPORT).json(), 0)
    for note in (None, None, "a note", "another"):
        file["items"][0]["judge"]["note"] = note
        assert api.ann.post(APPLY, json=file).status_code == 409
    wrong = json.loads(json.dumps(file))
    for bad in (0, 6, "x"):
        wrong["items"][0]["judge"]["tone"] = bad
        assert api.ann.post(APPLY, json=wrong).status_code == 422
    (batch,) = batches(api)
    assert (len(batch.rejections), batch.is_closed) == (1, False)
    assert api.ann.get(BATCH).json()["batch"] == batch.batch_id


def test_a_closed_batch_is_replaced_and_that_is_recorded(api: Api) -> None:
    """The next batch hides other texts and names what it replaces, in the ledger, in the audit log and in an
    admin's status; the judge's draft is gone, and right scores are recorded.
    """
    judge_all(api.ann, api.world, shift=-3)
    closed = reject_three_times(api, api.ann)
    assert api.ann.get("/api/judge").json()[0]["open_batch"] is None
    fresh = api.ann.get(BATCH).json()["batch"]
    old, new = batch_of(api, closed), batch_of(api, fresh)
    assert new.replaces == closed
    assert any(item.role == "anchor" for item in new.items)
    assert not hidden_texts([old]) & hidden_texts([new])
    assert api.service.store.drafts.get(closed, "ann") == {}
    (row,) = api.admin.get(STATUS).json()["rejected_batches"]
    assert (row["batch_id"], row["closed"], row["replaced_by"]) == (closed, True, fresh)
    assert all("points" in one["reason"] and one["drift_z"] for one in row["rejections"])
    actions = [(one["action"], one["target"]) for one in api.admin.get("/api/audit").json()]
    assert actions[:2] == [("judge.replaced", closed), ("judge.take", fresh)]
    assert ("judge.closed", closed) in actions
    judge_all(api.ann, api.world)
    assert api.ann.post(f"/api/judge/batches/{fresh}/submit").status_code == 200


def test_candidates_of_a_closed_batch_come_last(api: Api) -> None:
    """Where others are left the next batch has those, so that comparing the two shows no hidden item."""
    plant("larger", quality={(GOOD, "v1"): 4.0, (POOR, "v1"): 2.5}, n_scenarios=8, n_tips=4)
    path = "/api/judge/larger/export?size=20"
    file = api.ann.get(path).json()
    for n in range(3):
        assert api.ann.post(APPLY, json=far_off(api, json.loads(json.dumps(file)), n)).status_code == 409
    shown = {item["tip"] for item in file["items"]}
    assert shown.isdisjoint(item["tip"] for item in api.ann.get(path).json()["items"])


def test_hidden_texts_stay_away_in_every_experiment_and_under_a_similar_name(api: Api) -> None:
    """They come neither to this judge in another experiment nor to the same name in another case."""
    for name in ("another", "yet-another"):
        plant(name, quality={(GOOD, "v1"): 4.0, (POOR, "v1"): 2.5}, n_scenarios=4)
    closed = reject_three_times(api, api.ann)
    hidden = hidden_texts([batch_of(api, closed)])
    for who, name in (("ann", "another"), ("AnN", "yet-another")):
        if who != "ann":
            api.service.store.tokens.revoke("ann", now_ms=0)
        token = api.tokens["ann"] if who == "ann" else api.service.store.tokens.create(who, "judge", now_ms=0)
        answer = replace(api, tokens={who: token}).caller(who).get(f"/api/judge/{name}/batch")
        assert answer.status_code == 200, answer.text
        (found,) = api.world.ledger.batches(name)
        assert any(item.role == "anchor" for item in found.items)
        assert not hidden & hidden_texts([found])


def about_its_scenario(result: CellResult) -> CellResult:
    """The result with tips of words that only its own scenario has, so that they can serve as foils."""
    suite = load_suite("tip")
    about = scenario_stems({one.id: one.described for one in suite.scenarios})
    mine = result.cell.scenario_id
    others = frozenset[str]().union(*(found for one, found in about.items() if one != mine))
    words = re.findall(r"[a-z]{4,}", suite.scenario(mine).described.lower())
    own = [word for word in dict.fromkeys(words) if stems(word) and stems(word) <= about[mine] - others]
    return with_tips(result, [" ".join(own[n : n + 4]) for n in range(4)], suite=suite)


def test_only_an_admin_releases_a_batch_without_a_replacement(world: World, tmp_path: Path) -> None:
    """A suite without anchors has attention checks only: after three rejections the batch is closed until an
    admin releases it; then the same batch takes three more submissions.
    """
    folder = tmp_path / "bare"
    shutil.copytree(load_suite("tip").path, folder)
    (folder / "anchors.yaml").unlink()
    manifest = folder / "suite.yaml"
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(re.sub(r"^id: .*", "id: bare", text, flags=re.MULTILINE), encoding="utf-8")
    plant(
        "bare",
        quality={(GOOD, "v1"): 4.0},
        n_scenarios=8,
        n_tips=4,
        suite=str(folder),
        changed=about_its_scenario,
    )
    bare = open_api(world, settings=Settings.of({"suite": str(folder)}))
    file = bare.ann.get("/api/judge/bare/export?size=16").json()
    assert {one.role for one in world.ledger.batch(file["batch"]).items} == {"real", "foil"}
    for tone in (1, 2, 3):
        refused = bare.ann.post(APPLY, json=all_relevant(file, tone))
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "rejected")
        assert not re.search(r"\d|another scenario|relevance", message(refused))
    blocked = bare.ann.get("/api/judge/bare/batch")
    assert (blocked.status_code, blocked.json()["error"]["code"]) == (409, "closed")
    path = f"/api/judge/batches/{file['batch']}/release"
    assert bare.ann.post(path).status_code == 403
    assert bare.nobody.post(path).status_code == 401
    assert bare.admin.post(path).json()["judge"] == "ann"
    assert bare.admin.post(path).status_code == 409, "it is not closed any more"
    assert bare.ann.get("/api/judge/bare/batch").json()["batch"] == file["batch"]
    assert bare.ann.post(APPLY, json=all_relevant(file, 3)).json()["error"]["code"] == "rejected"
    (row,) = bare.admin.get("/api/judge/bare/status").json()["rejected_batches"]
    assert (row["closed"], row["released"], len(row["rejections"])) == (False, 1, 3)
    assert {one["forgiven"] for one in row["rejections"]} == {True}
    bare.service.close()


def all_relevant(file: Answer, tone: int) -> Answer:
    sent: Answer = json.loads(json.dumps(file))
    for item in sent["items"]:
        item["judge"] |= {"relevance": 5, "actionability": 3, "tone": tone}
    return sent


def test_many_submissions_at_once_count_as_one_after_the_other(api: Api) -> None:
    """Of sixteen different files sent at the same moment three are rejected, and the rest find it closed."""
    file = api.ann.get(EXPORT).json()
    sent = [far_off(api, json.loads(json.dumps(file)), n) for n in range(16)]
    with ThreadPoolExecutor(max_workers=8) as pool:
        answers = list(pool.map(lambda one: api.ann.post(APPLY, json=one), sent))
    codes = sorted(one.json()["error"]["code"] for one in answers)
    assert codes == ["closed"] * 13 + ["rejected"] * 3


def only(api: Api, item_id: str) -> Callable[[int, Answer], Mapping[str, Any] | None]:
    return lambda _, item: score(api.world, item) if item["id"] == item_id else None


def test_handing_in_one_item_does_not_tell_whether_it_is_hidden(api: Api) -> None:
    """Alone, an anchor, a foil and a candidate get the same reply, and move neither the status nor the list
    nor the open batch. Every cell has one tip, so that a candidate completes one.
    """
    world = plant("single", quality={(GOOD, "v1"): 4.0, (POOR, "v1"): 2.5}, n_scenarios=4, n_tips=1)
    single = replace(api, world=world)
    file = api.ann.get("/api/judge/single/export").json()
    (batch,) = world.ledger.batches("single")
    one_each = {item.role: item.id for item in batch.items}
    assert set(one_each) == {"real", "anchor", "foil"}
    before, replies = what_is_read(api, "single"), list[Answer]()
    for item_id in (one_each[role] for role in ("real", "foil", "anchor")):
        sent = filled(single, json.loads(json.dumps(file)), only(single, item_id))
        answer = api.ann.post(APPLY, json=sent)
        assert answer.status_code == 200, answer.text
        replies.append({name: value for name, value in answer.json().items() if name != "skipped"})
        assert what_is_read(api, "single") == before
    assert replies[0] == replies[1] == replies[2]
    left = api.ann.get("/api/judge/single/batch").json()["items"]
    assert {item["id"] for item in left} == {item["id"] for item in file["items"]} - set(one_each.values())


def what_is_read(api: Api, experiment: str) -> list[Any]:
    """What a judge reads beside the reply: the status, the list of experiments and the open batch's id."""
    status = api.ann.get(f"/api/judge/{experiment}/status").json()
    del status["open_batches"]
    batch = api.ann.get(f"/api/judge/{experiment}/batch").json()["batch"]
    return [status, api.ann.get("/api/judge").json(), batch]


def test_a_changed_note_does_not_tell_whether_an_item_is_hidden(api: Api) -> None:
    """After the batch is in, a file with one more note has the same counts for each kind of item."""
    file = filled(api, api.ann.get(EXPORT).json())
    assert api.ann.post(APPLY, json=file).status_code == 200
    roles = {item.id: item.role for item in batch_of(api, file["batch"]).items}
    counts: dict[str, set[tuple[int, ...]]] = {}
    for item in file["items"]:
        item["judge"] |= {"note": "hm", "overlong": True}
        told = api.ann.post(APPLY, json=file).json()
        counts.setdefault(roles[item["id"]], set()).add((told["new"], told["changed"], told["unchanged"]))
    assert list(counts.values()) == [{(1, 0, len(file["items"]) - 1)}] * 3


def test_nothing_that_a_judge_reads_of_an_accepted_batch_has_drift_in_numbers(api: Api) -> None:
    """Neither the reply, nor the status, nor the page: words only; an admin's status has the chart."""
    batch = judge_all(api.ann, api.world)
    told = api.ann.post(f"/api/judge/batches/{batch}/submit").json()
    assert set(told["drift"]) == {"state", "reason", "accepted"}
    assert not re.search(r"\d", told["drift"]["reason"])
    (own,) = api.ann.get(STATUS).json()["judges"]
    assert own["chart"] == []
    assert api.admin.get(STATUS).json()["judges"][0]["chart"]
    page = api.ann.get(f"/judge/{EXPERIMENT}/result").text
    assert "Your scores agree with the agreed scores" in page
    assert '<svg class="drift"' not in page


def test_the_page_shows_rejections_to_an_admin_alone(api: Api) -> None:
    """An admin reads the numbers and how to release the batch; the judge's page has neither."""
    closed = reject_three_times(api, api.ann)
    page = api.admin.get(f"/judge/{EXPERIMENT}/result").text
    assert closed in page
    assert f"judge release {closed}" in page
    assert "points away from their references" in page or "lower than their references" in page
    own = api.ann.get(f"/judge/{EXPERIMENT}/result").text
    assert "references" not in own
    assert closed not in own


def test_a_judge_reads_how_far_people_agree_in_words_alone(api: Api) -> None:
    """The reply to a batch, the status and the page have no alpha, no count and no severity for a judge; an
    admin gets the numbers in the status and on the page.
    """
    file = filled(api, api.ann.get(EXPORT).json())
    judge(api.world.ledger, EXPERIMENT, BEN, lambda run, slot: 5 + slot + 6 * (run.model == GOOD))
    applied = api.ann.post(APPLY, json=file)
    assert applied.status_code == 200, applied.text
    words = applied.json()["agreement"]
    assert words["word"] in {"good", "tolerable", "poor"}
    assert words.keys() == {"word", "enough"}
    told = api.ann.get(STATUS).json()
    assert told["agreement"] == words
    assert [one["severity"] for one in told["judges"]] == [None]
    numbers = api.admin.get(STATUS).json()
    assert numbers["agreement"]["n_items"] == len(api.world.worth)
    assert numbers["agreement"]["alpha"].keys() == {"relevance", "actionability", "tone"}
    assert all(one["severity"] for one in numbers["judges"])
    pages = [who.get(f"/judge/{EXPERIMENT}/result").text for who in (api.ann, api.admin)]
    agreed = [re.search(r'id="agreement-h".*?</section>', page, re.DOTALL) for page in pages]
    assert all(agreed)
    for_judge, for_admin = (re.sub(r"<[^>]*>", " ", found[0]) for found in agreed if found)
    assert not re.search(r"\d", for_judge), for_judge
    assert words["word"] in for_judge
    assert re.search(r"\d\.\d", for_admin)
