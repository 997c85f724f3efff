"""What the doctor says of a GPU, through the real NVML wrapper on a stand-in driver, and of a damaged house."""

import json
import sqlite3

import pytest
from support.nvml import StandIn, compiled

from governor.gguf import read_gguf
from governor.model_shape import shape_of
from orchestrator.cli.context import page
from orchestrator.cli.doctor import (
    archives,
    cpu_features,
    embedding,
    engine,
    faults_of,
)
from orchestrator.cli.local import settings
from orchestrator.model.kv_losses import KvLosses
from orchestrator.model.offloading import engine_offloads
from orchestrator.reports.surroundings import built_engine
from orchestrator.wire.answers import KvLoss


@pytest.fixture
def checks(lore, folder):
    """`checks(**environment)`: the doctor's findings by name, in a house of its own."""
    return findings(lore, folder)


def findings(lore, folder):
    places = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "DATA", "STATE", "CACHE")}

    def run(**environment):
        done = lore("doctor", "--json", **places, **environment)
        return {check["name"]: check for check in json.loads(done.stdout)["checks"]}

    return run


@pytest.mark.skipif(engine_offloads(), reason="this engine uses GPUs")
def test_a_gpu_that_the_engine_was_not_built_for_is_named_with_the_command(lore_process, folder, tmp_path_factory):
    library = compiled(tmp_path_factory.getbasetemp())
    found = findings(lore_process, folder)(**StandIn(folder, library).environment)["gpu"]
    assert (found["ok"], "NVIDIA Stand-in" in found["detail"]) == (False, True)
    assert "make install" in found["fix"]


def test_a_sound_house_has_no_finding_but_what_is_missing_here(checks):
    found = checks()
    assert [name for name, check in found.items() if not check["ok"] and name != "gpu"] == []
    assert "llama-cpp-python" in found["engine"]["detail"]
    assert "checkpoints take" in found["disk"]["detail"]


def test_a_damaged_database_is_found_with_the_way_to_set_it_aside(checks, folder):
    data = folder / "data" / "lorekeep"
    data.mkdir(parents=True, mode=0o700)
    sqlite3.connect(data / "fine.sqlite3").close()
    (data / "sessions.sqlite3").write_bytes(b"no database" * 100)
    found = checks()["databases"]
    assert (found["ok"], "sessions.sqlite3" in found["detail"]) == (False, True)
    assert f"cd {data} && mkdir -p damaged && mv sessions.sqlite3* damaged/" in found["fix"]


def test_an_archive_without_chunks_and_a_broken_model_have_their_command():
    empty = archives([{"name": "demo", "files": 3, "indexed_chunks": 0}])
    assert (empty.ok, empty.fix) == (False, "lore codex reload demo")
    assert archives([{"name": "demo", "files": 3, "indexed_chunks": 7}]).ok
    (broken,) = faults_of({"engine": {"state": "broken", "reason": "it ended five times"}})
    assert "it ended five times" in broken.detail
    assert list(faults_of({"engine": {"state": "ready"}})) == []


def test_the_model_in_use_tells_of_its_kv_its_flash_attention_its_floors_and_of_what_embeds(checks, quoter_model):
    found = checks(LORE_MODEL=str(quoter_model), LORE_MODEL__KV_TYPE_K="q8_0")
    assert "can be cut in ranges" in found["KV"]["detail"]
    assert "keys q8_0, values f16" in found["KV"]["detail"]
    assert "flash attention off" in found["KV"]["detail"]
    assert "none on disk is of this file" in found["floors"]["detail"]
    assert "search goes by words" in found["embedding"]["detail"]
    assert found["embedding"]["fix"]


def test_what_a_type_of_kv_was_measured_to_change_is_told_while_another_one_is_in_use(checks, folder, quoter_model):
    data = folder / "data" / "lorekeep"
    data.mkdir(parents=True, exist_ok=True)
    loss = KvLoss(tokens=2048, mean=0.001, worst=0.01, changed=0.004, codex="demo")
    KvLosses(data).keep(quoter_model, shape_of(read_gguf(quoter_model)), "q8_0", loss)
    found = checks(LORE_MODEL=str(quoter_model))["KV"]["detail"]
    assert "keys f16, values f16" in found
    assert "q8_0 measured: KL 0.0010 mean, 0.0100 99th percentile, 0.4 % other tokens (2,048 tokens of demo)" in found


