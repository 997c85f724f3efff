"""The cost curve is learned from steps, and prompts are cut by it."""

import hashlib
import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.fake_engine import FakeBackend
from support.machine import Machine

from orchestrator.engine.costs import (
    FEWEST,
    KEPT,
    MATERIAL,
    PREFIX,
    CostFile,
    Costs,
    OutOfTime,
    TimeBudget,
    cost_path,
    endless,
    predictions,
    used,
)
from orchestrator.engine.model import EngineSpec


def cpu(rows: int, cells: int, slower: float = 1.0) -> float:
    return slower * (5 + 0.5 * rows + 1e-3 * cells + 4e-4 * rows * cells)


def gpu(rows: int, cells: int) -> float:
    return 3 + 0.02 * rows + 1e-5 * rows * cells


def taught(machine, steps: int = 300, seed: int = 0) -> Costs:
    costs, chance = Costs(), random.Random(seed)
    for _ in range(steps):
        rows, cells = chance.choice([1, 2, 8, 40, 64, 128, 512]), chance.choice([100, 1000, 8000, 30000])
        costs.learn(rows, cells, machine(rows, cells) * chance.uniform(0.95, 1.05))
    return costs


def test_it_learns_the_machine_s_curve() -> None:
    for machine in (cpu, gpu):
        costs = taught(machine)
        for rows, cells in ((1, 8000), (8, 8000), (64, 8000), (512, 30000)):
            assert abs(costs.milliseconds(rows, cells) / machine(rows, cells) - 1) < 0.35


def gemma(rows: int, cells: int, outputs: int) -> float:
    """Gemma 3 270M on two cores (decision 0001): 262,144 words."""
    return 14.5 + 3.51 * rows + 1e-4 * cells + 4.5e-4 * rows * cells + 5.23 * outputs


@given(st.integers(0, 2**32), st.floats(0, 20))
def test_a_row_with_logits_costs_what_it_does_whether_it_is_much_or_nothing(seed: int, head: float) -> None:
    """One figure for all rows predicted eight answers at 0.65 of what they take."""
    costs, chance = Costs(), random.Random(seed)

    def truth(rows: int, cells: int, outputs: int) -> float:
        return gemma(rows, cells, 0) + head * outputs

    for _ in range(200):
        answers, cells = chance.choice([0, 1, 2, 4, 8, 16]), chance.choice([512, 2048, 6144])
        prompt = chance.choice([0, 64, 256, 512]) if answers else 512
        costs.learn(
            answers + prompt, cells, truth(answers + prompt, cells, answers) * chance.uniform(0.97, 1.03), answers
        )
    for step in ((1, 2048, 1), (4, 2048, 4), (8, 512, 8), (8, 6144, 8), (16, 2048, 16), (512, 2048, 0), (264, 512, 8)):
        assert costs.milliseconds(*step) == pytest.approx(truth(*step), rel=0.12)
    for beside in (1, 4, 8):
        size = costs.chunk(beside, 2048, 5000, 512, 220.0)
        assert size <= FEWEST or truth(beside + size, 2048, beside) <= 220.0 * 1.12


def test_it_follows_a_machine_that_became_slower() -> None:
    costs, chance = taught(cpu), random.Random(1)
    for _ in range(800):
        rows, cells = chance.choice([1, 8, 64, 512]), chance.choice([1000, 8000, 30000])
        costs.learn(rows, cells, cpu(rows, cells, slower=3.0))
    assert 2 < costs.milliseconds(64, 8000) / cpu(64, 8000) < 4


def test_a_process_s_first_step_which_reads_the_weights_from_the_disk_is_not_taken_for_what_steps_cost() -> None:
    machine = Machine()
    machine.floor("code", [7] * 20)
    for _ in range(2):
        machine.ask(1, "code", [1, 2], 4)
        machine.round()
        assert (machine.loop.counters.steps, machine.loop.costs.learned()) == (1, {})
        machine.round()
        assert machine.loop.costs.learned()
        machine.restart()


measured = st.tuples(st.integers(1, 512), st.integers(0, 130_000), st.floats(0.01, 60_000))


