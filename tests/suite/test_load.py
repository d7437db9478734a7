from __future__ import annotations

import os
from pathlib import Path

import pytest

from suite_files import PROMPT, RUBRIC, SCENARIOS, SUITE, write_suite
from tipbench.errors import NotFound, SuiteError
from tipbench.suite import check_suite, load_suite, render


def test_a_small_suite_loads(tmp_path: Path) -> None:
    """A folder with the four kinds of files is a suite."""
    suite = load_suite(str(write_suite(tmp_path)))
    assert (suite.id, suite.title, suite.reply.kind) == ("small", "small", "list")
    assert [scenario.id for scenario in suite.scenarios] == ["one", "two", "three", "four"]
    assert suite.default_prompts == ("v1",)
    assert (suite.num_ctx, suite.num_predict) == (2048, 400)
    messages = render(suite.prompt("v1"), suite.scenario("one"), n_tips=3, reply=suite.reply)
    assert [message.role for message in messages] == ["system", "user"]
    assert messages[1].content == "Write 3 tips for Ann.\n- cook\n- read"


def _crlf(text: str) -> bytes:
    return b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()


def test_line_ends_and_byte_order_marks_do_not_matter(tmp_path: Path) -> None:
    """Files saved on another system have the same hashes."""
    plain = load_suite(write_suite(tmp_path / "plain"))
    other = load_suite(
        write_suite(
            tmp_path / "other",
            suite=_crlf(SUITE),
            rubric=_crlf(RUBRIC),
            v1=_crlf(PROMPT),
            scenarios=_crlf(SCENARIOS),
        )
    )
    assert plain.hash == other.hash
    assert plain.rubric.hash == other.rubric.hash
    assert plain.prompts[0].hash == other.prompts[0].hash
    assert [s.hash for s in plain.scenarios] == [s.hash for s in other.scenarios]


@pytest.mark.parametrize(
    ("part", "old", "new"),
    [
        ("v1", "You help.", "You help!"),
        ("v1", "output: json", "output: schema"),
        ("v1", "output: json", "output: json\nthink: true"),
        ("v1", "output: json", "output: json\nnum_ctx: 4096"),
        ("v1", "output: json", "output: json\nnum_predict: 9"),
        ("v1", "output: json", "output: json\nallow_fence: true"),
        ("suite", "noun: tip", "noun: hint"),
    ],
)
def test_what_makes_another_prompt(tmp_path: Path, part: str, old: str, new: str) -> None:
    """Everything that can change what is sent or how it is read changes the prompt's hash."""
    texts = {"v1": PROMPT, "suite": SUITE}
    one = load_suite(write_suite(tmp_path / "one"))
    other = load_suite(write_suite(tmp_path / "other", **{part: texts[part].replace(old, new)}))
    assert one.prompts[0].hash != other.prompts[0].hash
    assert one.hash != other.hash


def test_titles_and_comments_change_no_hash(tmp_path: Path) -> None:
    """Names for display, comments and the way YAML is written are no part of what is evaluated."""
    one = load_suite(write_suite(tmp_path / "one"))
    other = load_suite(
        write_suite(
            tmp_path / "other",
            suite=SUITE + "title: Another title\n",
            v1=PROMPT.replace("output: json", "title: Nice\noutput: 'json'  # as before"),
            scenarios=SCENARIOS.replace("who: Ann", "title: Ann's day\n    who: 'Ann'").replace(
                "# Who", "# whom"
            ),
        )
    )
    assert other.title == "Another title"
    assert other.scenario("one").title == "Ann's day"
    assert one.hash == other.hash


def test_cluster_names_the_variable_that_scenarios_share(tmp_path: Path) -> None:
    """Scenarios with an equal value are one cluster; the key changes no hash; the default is `persona`."""
    shared = SCENARIOS.replace("who: Cem", "who: Ann").replace("who: Dee", "who: Bob")
    plain = load_suite(write_suite(tmp_path / "plain", scenarios=shared))
    named = load_suite(write_suite(tmp_path / "named", scenarios=shared, suite=SUITE + "cluster: who\n"))
    assert (plain.cluster, plain.clusters) == ("persona", {})
    assert named.clusters == {"one": '"Ann"', "two": '"Bob"', "three": '"Ann"', "four": '"Bob"'}
    assert named.hash == plain.hash
    lists = load_suite(write_suite(tmp_path / "lists", scenarios=shared, suite=SUITE + "cluster: tasks\n"))
    assert lists.clusters["one"] == '["cook", "read"]'


