"""What the doctor finds in files and databases."""

import os
import sqlite3

import pytest

from codex.library import Library
from orchestrator.errors import InvalidRequest
from orchestrator.reports.doctor import (
    configured_model,
    damaged_stores,
    deleted_stores,
    fault_of,
    floors_on_disk,
    plugin_failures,
)
from orchestrator.settings.model import ModelSettings, Settings
from orchestrator.settings.paths import Paths


def test_a_sound_database_has_no_fault_and_a_damaged_one_is_told(tmp_path):
    store = tmp_path / "sessions.sqlite3"
    with sqlite3.connect(store) as database:
        database.execute("CREATE TABLE t (a)")
        database.executemany("INSERT INTO t VALUES (?)", [("x" * 500,)] * 200)
    database.close()
    assert fault_of(store) == ""
    raw = bytearray(store.read_bytes())
    raw[4096:8192] = b"\xff" * 4096
    store.write_bytes(raw)
    assert fault_of(store) != ""
    store.write_bytes(b"this is no database at all, though it has the name of one" * 20)
    assert "not a database" in fault_of(store)


def test_the_catalog_is_looked_into_too(tmp_path):
    paths = Paths.of({f"XDG_{name}_HOME": str(tmp_path / name) for name in ("CONFIG", "DATA", "STATE", "CACHE")})
    paths.prepare()
    Library(paths.codices).close()
    assert damaged_stores(paths) == []
    catalog = paths.codices / "catalog.sqlite"
    catalog.write_bytes(b"this is no database at all" * 100)
    assert [store for store, _ in damaged_stores(paths)] == [catalog]


def test_a_database_that_was_deleted_under_a_process_is_told_with_its_pid(tmp_path):
    paths = Paths.of({f"XDG_{name}_HOME": str(tmp_path / name) for name in ("CONFIG", "DATA", "STATE", "CACHE")})
    paths.prepare()
    library = Library(paths.codices)
    assert deleted_stores(paths) == []
    (paths.codices / "catalog.sqlite").unlink()
    assert deleted_stores(paths) == [(paths.codices / "catalog.sqlite", str(os.getpid()))]
    library.close()
    assert deleted_stores(paths) == []


def test_looking_changes_nothing_and_needs_no_right_to_write(tmp_path):
    store = tmp_path / "none.sqlite3"
    assert fault_of(store) != ""
    assert not store.exists()


def of(tmp_path, **model):
    return configured_model(Settings(model=ModelSettings(**model)), Paths.of({"XDG_CACHE_HOME": str(tmp_path)}))


def test_a_file_that_is_no_model_says_where_it_is_damaged(tmp_path):
    (tmp_path / "odd.gguf").write_bytes(b"GG")
    with pytest.raises(InvalidRequest, match=r"odd\.gguf") as refused:
        of(tmp_path, path=str(tmp_path / "odd.gguf"))
    assert refused.value.hint


def test_a_built_in_model_that_was_not_made_is_not_made_by_looking(tmp_path):
    assert of(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_model_tells_of_ranges_types_flash_attention_and_what_loading_would_fail_with(quoter_model, tmp_path):
    found = of(tmp_path, path=str(quoter_model), kv_type_v="q8_0", flash_attention=False)
    assert found.ranges.cut is True
    assert (found.offload.plan.values, found.offload.plan.flash_attention) == ("q8_0", False)
    assert [one.setting for one in found.refused] == ["model.kv_type_v"]


def test_floors_count_for_the_file_and_the_settings_that_made_them(quoter_model, tmp_path):
    from orchestrator.engine.llama.model_files import fingerprint
    from orchestrator.engine.model import EngineSpec

    own = tmp_path / "kv" / fingerprint(EngineSpec(str(quoter_model)))[:32]
    own.mkdir(parents=True)
    (own / "segment").write_bytes(b"x" * 100)

    def held(folder, **model):
        return floors_on_disk(quoter_model, of(tmp_path, path=str(quoter_model), **model).offload, folder)

    assert held(own.parent) == {"own": 100, "other": 0}
    assert held(own.parent, kv_type_k="q8_0") == {"own": 0, "other": 100}
    assert held(tmp_path / "none") == {"own": 0, "other": 0}


@pytest.mark.parametrize("cache", ["full", "small"])
def test_the_doctor_sees_the_cache_of_sliding_layers_that_the_daemon_would_choose(tiny_model, tmp_path, cache):
    from orchestrator.engine.llama.model_files import fingerprint
    from orchestrator.engine.model import EngineSpec

    path = tiny_model("gemma3")
    found = of(tmp_path, path=str(path), window_cache=cache)
    assert (found.offload.plan.small_windows > 0, found.ranges.cut) == (cache == "small", cache == "full")
    spec = EngineSpec(str(path), flash_attention=True, small_windows=cache == "small")
    own = tmp_path / "kv" / fingerprint(spec)[:32]
    own.mkdir(parents=True)
    (own / "segment").write_bytes(b"x" * 100)
    assert floors_on_disk(path, found.offload, own.parent) == {"own": 100, "other": 0}


def test_without_plugins_nothing_is_broken():
    assert plugin_failures(None) == []
