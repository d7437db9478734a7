"""Pages as they leave the service: who may see them, what is on them, and what never is."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from web_world import BIG, JUDGED, SMALL, WAITING, inlined

if TYPE_CHECKING:
    from api_world import Api

ADMIN_PAGES = (
    "/experiments",
    f"/experiments/{JUDGED}",
    f"/experiments/{WAITING}",
    "/jobs",
    "/policies",
    "/system",
    "/tokens",
    "/audit",
    "/docs",
)
JUDGE_PAGES = ("/judge", f"/judge/{WAITING}", f"/judge/{JUDGED}/result")


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


@pytest.mark.parametrize("path", [*ADMIN_PAGES, *JUDGE_PAGES])
def test_an_admin_sees_every_page(pages: Api, path: str) -> None:
    """Each page answers, has one heading and one place for its content, and holds nothing inline."""
    answer = pages.admin.get(path)
    assert answer.status_code == 200
    assert answer.text.count("<h1") == 1
    assert answer.text.count("<main") == 1
    assert "<title> " not in answer.text
    assert inlined(answer.text) == []


@pytest.mark.parametrize("path", [*ADMIN_PAGES, *JUDGE_PAGES])
def test_nobody_is_led_to_the_login_and_back(pages: Api, path: str) -> None:
    """Without a login a page leads to the login page, which knows where to go afterwards."""
    answer = pages.nobody.get(path, follow_redirects=False)
    assert answer.status_code == 303
    login = pages.nobody.get(answer.headers["location"])
    assert login.status_code == 200
    assert f'name="next" value="{path.replace(" ", "%20")}"' in login.text


@pytest.mark.parametrize("path", ADMIN_PAGES)
@pytest.mark.parametrize("who", ["ann", "program"])
def test_others_do_not_see_an_admins_pages(pages: Api, who: str, path: str) -> None:
    """A judge and a program get a page that says so, and nothing of what is on it."""
    answer = pages.caller(who).get(path)
    assert answer.status_code == 403
    assert "does not open this page" in answer.text
    assert BIG not in answer.text


@pytest.mark.parametrize("path", JUDGE_PAGES)
def test_a_judge_sees_no_model_and_no_prompt(pages: Api, path: str) -> None:
    """What a judge sees names neither who wrote the tips nor with which prompt."""
    answer = pages.ann.get(path)
    assert answer.status_code == 200
    for name in (BIG, SMALL, "v2-mentor", "gemma", "qwen"):
        assert name not in answer.text
    assert "/experiments" not in answer.text


def test_a_program_may_not_judge(pages: Api) -> None:
    """A service token opens no page at all."""
    assert pages.caller("program").get("/judge").status_code == 403


@pytest.mark.parametrize(
    "path", ["/nowhere", "/experiments/none-such", "/jobs/none-such", "/judge/none-such"]
)
def test_what_is_not_there_is_a_page_that_says_so(pages: Api, path: str) -> None:
    """A wrong address gets one sentence and a way back, not JSON."""
    answer = pages.admin.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert "To the start page" in answer.text


def test_errors_of_the_api_stay_json(pages: Api) -> None:
    """What programs ask for is answered to programs."""
    answer = pages.admin.get("/api/jobs/none-such")
    assert answer.status_code == 404
    assert "error" in answer.json()


def test_the_list_says_how_much_is_judged(pages: Api) -> None:
    """A bar and words for each experiment, and no collection dialog without its script."""
    answer = pages.admin.get("/experiments").text
    assert "all judged" in answer
    assert "4 of 4 cells to judge" in answer
    assert 'class="gauge-full" width="100%"' in answer
    assert re.search(r'<button[^>]*id="open-run"[^>]* hidden', answer)


def test_the_experiment_begins_with_the_answer(pages: Api) -> None:
    """The two sentences, then the leaderboard with its ties, the plots and the cells."""
    answer = pages.admin.get(f"/experiments/{JUDGED}").text
    report = pages.service.report(JUDGED, ground=None, insist=False, max_latency_ms=None)
    places = [
        answer.index(part)
        for part in ('id="answer"', 'id="leaderboard"', 'id="means"', 'id="grid"', 'id="cells"')
    ]
    assert places == sorted(places)
    for sentence in report.sentences:
        assert sentence in answer.replace("&#39;", "'")
    assert ">1=<" in answer


def test_names_in_the_board_lead_to_their_cells(pages: Api) -> None:
    """The link of a row lists exactly the cells of its combination."""
    board = pages.admin.get(f"/experiments/{JUDGED}").text
    link = re.search(r'<th scope="row" role="rowheader"><a href="([^"#]+)', board)
    assert link is not None
    cells = pages.admin.get(link[1].replace("&amp;", "&")).text
    rows = re.findall(r'<tr><th scope="row"><a href="/experiments/[^"]+/runs/[^"]+">', cells)
    assert len(rows) == 4


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", 16),
        (f"model={SMALL}", 8),
        ("prompt=v1&scenario=maya-monday-morning", 2),
        ("judged=no", 0),
        ("judged=yes", 16),
    ],
)
def test_cells_are_filtered(pages: Api, query: str, expected: int) -> None:
    """By model, prompt, scenario and whether they are judged, alone and together."""
    answer = pages.admin.get(f"/experiments/{JUDGED}?{query}").text
    assert len(re.findall(r"/runs/[^\"]+\">", answer)) == expected


@pytest.mark.parametrize("query", ["max_latency_ms=fast", "max_latency_ms=-1", "ground=cat", "top=x"])
def test_an_address_that_cannot_be_meant_is_refused(pages: Api, query: str) -> None:
    """One sentence instead of a ranking that nobody asked for."""
    assert pages.admin.get(f"/experiments/{JUDGED}?{query}").status_code == 422


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("accept_loss=much", "&#39;much&#39; is not a number of points, such as 0.75"),
        ("accept_loss=-1", "&#39;-1&#39; is not a number of points, such as 0.75"),
        ("accept_loss=nan", "&#39;nan&#39; is not a number of points, such as 0.75"),
        ("cost=money", "there is no cost &#39;money&#39;; there are parameters, seconds, memory"),
    ],
)
def test_a_wrong_loss_or_cost_is_one_sentence(pages: Api, query: str, sentence: str) -> None:
    """The page names the value and what to give, and has no ranking. The files are refused as well."""
    answer = pages.admin.get(f"/experiments/{JUDGED}?{query}")
    assert answer.status_code == 422
    assert sentence.lower() in answer.text.lower()
    assert 'id="leaderboard"' not in answer.text
    assert pages.admin.get(f"/experiments/{JUDGED}/report.csv?{query}").status_code == 422


def test_the_form_keeps_the_accepted_loss_and_the_cost(pages: Api) -> None:
    """Both fields hold what was chosen, the ranking uses them, and the downloads follow."""
    plain = pages.admin.get(f"/experiments/{JUDGED}").text
    assert re.search(r'<input name="accept_loss"[^>]* value=""', plain)
    assert re.search(r"<option>parameters</option>|<option selected>parameters</option>", plain)
    answer = pages.admin.get(f"/experiments/{JUDGED}?accept_loss=9.5&cost=seconds").text
    assert re.search(r'<input name="accept_loss"[^>]* value="9.5"', answer)
    assert re.findall(r"<option selected>(\w+)</option>", answer) == ["seconds"]
    assert "report.csv?accept_loss=9.5&amp;cost=seconds" in answer
    assert "at most 9.5 points worse than the best" in answer
    assert "at most 9.5 points" not in plain
    row = pages.admin.get(f"/experiments/{JUDGED}/report.json?accept_loss=9.5&cost=seconds").json()
    assert (row["margin"], row["recommended"]["model"]) == (9.5, SMALL)


def test_the_fields_may_be_empty(pages: Api) -> None:
    """A browser sends empty fields too: they have the same ranking as no fields."""
    empty = pages.admin.get(f"/experiments/{JUDGED}/report.json?ground=&max_latency_ms=&accept_loss=&cost=")
    plain = pages.admin.get(f"/experiments/{JUDGED}/report.json")
    assert empty.json() | {"made_ms": 0} == plain.json() | {"made_ms": 0}


def test_too_slow_rows_leave_the_board(pages: Api) -> None:
    """The slowest that is allowed changes the ranking, and the downloads follow it."""
    answer = pages.admin.get(f"/experiments/{JUDGED}?max_latency_ms=450").text
    assert "Left out as slower than 450 ms" in answer
    assert "report.csv?max_latency_ms=450" in answer


@pytest.mark.parametrize("ending", ["html", "csv", "json", "md"])
def test_the_report_is_a_file(pages: Api, ending: str) -> None:
    """Each form is saved under the experiment's name and says the same as the command."""
    answer = pages.admin.get(f"/experiments/{JUDGED}/report.{ending}")
    assert answer.status_code == 200
    assert answer.headers["content-disposition"] == f'attachment; filename="{JUDGED}.{ending}"'
    assert SMALL in answer.text
    if ending == "json":
        assert len(json.loads(answer.text)["rows"]) == 4