def test_cluster_must_name_a_variable_of_a_scenario(tmp_path: Path) -> None:
    """The message has the file, the line and the nearest name."""
    with pytest.raises(
        SuiteError, match=r"'cluster' names the variable 'whom', which no scenario has"
    ) as found:
        load_suite(write_suite(tmp_path, suite=SUITE + "cluster: whom\n"))
    assert "suite.yaml:5: " in str(found.value)
    assert "did you mean 'who'?" in str(found.value)


def test_a_changed_variable_is_another_scenario(tmp_path: Path) -> None:
    """The scenario's hash covers its id and its variables, and no other scenario's."""
    one = load_suite(write_suite(tmp_path / "one"))
    other = load_suite(write_suite(tmp_path / "other", scenarios=SCENARIOS.replace("Ann", "Anna")))
    same = [a.hash == b.hash for a, b in zip(one.scenarios, other.scenarios, strict=True)]
    assert same == [False, True, True, True]


def test_an_unchanged_suite_keeps_its_hashes(tmp_path: Path) -> None:
    """Hashes do not depend on the machine, the folder or the release: experiments are pinned to them."""
    suite = load_suite(write_suite(tmp_path))
    assert suite.prompts[0].hash[:12] == PINNED["prompt"]
    assert suite.scenarios[0].hash[:12] == PINNED["scenario"]
    assert suite.rubric.hash[:12] == PINNED["rubric"]


PINNED = {"prompt": "287a80c55acd", "scenario": "0d3f58abd90a", "rubric": "1ebae07f3e35"}