@given(st.lists(measured, max_size=60), st.integers(1, 512), st.integers(0, 130_000))
def test_whatever_was_measured_a_prediction_is_a_positive_number(
    steps: list[tuple[int, int, float]], rows: int, cells: int
) -> None:
    costs = Costs()
    for step in steps:
        costs.learn(*step)
    assert 0 < costs.milliseconds(rows, cells) < 1e12


@given(st.integers(0, 30), st.integers(0, 50_000), st.integers(1, 5000), st.floats(0, 2000))
def test_a_chunk_is_at_least_one_token_and_never_more_than_wanted_or_fits(
    beside: int, cells: int, wanted: int, budget: float
) -> None:
    size = Costs().chunk(beside, cells, wanted, 512, budget)
    assert 1 <= size <= min(wanted, 512 - beside)


@given(
    st.integers(0, 12),
    st.integers(0, 20_000),
    st.integers(1, 5000),
    st.floats(1, 2000),
    st.sampled_from([40, 100, 512]),
)
def test_a_chunk_keeps_to_its_budget_unless_it_is_of_the_fewest_tokens(
    beside: int, cells: int, wanted: int, budget: float, batch: int
) -> None:
    costs = taught(cpu, steps=60)
    size = costs.chunk(beside, cells, wanted, batch, budget)
    assert size <= FEWEST or costs.milliseconds(beside + size, cells) <= budget


class Clock:
    now = 10.0

    def __call__(self) -> float:
        return self.now


@given(st.floats(1, 300), st.floats(0.1, 300), st.integers(1, 20), st.integers(9, 5000), st.floats(50, 1000))
@example(step=1.0, row=74.0, answers=1, wanted=9, budget_ms=628.0)
def test_the_first_prompt_beside_answers_keeps_to_its_budget_whatever_a_row_costs(
    step: float, row: float, answers: int, wanted: int, budget_ms: float
) -> None:
    costs = Costs()
    for _ in range(answers):
        costs.learn(1, 20, step + row)
    rows = costs.chunk(0, 20, wanted, 512, budget_ms)
    assert rows <= FEWEST or step + row * rows <= budget_ms * 1.001
    costs.learn(rows, 20, step + row * rows)
    assert costs.chunk(0, 20, 512, 512, 1e9) == 512


def test_the_first_piece_is_granted_also_when_the_time_is_over() -> None:
    slack = TimeBudget(Clock(), until=3.0)
    slack.take()
    with pytest.raises(OutOfTime):
        slack.take()


def test_pieces_are_granted_while_one_as_long_as_the_last_still_ends_in_time() -> None:
    clock = Clock()
    slack, granted = TimeBudget(clock, until=11.0), 0
    while slack.left():
        slack.take()
        granted += 1
        clock.now += 0.3
    assert granted == 3


def test_what_must_be_done_now_is_always_granted() -> None:
    slack = endless()
    for _ in range(5):
        slack.take()
    assert slack.left()


INFO = FakeBackend().info
STEPS = ((1, 8000), (8, 1000), (64, 100), (512, 30_000))


def after_steps(costs: Costs, slower: float = 1.0, rounds: int = 40) -> Costs:
    for _ in range(rounds):
        for rows, cells in STEPS:
            costs.learn(rows, cells, slower * (40 + 3 * rows + 1e-4 * rows * cells))
    return costs


def read(path: Path) -> Costs:
    costs = Costs()
    CostFile(costs, path)
    return costs


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "costs"


def test_what_was_learned_is_taken_up_again(path: Path):
    costs = after_steps(Costs())
    CostFile(costs, path).save()
    assert read(path).learned() == costs.learned()
    assert predictions(read(path)) == pytest.approx(predictions(costs), rel=0.05)
    assert predictions(read(path)) != pytest.approx(predictions(Costs()), rel=MATERIAL)


