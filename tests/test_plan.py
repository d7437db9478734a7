"""The plan: the order that loads each model once, minus what is done."""

from __future__ import annotations

from itertools import groupby

from tipbench.plan import Grid, plan_cells
from tipbench.records import Model
from tipbench.suite import load_suite

MODELS = [Model(name=f"m{n}", digest=str(n) * 64, parameters=1, size_bytes=1) for n in range(3)]


def a_grid(**changes: int) -> Grid:
    suite = load_suite("tip")
    values: dict[str, int] = {"n_tips": 5, "num_ctx": 0, "num_predict": 0, "seed": 0, "repeats": 2}
    return Grid(
        suite=suite,
        prompts=suite.prompts[:2],
        scenarios=suite.scenarios,
        temperature=0.7,
        **(values | changes),
    )


def test_order_is_model_prompt_scenario() -> None:
    """Each model's cells stand together, and so do each prompt's: one load, repeated beginnings."""
    cells = plan_cells(a_grid(), models=MODELS, done=frozenset()).cells
    assert len(cells) == 3 * 2 * 8 * 2
    assert [name for name, _ in groupby(cells, key=lambda cell: cell.model.name)] == ["m0", "m1", "m2"]
    assert len(list(groupby(cells, key=lambda cell: (cell.model.name, cell.prompt_id)))) == 6
    assert len({cell.key for cell in cells}) == len(cells)


def test_done_cells_are_skipped() -> None:
    """What is done is counted and left out; the rest keeps its order."""
    cells = plan_cells(a_grid(), models=MODELS, done=frozenset()).cells
    plan = plan_cells(a_grid(), models=MODELS, done={cell.key for cell in cells[::2]})
    assert plan.cells == cells[1::2]
    assert plan.skipped == len(cells[::2])


def test_one_digest_is_one_model() -> None:
    """Of two names for the same weights, the first is kept."""
    twin = Model(name="alias", digest=MODELS[0].digest, parameters=1, size_bytes=1)
    names = {
        cell.model.name for cell in plan_cells(a_grid(), models=[MODELS[0], twin], done=frozenset()).cells
    }
    assert names == {"m0"}


def test_a_persons_choice_goes_before_the_suites() -> None:
    """`--num-ctx` and `--num-predict` override what the suite says; 0 leaves it."""
    suite = load_suite("tip")
    for given in (0, 1024):
        grid = a_grid(num_ctx=given, num_predict=given // 8)
        sampling = plan_cells(grid, models=MODELS, done=frozenset()).cells[0].sampling
        assert sampling.num_ctx == (given or suite.num_ctx)
        assert sampling.num_predict == (given // 8 or suite.num_predict)


def test_the_first_four_scenarios_are_four_personas() -> None:
    """A short run (`--n-scenarios 4`) still covers everyone."""
    personas = [scenario.variables["persona"]["name"] for scenario in load_suite("tip").scenarios]
    assert len(set(personas[:4])) == 4
    assert len(set(personas)) == 4
    assert [s.hash for s in load_suite("tip-wide").scenarios[:8]] == [
        s.hash for s in load_suite("tip").scenarios
    ]