@pytest.mark.parametrize(
    ("changed", "where", "part"),
    [
        ({"suite": None}, "suite.yaml", "there is no such file"),
        ({"suite": ""}, "suite.yaml:1", "has no 'reply'"),
        ({"suite": "- a\n"}, "suite.yaml:1", "must be 'key: value' lines"),
        ({"suite": SUITE + "tittle: x\n"}, "suite.yaml:5", "unknown key 'tittle'; did you mean 'title'?"),
        ({"suite": SUITE + "num_ctx: many\n"}, "suite.yaml:5", "a whole number from 64"),
        ({"suite": SUITE + "num_ctx: true\n"}, "suite.yaml:5", "a whole number"),
        ({"suite": SUITE + "id: again\n"}, "suite.yaml:5", "'id' is already given on line 1"),
        ({"suite": SUITE.replace("list", "lists")}, "suite.yaml:3", "did you mean 'list'?"),
        ({"suite": SUITE + "  nuon: x\n"}, "suite.yaml:5", "did you mean 'noun'?"),
        ({"suite": SUITE.replace("small", "a b")}, "suite.yaml:1", "is not an id"),
        ({"suite": SUITE + "extends: tipp\n"}, "suite.yaml:5", "did you mean 'tip'?"),
        ({"suite": SUITE + "default_prompts: [v2]\n"}, "suite.yaml:5", "there are v1"),
        ({"suite": SUITE + "default_prompts: [v1, v1]\n"}, "suite.yaml:5", "'v1' twice"),
        ({"suite": SUITE + "default_prompts: []\n"}, "suite.yaml:5", "must be a list of names"),
        ({"rubric": None}, "rubric.md", "there is no such file"),
        ({"rubric": "no front matter"}, "rubric.md:1", "has no 'id'"),
        ({"rubric": b"---\nid: caf\xe9\n---\n"}, "rubric.md:2", "is not UTF-8 (byte 0xE9)"),
        ({"rubric": RUBRIC.encode("utf-16")}, "rubric.md", "UTF-16"),
        ({"rubric": RUBRIC.split("## use", maxsplit=1)[0]}, "rubric.md", "has no text"),
        ({"rubric": "x" * 300_000}, "rubric.md", "is larger than"),
        ({"v1": None}, "prompts", "holds no prompt"),
        ({"v1": ""}, "prompts/v1.md", "no section '# User'"),
        ({"v1": "---\noutput: json\n"}, "prompts/v1.md:1", "no closing '---'"),
        ({"v1": PROMPT.replace("output: json", "output: jsn")}, "prompts/v1.md:2", "did you mean 'json'?"),
        ({"v1": PROMPT.replace("output", "ouput")}, "prompts/v1.md:2", "did you mean 'output'?"),
        ({"v1": PROMPT.replace("json", "json\nthink: no")}, "prompts/v1.md:3", "must be true or false"),
        ({"v1": PROMPT.replace("json", "json\nid: v2")}, "prompts/v1.md:3", "not the file's name 'v1'"),
        ({"v1": PROMPT.replace("# User", "# Usr")}, "prompts/v1.md", "is '# Usr' meant"),
        ({"v1": PROMPT.replace("# System", "# Sytem")}, "prompts/v1.md:4", "did you mean 'System'?"),
        ({"v1": PROMPT.replace("You help.\n", "\n")}, "prompts/v1.md:4", "'# System' is empty"),
        ({"v1": PROMPT.replace("{{ who }}", "{{ whom }}")}, "prompts/v1.md:7", "did you mean 'who'?"),
        ({"v1": PROMPT.replace("You help.", "{{ helper }}")}, "prompts/v1.md:5", "and in 3 more scenarios"),
        ({"v1": PROMPT.replace("{% endfor %}", "")}, "prompts/v1.md:9", "endfor"),
        ({"v1": PROMPT + "# User\nagain\n"}, "prompts/v1.md:11", "is there twice"),
        ({"v1": PROMPT + "\0"}, "prompts/v1.md:11", "U+0000"),
        ({"v1": "# User\n{% if who == 'Z' %}x{% endif %}\n"}, "prompts/v1.md:2", "nothing is left to ask"),
        ({"a b": PROMPT}, "prompts/a b.md", "is not an id"),
        ({"scenarios": None}, "scenarios.yaml", "has no scenarios"),
        ({"scenarios": "scenarios: []\n"}, "scenarios.yaml", "has no scenarios"),
        ({"scenarios": "hello\n"}, "scenarios.yaml:1", "must be a list"),
        ({"scenarios": "scenario: []\n"}, "scenarios.yaml:1", "did you mean 'scenarios'?"),
        ({"scenarios": "- who: x\n"}, "scenarios.yaml:1", "the scenario has no 'id'"),
        ({"scenarios": "- just text\n"}, "scenarios.yaml:1", "must be 'key: value' lines"),
        ({"scenarios": "- id: a/b\n"}, "scenarios.yaml:1", "is not an id"),
        (
            {"scenarios": SCENARIOS + "  - id: ONE\n    who: x\n    tasks: []\n"},
            "scenarios.yaml:16",
            "already used at",
        ),
        (
            {"scenarios": SCENARIOS.replace("who: Bob", "wo: Bob")},
            "prompts/v1.md:7",
            "scenario 'two': there is no",
        ),
        ({"scenarios": SCENARIOS.replace("who: Bob", "who:")}, "scenarios.yaml:6", "gives 'who' no value"),
        ({"scenarios": SCENARIOS.replace("- swim", "-")}, "scenarios.yaml:6", "gives 'tasks' no value"),
        ({"scenarios": SCENARIOS.replace("who: Bob", "n_tips: 3")}, "scenarios.yaml:7", "is set by tipbench"),
        (
            {"scenarios": SCENARIOS.replace("who: Bob", "who is: 3")},
            "scenarios.yaml:7",
            "cannot name a variable",
        ),
        (
            {"scenarios": SCENARIOS.replace("who: Bob", "who: " + "b" * 100_001)},
            "scenarios.yaml:6",
            "more than 100000",
        ),
        ({"scenarios": SCENARIOS.replace("- swim", "swim")}, "prompts/v1.md:8", "letter by letter"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_line(
    tmp_path: Path, changed: dict[str, str | bytes | None], where: str, part: str
) -> None:
    """Every mistake in a suite's files is one sentence that begins with the file and its line."""
    folder = write_suite(tmp_path / "suite", **changed)
    with pytest.raises(SuiteError) as caught:
        load_suite(folder)
    message = str(caught.value)
    assert message.startswith(f"{folder}/{where}")
    assert part in message
    assert "\n" not in message


def test_all_problems_are_shown_at_once(tmp_path: Path) -> None:
    """One check shows what is wrong in every file, not only in the first."""
    folder = write_suite(
        tmp_path,
        suite=SUITE + "tittle: x\n",
        rubric=RUBRIC.replace("use + format_ok", "usee"),
        v1=PROMPT.replace("who", "whom"),
        v2=PROMPT.replace("output: json", "output: xml"),
        scenarios=SCENARIOS + "  - id: one\n    who: x\n    tasks: []\n",
    )
    found = [str(problem).removeprefix(f"{folder}/").split(": ")[0] for problem in check_suite(folder)]
    assert sorted(found) == [
        "prompts/v1.md:7",
        "prompts/v2.md:2",
        "rubric.md:6",
        "scenarios.yaml:16",
        "suite.yaml:5",
    ]
    with pytest.raises(SuiteError, match="the first of 5 problems"):
        load_suite(folder)


def test_a_broken_main_file_does_not_hide_the_rest(tmp_path: Path) -> None:
    """Where the reply cannot be told, prompts and scenarios are still looked at."""
    folder = write_suite(tmp_path, suite="id: small\n", rubric=RUBRIC.replace("1-3", "?"))
    assert len(check_suite(folder)) >= 2


def test_personas(tmp_path: Path) -> None:
    """A persona is defined once and named by its scenarios."""
    scenarios = """\
personas:
  ann: {name: Ann, age: 30}
scenarios:
  - {id: a, persona: ann, time: 18:30}
"""
    suite = load_suite(
        write_suite(tmp_path, v1="# User\n{{ persona.name }} {{ n_tips }} {{ time }}", scenarios=scenarios)
    )
    assert suite.scenario("a").variables == {"persona": {"name": "Ann", "age": 30}, "time": "18:30"}
    assert suite.scenario("a").text == "Ann\n30\n18:30"
    message = render(suite.prompts[0], suite.scenarios[0], n_tips=2, reply=suite.reply)[0]
    assert (message.role, message.content) == ("user", "Ann 2 18:30")


@pytest.mark.parametrize(
    ("scenarios", "line", "part"),
    [
        ("personas:\n  ann: {name: Ann}\nscenarios:\n  - {id: a, persona: an}\n", 4, "did you mean 'ann'?"),
        ("personas:\n  ann: Ann\nscenarios:\n  - {id: a}\n", 2, "must have keys"),
        ("personas: [ann]\nscenarios:\n  - {id: a}\n", 1, "must be 'key: value' lines"),
        ("personas:\n  ann: {name: }\nscenarios:\n  - {id: a}\n", 2, "must have keys"),
    ],
)
def test_personas_that_are_wrong(tmp_path: Path, scenarios: str, line: int, part: str) -> None:
    """An unknown or empty persona is told at its line."""
    folder = write_suite(tmp_path, v1="# User\n{{ n_tips }}", scenarios=scenarios)
    with pytest.raises(SuiteError) as caught:
        load_suite(folder)
    assert caught.value.line == line
    assert part in str(caught.value)


def test_a_bare_list_of_scenarios(tmp_path: Path) -> None:
    """Without personas, the file may be just the list."""
    folder = write_suite(
        tmp_path, v1="# User\n{{ n_tips }} {{ x }}", scenarios="- id: a\n  x: 1\n- id: b\n  x: 2\n"
    )
    assert [s.variables for s in load_suite(folder).scenarios] == [{"x": 1}, {"x": 2}]


def test_extends_takes_what_is_not_given(tmp_path: Path) -> None:
    """A suite that extends one adds its prompts and scenarios, and may bring a rubric of its own."""
    base = load_suite("tip")
    scenario = "- {id: x, persona: maya, when: now, energy: low, tasks: [rest]}\n"
    head = "id: mine\nextends: tip\nnum_predict: 99\n"
    suite = load_suite(
        write_suite(tmp_path, suite=head, v1=None, v9=PROMPT.replace("who", "when"), scenarios=scenario)
    )
    assert [p.id for p in suite.prompts] == [*(p.id for p in base.prompts), "v9"]
    assert [s.id for s in suite.scenarios] == [*(s.id for s in base.scenarios), "x"]
    assert suite.scenario("x").variables["persona"]["name"] == "Maya"
    assert (suite.rubric.id, suite.reply, suite.num_predict) == ("small-v1", base.reply, 99)
    assert suite.default_prompts == base.default_prompts
    assert suite.prompt("v1").hash == base.prompt("v1").hash


def test_extends_cannot_reuse_ids(tmp_path: Path) -> None:
    """A prompt or a scenario of the suite that is extended cannot be given again, in any case."""
    scenario = "- {id: carl-closing-time, persona: maya, when: now, energy: low, tasks: [rest]}\n"
    folder = write_suite(
        tmp_path,
        suite="id: mine\nextends: tip\n",
        rubric=None,
        v1=None,
        V1=PROMPT.replace("who", "when"),
        scenarios=scenario,
    )
    messages = [problem.message for problem in check_suite(folder)]
    assert ["already used" in message for message in messages] == [True, True]


def test_a_name_that_ships_goes_before_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tip` is what ships and `./tip` is the folder; another name is a folder."""
    monkeypatch.chdir(tmp_path)
    write_suite(tmp_path / "tip")
    write_suite(tmp_path / "mine")
    assert load_suite("tip").id == "tip"
    assert load_suite("./tip").id == "small"
    assert load_suite(str(tmp_path / "tip")).id == "small"
    assert load_suite("mine").id == "small"
    assert load_suite("mine/").id == "small"
    assert load_suite("mine/suite.yaml").id == "small"
    assert load_suite("mine").path == Path("mine")


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("tpi", "did you mean 'tip'?"),
        ("nothing-like-it", "these ship: tip, tip-wide, support-summary"),
        ("", "there is no suite"),
        ("./missing", "there is no suite './missing'"),
        ("a\0b", "there is no suite"),
        ("x" * 5000, "there is no suite"),
        ("~nobody-of-that-name/suite", "there is no suite"),
    ],
)
def test_a_suite_that_is_not_there(name: str, part: str) -> None:
    """An unknown name says which ship, and which one may be meant."""
    with pytest.raises(NotFound) as caught:
        load_suite(name)
    assert part in str(caught.value)


def test_a_file_or_an_empty_folder_is_no_suite(tmp_path: Path) -> None:
    """A path that is there but holds no suite is told so."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(SuiteError, match=r"is not a folder with a suite\.yaml"):
        load_suite(tmp_path / "file")
    with pytest.raises(SuiteError, match=r"suite\.yaml: there is no such file"):
        load_suite(tmp_path)


def _link(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


@pytest.mark.parametrize("target", ["elsewhere.md", "/dev/zero", "v1.md", "missing.md", "/"])
def test_links_are_refused(tmp_path: Path, target: str) -> None:
    """A suite holds its own files: no link is followed, wherever it leads."""
    folder = write_suite(tmp_path / "suite")
    (folder / "prompts" / "elsewhere.md").write_text(PROMPT)
    _link(folder / "prompts" / "v1.md", target)
    with pytest.raises(SuiteError, match=r"v1\.md: is a link"):
        load_suite(folder)


def test_a_linked_prompts_folder_is_refused(tmp_path: Path) -> None:
    """The folder of prompts must be the suite's own as well."""
    folder = write_suite(tmp_path / "suite")
    (folder / "prompts").rename(tmp_path / "elsewhere")
    (folder / "prompts").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SuiteError, match="prompts: is a link"):
        load_suite(folder)


def test_no_prompts_folder(tmp_path: Path) -> None:
    """A suite without its prompts says where they belong."""
    folder = write_suite(tmp_path, v1=None)
    (folder / "prompts").rmdir()
    with pytest.raises(SuiteError, match="there must be a folder of prompts here"):
        load_suite(folder)


def test_extends_in_two_steps(tmp_path: Path) -> None:
    """A suite may extend one that itself extends another."""
    head = "id: mine\nextends: tip-wide\ntitle: Mine\n"
    suite = load_suite(write_suite(tmp_path, suite=head, rubric=None, v1=None, scenarios=None))
    wide = load_suite("tip-wide")
    assert (suite.title, suite.scenarios, suite.rubric) == ("Mine", wide.scenarios, wide.rubric)


def test_odd_kinds_of_files_are_refused(tmp_path: Path) -> None:
    """A pipe or a folder in the place of a file is named, not waited for."""
    folder = write_suite(tmp_path / "suite", rubric=None, scenarios=None)
    os.mkfifo(folder / "rubric.md")
    (folder / "scenarios.yaml").mkdir()
    found = {str(problem).removeprefix(f"{folder}/") for problem in check_suite(folder)}
    assert found == {
        "rubric.md: is not a regular file",
        "scenarios.yaml: is a folder where a file is expected",
    }


def test_a_linked_suite_folder_is_fine(tmp_path: Path) -> None:
    """The folder itself may be reached by a link."""
    write_suite(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert load_suite(tmp_path / "link").id == "small"


def test_hidden_files_are_left_alone(tmp_path: Path) -> None:
    """What a file manager or an editor leaves behind is no prompt; a wrong ending is a warning."""
    folder = write_suite(tmp_path)
    (folder / "prompts" / "._v1.md").write_bytes(b"\xff\xff")
    (folder / "prompts" / "v2.txt").write_text(PROMPT)
    assert [p.id for p in load_suite(folder).prompts] == ["v1"]
    assert [str(p) for p in check_suite(folder)] == [
        f"{folder}/prompts/v2.txt: warning: is not read: a prompt's file ends in .md"
    ]


def test_prompts_are_in_natural_order(tmp_path: Path) -> None:
    """v10 comes after v2."""
    texts = {name: PROMPT.replace("You help.", name) for name in ("v10", "v2", "a")}
    assert [p.id for p in load_suite(write_suite(tmp_path, **texts)).prompts] == ["a", "v1", "v2", "v10"]


def test_unknown_ids_are_told_with_those_there_are(tmp_path: Path) -> None:
    """Asking for a prompt or a scenario that is not there names the nearest and all the others."""
    suite = load_suite(write_suite(tmp_path))
    with pytest.raises(NotFound, match=r"no prompt .* 'v2' \(there are v1\)"):
        suite.prompt("v2")
    with pytest.raises(NotFound, match=r"'thre'; did you mean 'three'\? \(there are one, two, three, four\)"):
        suite.scenario("thre")


def test_a_text_reply_asks_for_one(tmp_path: Path) -> None:
    """In a suite of single texts a prompt is told of one candidate, whatever was asked for."""
    suite = load_suite(
        write_suite(
            tmp_path, suite=SUITE.replace("list", "text"), v1="# User\n{{ n_tips }} {{ noun }}: {{ who }}"
        )
    )
    assert suite.prompts[0].output == "text"
    (message,) = render(suite.prompts[0], suite.scenarios[0], n_tips=5, reply=suite.reply)
    assert message.content == "1 tip: Ann"


def test_limits_grow_with_the_number_of_candidates(tmp_path: Path) -> None:
    """Up to five candidates fit the suite's limits; more get room in proportion, in the context too."""
    suite = load_suite(write_suite(tmp_path))
    prompt = suite.prompts[0]
    assert suite.limits(prompt, n_tips=1) == (2048, 400)
    assert suite.limits(prompt, n_tips=5) == (2048, 400)
    assert suite.limits(prompt, n_tips=20) == (2048 + 1200, 1600)
