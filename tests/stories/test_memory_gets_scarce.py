"""Free VRAM falls, and the same codex goes from CAG to RAG; it comes back, and so does the codex. Each with its numbers."""

import pytest
from support.house import CODES, ask, blocks, cached_whole, codebase, reply, shown, until
from support.scarce_memory import CEILING, FREE, OWN, TOTAL, leave_room_for_kv, on_a_card

from governor.settings import short_count

IDLE, TOO_HOT = 0x1, 0x20  # NVML's clock reasons
STAYS = 'yield = "never"\n'  # the engine, and is asked while memory is scarce


@pytest.fixture(scope="module")
def running(tmp_path_factory, models):
    """A daemon with a codex of about 2,500 tokens, on a card with room for all of it."""
    with on_a_card(models, tmp_path_factory.mktemp("driver"), STAYS, dwell_s=0.4) as (daemon, driver):
        assert daemon.lore("load", codebase(daemon.folder / "vaults", functions=160), "--wait").returncode == 0
        yield daemon, driver


@pytest.fixture
def house(running):
    return running[0]


@pytest.fixture
def driver(running):
    return running[1]


def tier(house):
    (codex,) = reply(house, "/v1/status")["codices"]
    return codex["tier"]


def test_the_codex_goes_from_cag_to_rag_and_back_with_its_numbers(house, driver):
    plenty = ask(house, "zebra")
    assert plenty["lore"]["strategy"]["name"] == "CAG"
    assert "tokens of the codex are in the prefix" in plenty["lore"]["strategy"]["reason"]
    assert blocks(plenty["lore"])["codex"]["tokens"] > 1200

    leave_room_for_kv(house, driver, 6_000_000)
    until(lambda: tier(house) == "none")
    (codex,) = reply(house, "/v1/status")["codices"]
    assert codex["reason"].startswith(f"none, because {short_count(codex['tokens']['full'])} tokens need ")
    assert codex["reason"].endswith("MiB are free")
    assert codex["hint"] == "KV type q8_0 would make it fit" or codex["hint"].endswith(
        "MiB more for KV would make it fit"
    )
    scarce = ask(house, "walrus")
    strategy = scarce["lore"]["strategy"]
    assert (strategy["name"], strategy["tier"]) == ("RAG", "none")
    assert f"{codex['tokens']['full']:,}" in strategy["reason"]
    assert strategy["window"] < 4_096
    assert blocks(scarce["lore"])["codex"]["tokens"] < 100
    assert scarce["answer"].strip().startswith(CODES["walrus"])
    assert {"path": "walrus.py", "start": 3, "end": 3, "valid": True} in scarce["lore"]["citations"]
    passages = house.json("plan", "the access code of vault zebra")["retrieval_plan"]["passages"]
    assert any(passage.startswith("zebra.py:") for passage in passages)

    driver.show(free=FREE)
    until(lambda: tier(house) == "full")
    back = ask(house, "zebra")
    assert back["lore"]["strategy"]["name"] == "CAG"
    assert back["answer"].strip().startswith(CODES["zebra"])
    assert back["lore"]["codex"]["generation"] == plenty["lore"]["codex"]["generation"]


def test_pressure_that_passes_sooner_than_it_must_last_moves_nothing(models, tmp_path):
    with on_a_card(models, tmp_path, STAYS, dwell_s=3600) as (daemon, driver):
        assert daemon.lore("load", codebase(daemon.folder / "vaults", functions=90), "--wait").returncode == 0
        leave_room_for_kv(daemon, driver, 6_000_000)
        until(lambda: reply(daemon, "/v1/status")["governor"]["cells"] < 4_096)
        assert tier(daemon) == "full"


def test_the_levels_stand_in_the_environment_and_not_their_figures(house, driver):
    driver.show(free=FREE)
    until(lambda: reply(house, "/v1/status")["governor"]["level"] == "calm")
    leave_room_for_kv(house, driver, 20_000_000)
    until(lambda: reply(house, "/v1/status")["governor"]["level"] == "critical")
    planned = house.lore("plan", "what is free?", "--prompt")
    assert "GPU memory: critical" in planned.stdout, planned.stderr
    driver.show(free=FREE)
    until(lambda: "GPU memory: calm" in house.lore("plan", "what is free?", "--prompt").stdout)


def pools(house):
    """By codex."""
    return {pool["name"].rpartition("/")[2]: pool for pool in reply(house, "/v1/status")["engine"]["pools"]}


