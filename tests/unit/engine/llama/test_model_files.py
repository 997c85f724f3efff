"""The root's name changes with all that cells depend on, and with nothing else."""

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.engine.llama import native
from orchestrator.engine.llama.model_files import fingerprint, origin
from orchestrator.engine.model import EngineSpec, shards


@pytest.fixture
def spec(tmp_path: Path) -> EngineSpec:
    """A file that is no model: its bytes are all that counts here."""
    path = tmp_path / "model.gguf"
    path.write_bytes(bytes(range(256)) * 40_000)
    return EngineSpec(str(path))


@pytest.mark.parametrize("other", [{"kv_type_k": "q8_0"}, {"kv_type_v": "q8_0"}, {"flash_attention": True}])
def test_a_setting_that_changes_cells_changes_the_name(spec: EngineSpec, other: dict[str, object]):
    assert fingerprint(replace(spec, **other)) != fingerprint(spec)


@pytest.mark.parametrize(
    ("other", "changed"),
    [
        ({"kv_type_k": "q8_0"}, {"kv_type_k"}),
        ({"kv_type_v": "q4_0", "flash_attention": True}, {"kv_type_v", "flash_attention"}),
        ({"small_windows": True}, {"windows"}),
    ],
)
def test_what_changes_the_name_is_told_by_its_part(spec: EngineSpec, other: dict[str, object], changed: set[str]):
    before, after = origin(spec), origin(replace(spec, **other))
    assert {name for name in before.parts if before.parts[name] != after.parts[name]} == changed
    assert before.fingerprint != after.fingerprint


def test_a_setting_that_changes_no_cell_keeps_the_name(spec: EngineSpec):
    kept = replace(spec, threads=3, batch=64, sequences=8, context=4096, disk_budget=1, gpu_layers=2)
    assert fingerprint(kept) == fingerprint(spec)


@pytest.mark.parametrize("at", [0, -1])
def test_another_file_has_another_name(spec: EngineSpec, at: int):
    before, path = fingerprint(spec), Path(spec.model)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    assert fingerprint(spec) != before


def test_another_compiled_library_has_another_name(spec: EngineSpec, monkeypatch: pytest.MonkeyPatch):
    before = fingerprint(spec)
    monkeypatch.setattr(native, "identity", lambda: "compiled with other flags")
    assert fingerprint(spec) != before


def test_all_shards_of_a_model_count(tmp_path: Path):
    first, second = shards(tmp_path / "model-00001-of-00002.gguf")
    first.write_bytes(b"one")
    second.write_bytes(b"two")
    before = fingerprint(EngineSpec(str(first)))
    second.write_bytes(b"three")
    assert fingerprint(EngineSpec(str(first))) != before
