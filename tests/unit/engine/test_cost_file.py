"""What steps cost is kept for each way to compute, and a damaged file is as none."""

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.costs import KEPT, MATERIAL, PREFIX, CostFile, Costs, Kinds, cost_path, predictions, used
from orchestrator.engine.fake import FakeBackend
from orchestrator.engine.model import EngineSpec

INFO = FakeBackend().info
STEPS = ((1, 8000), (8, 1000), (64, 100), (512, 30_000))


def taught(costs: Costs, slower: float = 1.0, rounds: int = 40) -> Costs:
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
    costs = taught(Costs())
    CostFile(costs, path).save()
    assert read(path).kept() == costs.kept()
    assert predictions(read(path)) == pytest.approx(predictions(costs), rel=0.05)
    assert predictions(read(path)) != pytest.approx(predictions(Costs()), rel=MATERIAL)


@given(st.data())
def test_a_damaged_file_is_as_none(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    path = tmp_path_factory.mktemp("costs") / "costs"
    CostFile(taught(Costs(), rounds=4), path).save()
    whole = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(whole[: data.draw(st.sampled_from([at, at + 1, len(whole)]))])
    assert predictions(read(path)) == predictions(Costs())


def written(path: Path, kinds: Kinds) -> Path:
    content = json.dumps(kinds).encode()
    path.write_bytes(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
    return path


def test_a_file_with_a_term_for_tiles_of_rows_is_taken_up_where_no_row_was_outside_them(tmp_path: Path):
    costs = taught(Costs())
    names = {"prompts": "tiles", "answers": "answers"}
    former = {
        names[kind]: [[*row, 0.0] for row in (*rows[:-1], [0.0] * 4, rows[-1])] for kind, rows in costs.kept().items()
    }
    assert read(written(tmp_path / "costs", former)).kept() == costs.kept()
    assert read(written(tmp_path / "costs", {**former, "loose": former["tiles"]})).kept() == {}


@pytest.mark.parametrize("content", [b"", b"{}", b"\n", b"\xff\x00", b'{"answers": [[1e308]]}'])
def test_what_is_no_file_of_costs_is_as_none(tmp_path: Path, content: bytes):
    (tmp_path / "costs").write_bytes(content)
    assert predictions(read(tmp_path / "costs")) == predictions(Costs())


def test_a_change_that_matters_is_written_and_a_small_one_is_not(path: Path):
    costs = Costs()
    file = CostFile(costs, path)
    file.keep()
    assert not path.exists(), "nothing was learned"
    taught(costs)
    file.keep()
    written = path.read_bytes()
    taught(costs, slower=1.05)
    file.keep()
    assert path.read_bytes() == written
    taught(costs, slower=2.0)
    file.keep()
    assert path.read_bytes() != written
    assert [one.name for one in path.parent.iterdir()] == ["costs"]


def test_what_was_taken_up_is_not_written_again(path: Path):
    CostFile(taught(Costs()), path).save()
    file = CostFile(Costs(), path)
    path.unlink()
    file.keep()
    assert not path.exists()


def test_a_place_that_cannot_be_written_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "file").write_text("no folder")
    costs = Costs()
    file = CostFile(costs, tmp_path / "file" / "costs")
    taught(costs)
    caplog.clear()
    file.keep()
    file.keep()
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_without_a_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert cost_path(INFO, EngineSpec("fake")) is None
    CostFile(taught(Costs()), None).save()
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
    CostFile(taught(Costs()), own).save()
    os.utime(own, (1, 1))
    others = aged(tmp_path, KEPT + 5)
    (tmp_path / "a folder of checkpoints").mkdir()
    (tmp_path / "models.json").write_bytes(b"{}")
    assert read(own).kept()
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
