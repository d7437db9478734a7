"""Coming in and going out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tipbench.web.pages_login import own_address

if TYPE_CHECKING:
    from api_world import Api

HERE = {"Origin": "http://localhost"}


def test_a_token_is_traded_for_a_cookie(pages: Api) -> None:
    """The cookie opens pages, also from a link of another site, and no script can read it."""
    client = pages.nobody
    answer = client.post(
        "/login", data={"token": pages.tokens["root"], "next": "/jobs"}, headers=HERE, follow_redirects=False
    )
    assert answer.status_code == 303
    assert answer.headers["location"] == "/jobs"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert pages.tokens["root"] not in cookie
    assert client.get("/jobs").status_code == 200
    client.post("/logout", headers=HERE)
    assert client.get("/jobs", follow_redirects=False).status_code == 303


def test_a_judge_begins_at_the_judge_page(pages: Api) -> None:
    """The start page is the one that the role is for."""
    answers = [
        pages.caller(who).get("/", follow_redirects=False).headers["location"] for who in ("ann", "root")
    ]
    assert answers == ["/judge", "/experiments"]


def test_a_wrong_token_is_told_where_it_was_typed(pages: Api) -> None:
    """One sentence below the field; a program's token is refused with another one."""
    wrong = pages.nobody.post("/login", data={"token": "tb_admin_no"}, headers=HERE)
    assert wrong.status_code == 401
    assert 'aria-invalid="true"' in wrong.text
    assert "That token is not known, or was revoked." in wrong.text
    program = pages.nobody.post("/login", data={"token": pages.tokens["program"]}, headers=HERE)
    assert program.status_code == 403
    assert "for programs" in program.text


@pytest.mark.parametrize(
    ("asked", "led_to"),
    [
        ("/jobs?number=2", "/jobs?number=2"),
        ("", "/"),
        ("//evil.example/x", "/"),
        ("https://evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/a\nb", "/"),
        ("/\tx", "/"),
    ],
)
def test_a_login_leads_nowhere_else(asked: str, led_to: str) -> None:
    """Where a login leads is a page of this service, whatever the address says."""
    assert own_address(asked) == led_to
