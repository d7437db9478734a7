"""Where a cell was made is told wherever the cell is: on its page, in the API and by the command."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from command import here
from judged_world import plant
from tipbench.ledger import open_ledger
from tipbench.records import Host
from tipbench.settings import home
from web_world import BIG, SMALL, inlined

if TYPE_CHECKING:
    from api_world import Api
    from tipbench.records import CellResult

NAME = "on two hosts"
BOX = Host(
    kind="ollama", url="http://localhost:11434", version="0.9", machine="box", hardware="A <CPU>, 4 cores"
)
GPU = Host(kind="ollama", url="http://gpu:11434", version="0.12")


@pytest.fixture(scope="module")
def mixed(pages: Api) -> Api:
    def changed(one: CellResult) -> CellResult:
        away = one.cell.model.name == BIG
        return replace(one, host=GPU if away else BOX, vram_share=0.25 if away else None)

    ledger = open_ledger("", home=home())
    quality = {(BIG, "v1"): 4.0, (SMALL, "v1"): 3.0}
    plant(NAME, quality=quality, n_scenarios=2, n_tips=1, changed=changed, ledger=ledger)
    return pages


def test_the_api_and_the_page_tell_where_a_cell_was_made(mixed: Api) -> None:
    """Address, engine, machine, hardware and the share in VRAM; on the page only what is known."""
    runs = mixed.admin.get(f"/api/bench/runs/{NAME}").json()["runs"]
    box = next(run for run in runs if run["model"] == SMALL)
    gpu = next(run for run in runs if run["model"] == BIG)
    assert (box["host_kind"], box["machine"], box["hardware"]) == ("ollama", "box", "A <CPU>, 4 cores")
    assert (gpu["host"], gpu["host_version"], gpu["machine"], gpu["vram_share"]) == (
        GPU.url,
        "0.12",
        "",
        0.25,
    )
    page = mixed.admin.get(f"/experiments/{NAME}/runs/{box['run_id']}?beside={gpu['run_id']}").text
    assert inlined(page) == []
    assert "<dt>machine</dt><dd><bdi>box</bdi></dd>" in page
    assert "<dt>hardware</dt><dd><bdi>A &lt;CPU&gt;, 4 cores</bdi></dd>" in page
    assert "<dt>engine</dt><dd><bdi>Ollama 0.12</bdi></dd>" in page
    assert "<dt>in VRAM</dt><dd><bdi>25 %</bdi></dd>" in page
    assert page.count("<dt>machine</dt>") == 1


def test_the_experiments_page_has_a_host_for_each_row_and_cell(mixed: Api) -> None:
    """Under the row's name, in the list of cells, and in the notes; an experiment of one host has none."""
    page = mixed.admin.get(f"/experiments/{NAME}").text
    assert '<small class="on">on <bdi>gpu:11434</bdi></small>' in page
    assert page.count('<td class="text"><bdi>box:11434</bdi></td>') == 2
    assert "latencies of different hosts are not compared" in page
    alone = mixed.admin.get("/experiments/tips-may").text
    assert "host</th>" not in alone
    assert 'class="on"' not in alone


def test_the_command_tells_where_a_cell_was_made(mixed: Api) -> None:
    """`show` in words, `experiments` in its list and as JSON."""
    cells = here("experiments", NAME, "--json").json
    box = next(cell for cell in cells if cell["model"] == SMALL)
    assert (box["machine"], box["host_version"], box["vram_share"]) == ("box", "0.9", None)
    shown = here("show", box["run_id"]).out
    assert "machine        box\n" in shown
    assert "hardware       A <CPU>, 4 cores\n" in shown
    assert "engine         ollama 0.9\n" in shown
    listed = here("experiments", NAME).out.splitlines()
    assert listed[0].split("\t")[-1] == "host"
    assert {line.split("\t")[-1] for line in listed[1:]} == {"box:11434", "gpu:11434"}
    assert "host" not in here("experiments", "tips-may").out.splitlines()[0]
