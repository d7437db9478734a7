"""A prompt version: two templates, how the reply should be written, and the limits it needs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from tipbench.records import content_hash
from tipbench.suite.document import Section, parse_document, split_sections
from tipbench.suite.form import Form, bad_id
from tipbench.suite.problems import did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

    from tipbench.suite.problems import Problems
    from tipbench.suite.reply import Reply

Output = Literal["json", "schema", "text"]
OUTPUTS: tuple[Output, ...] = ("json", "schema", "text")
TITLES = ("system", "user")


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """One prompt version; its hash covers all that can change what the model is sent or how it is read.

    `allow_fence` says that a reply inside a Markdown code fence still has the asked form.
    """

    id: str
    title: str
    output: Output
    think: bool
    allow_fence: bool
    num_ctx: int | None
    num_predict: int | None
    system: str
    user: str
    hash: str
    path: Path
    system_line: int
    user_line: int

    @property
    def text(self) -> str:
        """Both templates as one text."""
        return f"# System\n\n{self.system}\n\n# User\n\n{self.user}"

    @property
    def asked(self) -> Literal["json", "text"]:
        """The form that a good reply has."""
        return "text" if self.output == "text" else "json"

    def schema(self, reply: Reply, *, n_tips: int) -> dict[str, Any] | None:
        """The JSON schema to send along with the messages, or None where the prompt asks for free text."""
        return reply.schema(n_tips) if self.output == "schema" else None


def read_prompt(text: str, *, path: Path, reply: Reply, problems: Problems) -> Prompt | None:
    """The prompt a file holds, or None with the reasons among the problems."""
    before = len(problems.errors)
    document = parse_document(text, path=path, problems=problems)
    form = Form(document.front, path=path, problems=problems, what="the prompt's front matter")
    _check_id(form, path)
    fields: dict[str, Any] = {
        "id": path.stem,
        "output": form.choice("output", OUTPUTS) or ("json" if reply.kind == "list" else "text"),
        "think": form.truth("think", default=False),
        "allow_fence": form.truth("allow_fence", default=False),
        "num_ctx": form.whole("num_ctx", low=64, high=2**20),
        "num_predict": form.whole("num_predict", low=1, high=2**20),
    }
    title = form.text("title") or path.stem
    form.finish()
    sections = split_sections(document, TITLES, path=path, problems=problems)
    if "user" not in sections:
        _report_no_user(sections, path, problems)
    if len(problems.errors) > before:
        return None
    system, user = sections.get("system", Section(text="", line=1)), sections["user"]
    fields |= {"system": system.text, "user": user.text}
    hashed = content_hash({**fields, "reply": _what_matters(reply, fields["output"])})
    return Prompt(**fields, title=title, hash=hashed, path=path, system_line=system.line, user_line=user.line)


def _what_matters(reply: Reply, output: Output) -> dict[str, Any]:
    """The bound on a candidate's length is sent with a schema and nowhere else."""
    described = asdict(reply)
    return described if output == "schema" else {**described, "max_chars": None}


def _check_id(form: Form, path: Path) -> None:
    given = form.ident("id")
    wrong = bad_id(path.stem)
    if wrong:
        form.problem(f"the file's name must be the prompt's id, and {wrong}")
    elif given and given != path.stem:
        form.problem(f"the id '{given}' is not the file's name '{path.stem}'; rename one of them", key="id")


def _report_no_user(sections: dict[str, Section], path: Path, problems: Problems) -> None:
    """A misspelt `# User` has become part of the system section: look for it there."""
    headings = (
        [line[2:].strip() for line in sections["system"].text.split("\n") if line.startswith("# ")]
        if ("system" in sections)
        else []
    )
    near = next(
        (f" (is '# {heading}' meant to be it?)" for heading in headings if did_you_mean(heading, ["User"])),
        "",
    )
    problems.add(path, f"the prompt has no section '# User'{near}")
