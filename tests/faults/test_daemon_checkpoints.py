"""Checkpoints through the daemon: damage is told and answered rightly; a model without ranges keeps its conversations."""

import pytest
from support import odd_models
from support.house import CODES, ask, blocks, codebase, counters, living, until


def states(daemon):
    return sorted((daemon.folder / "cache").rglob("*.kv"))


def faults(daemon):
    return daemon.json("stats", "cache")["faults"]


@pytest.fixture(scope="module")
def house(models):
    with living(models) as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
        ask(daemon, "zebra")
        until(lambda: len(states(daemon)) > 1)
        yield daemon


def test_other_kv_types_find_nothing_compute_and_come_back_to_what_they_left(house):
    for types, source in (("q8_0", "computed"), ("f16", "disk")):
        house.stop()
        house.environment |= {"LORE_MODEL__KV_TYPE_K": types, "LORE_MODEL__KV_TYPE_V": types}
        house.start()
        answer = ask(house, "walrus")
        assert answer["answer"].strip().startswith(CODES["walrus"])
        restored = house.json("stats", "cache")["restores"]["disk_segments"]
        assert (restored > 0) == (source == "disk")
        assert not any(faults(house).values())


def test_damaged_checkpoints_are_told_and_the_floor_is_computed_and_the_answer_right(house):
    house.kill()
    for file in states(house):
        data = bytearray(file.read_bytes())
        data[-100] ^= 1
        file.write_bytes(data)
    house.start()
    answer = ask(house, "zebra")
    assert answer["answer"].strip().startswith(CODES["zebra"])
    assert counters(house)["computed_tokens"] >= blocks(answer["lore"])["codex"]["tokens"]
    assert faults(house)["damaged"] > 0
    assert "not usable" in house.log.read_text()
    assert "damaged" in house.lore("stats", "cache").stdout


@pytest.mark.parametrize("kind", ["hybrid", "sliding"])
def test_a_conversation_on_a_model_of_another_kind_goes_on_after_the_daemon_was_killed(kind, models, tmp_path):
    path = getattr(odd_models, kind)(tmp_path / "model.gguf")
    with living(models, model=str(path)) as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
        name = ask(daemon, "zebra")["lore"]["session"]
        warm = ask(daemon, "zebra", session=name)["lore"]["prompt"]
        until(lambda: counters(daemon)["tier_segments"] == len(states(daemon)) >= 3)
        daemon.kill()
        daemon.start()
        again = ask(daemon, "walrus", session=name)["lore"]["prompt"]
        assert again["computed"] <= warm["computed"] + 60
        assert counters(daemon)["tier_restored_tokens"] >= warm["tokens"] - 1, "the floor, and the tail behind it"
        assert ("turns end" in daemon.lore("stats", "cache").stdout) is (kind == "hybrid")