def test_at_a_critical_level_the_floor_that_nobody_asks_on_goes_and_the_asked_one_stays(models, tmp_path):
    with on_a_card(models, tmp_path, STAYS, dwell_s=0.4) as (daemon, driver):
        for name in ("asked", "idle"):  # so the one that is computed last is not the one that stays
            assert daemon.lore("load", codebase(daemon.folder / name, functions=160), "--wait").returncode == 0
        assert ask(daemon, "zebra", codex="asked")["answer"].strip().startswith(CODES["zebra"])
        before, floor = pools(daemon), shown(daemon, "asked")["floor_tokens"]
        assert before.keys() >= {"asked", "idle"}

        leave_room_for_kv(daemon, driver, before["asked"]["bytes"] * 5 // 4)  # for one of the two
        until(lambda: reply(daemon, "/v1/status")["governor"]["level"] == "critical")
        until(lambda: "idle" not in pools(daemon))
        assert pools(daemon)["asked"]["evictable"] >= floor
        answer = ask(daemon, "walrus", codex="asked")
        assert answer["answer"].strip().startswith(CODES["walrus"])
        assert cached_whole(answer["lore"], "identity", "codex")
        assert {blocks(answer["lore"])[kind]["from"] for kind in ("identity", "codex")} == {"ram"}
        assert ask(daemon, "walrus", codex="idle")["answer"].strip().startswith(CODES["walrus"]), "it comes back"


EMBEDDING = '[embedding]\nmodel = "builtin:words"\nthreads = 1\ngpu_layers = 2\n'


def test_the_embedding_model_leaves_a_scarce_memory_and_makes_no_vectors_on_a_hot_gpu(models, tmp_path):
    with on_a_card(models, tmp_path, STAYS + EMBEDDING, dwell_s=0.4) as (daemon, driver):
        folder = codebase(daemon.folder / "vaults")
        assert daemon.lore("load", folder, "--wait").returncode == 0
        until(lambda: embedded(daemon))
        status = reply(daemon, "/v1/status")
        model = status["embedding"]
        assert (model["loaded"], model["resting"], model["gpu_layers"]) == (True, "", 0)
        assert "embedding.gpu_layers has no effect" in model["notice"]
        assert status["governor"]["embedding_bytes"] == model["weights"] + model["buffers"]
        assert daemon.json("plan", "what is zebra?")["memory"]["embedding_bytes"] == model["weights"] + model["buffers"]
        assert "for the embedding model" in daemon.lore("status", "-v").stdout
        (card,) = status["governor"]["sensors"]["gpus"]
        assert (card["temperature"], card["clock_reasons"], card["index"]) == (41.0, ["idle"], 0)

        driver.show(free=TOTAL - OWN - CEILING * 9 // 10)  # others hold nine tenths
        until(lambda: reply(daemon, "/v1/status")["embedding"]["resting"])
        until(lambda: not reply(daemon, "/v1/status")["embedding"]["loaded"])
        until(lambda: reply(daemon, "/v1/status")["governor"]["embedding_bytes"] == 0)
        (folder / "new.py").write_text("def unheard_of():\n    return 'new'\n")
        assert daemon.lore("load", folder, "--wait").returncode == 0
        found = daemon.json("search", "zebra vault")
        assert found["hits"][0]["path"] == "zebra.py"
        assert any("the embedding model is unloaded" in notice for notice in found["notices"])
        assert not embedded(daemon)

        driver.show(free=FREE)
        until(lambda: embedded(daemon))
        found = daemon.json("search", "zebra vault")
        assert found["notices"] == []
        assert "vector" in found["hits"][0]["scores"]

        driver.show(reasons=TOO_HOT)
        until(lambda: reply(daemon, "/v1/status")["engine"]["prefill_share"] == 0.5)
        assert reply(daemon, "/v1/status")["governor"]["power"] == "throttled"
        (folder / "newer.py").write_text("def unheard_of_until_now():\n    return 'newer'\n")
        assert daemon.lore("load", folder, "--wait").returncode == 0
        assert not embedded(daemon)
        page = daemon.lore("status").stdout
        assert "throttled: heat or a power brake" in page
        assert "prompts get half of their time beside answers" in page
        assert daemon.json("search", "zebra vault")["hits"][0]["path"] == "zebra.py"

        driver.show(reasons=IDLE)
        until(lambda: embedded(daemon))
        status = reply(daemon, "/v1/status")
        assert (status["governor"]["power"], status["engine"]["prefill_share"]) == ("normal", 1.0)


def embedded(daemon):
    (codex,) = reply(daemon, "/v1/status")["codices"]
    found = codex.get("embedding")
    return bool(found) and found["embedded"] == found["texts"]