def test_settings_that_loading_would_fail_with_are_found_before_a_daemon_starts(checks, quoter_model):
    broken = {"LORE_MODEL__KV_TYPE_V": "q8_0", "LORE_MODEL__FLASH_ATTENTION": "no"}
    found = checks(LORE_MODEL=str(quoter_model), **broken)["loading"]
    assert (found["ok"], "need flash attention" in found["detail"]) == (False, True)
    assert "flash_attention = true" in found["fix"]


def test_a_file_that_changed_under_a_running_daemon_has_its_command():
    (told,) = faults_of({"model": {"path": "/m/x.gguf", "changed": True}})
    assert (told.ok, told.fix) == (False, "lore model use /m/x.gguf")
    assert list(faults_of({"model": {"path": "/m/x.gguf", "changed": False}})) == list(faults_of({})) == []


def test_search_by_words_alone_is_no_fault_and_a_model_that_is_not_there_is_one(monkeypatch):
    def embeds():
        return embedding(settings().settings)

    assert embeds().ok
    assert embeds().detail == "none: search goes by words and names"
    monkeypatch.setenv("LORE_EMBEDDING__MODEL", "/nowhere/model.gguf")
    assert (embeds().ok, "/nowhere/model.gguf" in embeds().detail) == (False, True)
    monkeypatch.setenv("LORE_EMBEDDING__MODEL", "builtin:word")
    assert (embeds().ok, "built in to embed: builtin:words" in embeds().detail) == (False, True)
    monkeypatch.setenv("LORE_EMBEDDING__MODEL", "builtin:words")
    assert embeds().ok


def test_a_running_daemon_says_why_its_embedding_model_is_not_used():
    (found,) = faults_of({"embedding": {"model": "m.gguf", "fault": "m.gguf does not embed: it is a ranking model"}})
    assert "it is a ranking model" in found.detail
    assert list(faults_of({"embedding": {"model": "", "fault": ""}})) == []


def test_pools_that_the_engine_gave_up_are_told():
    (told,) = faults_of({"engine": {"cache": {"broken_pools": 2.0}}})
    assert (told.ok, told.detail[:7]) == (False, "2 times")
    assert list(faults_of({"engine": {"cache": {"broken_pools": 0.0}}})) == []


def test_cpu_features_are_those_that_are_on():
    told = "CPU : SSE3 = 1 | AVX = 1 | AVX512 = 0 | OPENMP = 1 | "
    assert cpu_features(told) == "SSE3 AVX OPENMP"


def test_the_engine_is_not_looked_for_in_the_folder_that_one_is_in(tmp_path, monkeypatch):
    (tmp_path / "llama_cpp.py").write_text("raise SystemExit('code of a codebase that nobody trusts')")
    monkeypatch.chdir(tmp_path)
    assert engine(built_engine()).ok


# ---- --context -------------------------------------------------------------------------------------------------------


def test_a_context_is_measured_at_once_where_that_takes_minutes(lore, lorekeep):
    done = lore("doctor", "--context")
    assert (done.returncode, done.stdout) == (0, "builtin:quoter, KV f16 f16: measured\n")
    assert "9,000 tokens and 66 questions, at most about 5 s; Ctrl-C keeps what was measured" in done.stderr
    assert json.loads(lore("doctor", "--context", "--again", "--json").stdout)["words"] == "measured again"


@pytest.mark.parametrize(
    ("seconds", "words"), [(601.0, "at most about 10 min 01 s"), (None, "it is not known yet how long that takes")]
)
def test_a_long_measurement_needs_somebody_to_agree(lore, lorekeep, seconds, words):
    lorekeep.service.measuring_s = seconds
    refused = lore("doctor", "--context", stdin="")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert words in refused.stderr
    assert "say --yes" in refused.stderr
    assert lore("doctor", "--context", "--yes").returncode == 0


def test_a_measured_context_is_a_row_for_each_length_that_was_asked():
    def row(length, share, depths, **kinds):
        return {"length": length, "share": share, "depths": depths, "kinds": kinds}

    whole, none = {"single": 1.0, "several": 0.6, "chain": 0.0}, {"single": None, "several": None, "chain": None}
    found = {
        "model": "small",
        "kv": "f16 f16",
        "words": "so it is",
        "depths": [0.0, 0.5, 1.0],
        "lengths": [row(1024, 1.0, [1.0, 1.0, 1.0], **whole), row(4096, None, [None] * 3, **none)],
    }
    assert page(found).splitlines() == [
        "tokens  at 0 %  at 50 %  at 100 %  right  single  several  chain",
        " 1,024   100 %    100 %     100 %  100 %   100 %     60 %    0 %",
        "",
        "small, KV f16 f16: so it is",
    ]