def test_two_cells_stand_side_by_side(pages: Api) -> None:
    """A cell shows candidates, scores, prompt and raw reply, and the same of the one beside it."""
    cells = pages.admin.get(f"/experiments/{JUDGED}?scenario=maya-monday-morning").text
    one, other, *_ = re.findall(r'(/experiments/[^"]+/runs/([^"]+))">', cells)
    answer = pages.admin.get(f"{one[0]}?beside={other[1]}").text
    assert answer.count("<article") == 2
    assert answer.count(">Raw reply<") == 2
    assert "relevance" in text_of(answer)
    assert "a &lt;b&gt;note&lt;/b&gt;" in answer
    assert pages.admin.get(f"{one[0]}?beside=none-such").status_code == 404


def test_the_judges_page_has_the_rubric(pages: Api) -> None:
    """Every level of every scale is a button with what it means; hidden items are nowhere."""
    answer = pages.ann.get(f"/judge/{WAITING}").text
    assert len(re.findall(r'class="level"', answer)) == 15
    assert "This person, this moment".lower() in answer.lower()
    assert "anchor" not in answer
    assert "foil" not in answer


def test_health_is_worst_first(pages: Api) -> None:
    """What is broken comes before what is fine, with what to do."""
    states = re.findall(r'class="finding (\w+)"', pages.admin.get("/system").text)
    assert states
    assert states == sorted(states, key=["bad", "warn", "ok"].index)