@given(st.data())
def test_a_damaged_file_is_as_none(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    path = tmp_path_factory.mktemp("costs") / "costs"
    CostFile(after_steps(Costs(), rounds=4), path).save()
    whole = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(whole[: data.draw(st.sampled_from([at, at + 1, len(whole)]))])
    assert predictions(read(path)) == predictions(Costs())


def test_a_file_of_a_curve_with_another_term_is_as_none(tmp_path: Path):
    content = json.dumps({"prompts": [[0.0] * 4] * 5}).encode()
    (tmp_path / "costs").write_bytes(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
    assert read(tmp_path / "costs").learned() == {}


@pytest.mark.parametrize("content", [b"", b"{}", b"\n", b"\xff\x00", b'{"answers": [[1e308]]}'])
def test_what_is_no_file_of_costs_is_as_none(tmp_path: Path, content: bytes):
    (tmp_path / "costs").write_bytes(content)
    assert predictions(read(tmp_path / "costs")) == predictions(Costs())


def test_a_change_that_matters_is_written_and_a_small_one_is_not(path: Path):
    costs = Costs()
    file = CostFile(costs, path)
    file.save_changes()
    assert not path.exists(), "nothing was learned"
    after_steps(costs)
    file.save_changes()
    written = path.read_bytes()
    after_steps(costs, slower=1.05)
    file.save_changes()
    assert path.read_bytes() == written
    after_steps(costs, slower=2.0)
    file.save_changes()
    assert path.read_bytes() != written
    assert [one.name for one in path.parent.iterdir()] == ["costs"]


def test_what_was_taken_up_is_not_written_again(path: Path):
    CostFile(after_steps(Costs()), path).save()
    file = CostFile(Costs(), path)
    path.unlink()
    file.save_changes()
    assert not path.exists()


def test_a_place_that_cannot_be_written_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "file").write_text("no folder")
    costs = Costs()
    file = CostFile(costs, tmp_path / "file" / "costs")
    after_steps(costs)
    caplog.clear()
    file.save_changes()
    file.save_changes()
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_without_a_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert cost_path(INFO, EngineSpec("fake")) is None
    CostFile(after_steps(Costs()), None).save()
    assert list(tmp_path.iterdir()) == []


def aged(folder: Path, count: int) -> list[Path]:
    """Files of other ways to compute, the first one unused for longest."""
    paths = [folder / f"{PREFIX}{number:032x}-other" for number in range(count)]
    for age, path in enumerate(paths):
        path.write_bytes(b"x")
        os.utime(path, (1000 + age, 1000 + age))
    return paths


def test_only_those_used_last_are_kept_and_its_own_in_any_case(tmp_path: Path):
    own = cost_path(INFO, EngineSpec("fake", cache_folder=str(tmp_path)))
    assert own is not None
    CostFile(after_steps(Costs()), own).save()
    os.utime(own, (1, 1))
    others = aged(tmp_path, KEPT + 5)
    (tmp_path / "a folder of checkpoints").mkdir()
    (tmp_path / "models.json").write_bytes(b"{}")
    assert read(own).learned()
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == sorted([own.name, "a folder of checkpoints", "models.json", *(one.name for one in others[6:])])
    assert used(own) > 1000 + KEPT + 5, "it is the one used last now"


def test_what_is_left_of_a_write_that_was_cut_off_counts_as_a_file_and_goes_in_its_turn(tmp_path: Path):
    others = aged(tmp_path, KEPT)
    others[0].rename(others[0].with_suffix(".tmp"))
    CostFile(Costs(), tmp_path / f"{PREFIX}new")
    assert not others[0].with_suffix(".tmp").exists()
    assert all(path.exists() for path in others[1:])


def test_each_way_to_compute_has_a_file_of_its_own(tmp_path: Path):
    spec = EngineSpec("fake", cache_folder=str(tmp_path))
    ways = [
        (INFO, spec),
        (replace(INFO, fingerprint="another model, KV type or attention"), spec),
        (replace(INFO, device="a GPU"), spec),
        (replace(INFO, gpu_layers=20), spec),
        (INFO, replace(spec, threads=3)),
        (INFO, replace(spec, split_mode="row")),
        (INFO, replace(spec, tensor_split=(3.0, 1.0))),
        (INFO, replace(spec, main_gpu=1)),
    ]
    assert len({cost_path(info, one) for info, one in ways}) == len(ways)
    assert cost_path(INFO, spec) == cost_path(replace(INFO), replace(spec, gpu_layers=-1, disk_budget=1))