def test_tokens_are_listed_without_their_secret(pages: Api) -> None:
    """The list has names and beginnings; whose token is being used is marked."""
    answer = pages.admin.get("/tokens").text
    for name, token in pages.tokens.items():
        assert name in answer
        assert token not in answer
    assert answer.count(">you<") == 1


def test_the_audit_log_is_paged(pages: Api) -> None:
    """A hundred entries at a time, and a link to older ones."""
    for number in range(120):
        pages.service.audit(None, "test.note", f"<i>{number}</i>")
    first = pages.admin.get("/audit").text
    older = re.search(r'href="(/audit\?before=\d+)"', first)
    assert first.count('<tr role="row"><td') == 100
    assert "&lt;i&gt;119&lt;/i&gt;" in first
    assert older is not None
    assert "&lt;i&gt;5&lt;/i&gt;" in pages.admin.get(older[1]).text


def test_static_files_are_kept_by_their_hash(pages: Api) -> None:
    """Everything that a page loads is there, is kept for ever, and needs no login."""
    page = pages.admin.get(f"/judge/{WAITING}").text
    files = re.findall(r'(?:href|src)="(/static/[^"]+)"', page)
    assert len(set(files)) >= 5
    for file in files:
        answer = pages.nobody.get(file)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    old = re.sub(r"/static/\w+/", "/static/0123/", files[0])
    assert pages.nobody.get(old).headers["cache-control"] == "no-cache"
    assert pages.nobody.get("/static/0123/none.css").status_code == 404


def test_pages_are_light(pages: Api) -> None:
    """A page with all that it loads stays below 150 KB."""
    for path in (*ADMIN_PAGES, *JUDGE_PAGES):
        page = pages.admin.get(path)
        files = set(re.findall(r'(?:href|src)="(/static/[^"]+)"', page.text))
        api = re.sub(r"[\w-]+\.\w+$", "api.js", next(iter(files)))
        loaded = sum(len(pages.nobody.get(file).content) for file in files | {api})
        assert len(page.content) + loaded < 150_000, path


def test_the_api_is_described(pages: Api) -> None:
    """As a document for programs, and every operation of it on a page; for nobody but an admin."""
    document = pages.admin.get("/openapi.json").json()
    page = pages.admin.get("/docs").text
    assert document["paths"]
    for path in document["paths"]:
        assert f"<code>{path}</code>" in page
    refused = pages.ann.get("/openapi.json")
    assert refused.status_code == 403
    assert "error" in refused.json()
    assert pages.nobody.get("/openapi.json").status_code == 401
    assert len(page.encode()) < 150_000


def test_without_an_airflow_no_page_says_a_word_of_it(pages: Api) -> None:
    """No button, no field, no route in the description."""
    for path in ("/experiments", "/jobs", "/system", "/docs", "/openapi.json"):
        assert "irflow" not in pages.admin.get(path).text, path
