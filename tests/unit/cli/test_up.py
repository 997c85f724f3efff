"""`lore up` without a daemon: what it offers, what it refuses, and what it says without a network."""

import json
from pathlib import Path

import pytest
from support.nvml import GIB, StandIn, compiled


@pytest.fixture
def up(lore, folder):
    places = {"XDG_CONFIG_HOME": str(folder / "config"), "XDG_CACHE_HOME": str(folder), "no_proxy": "*"}
    return lambda *arguments, **more: lore("up", *arguments, **places, **more)


def test_a_dry_run_offers_models_for_this_machine_and_changes_nothing(up, folder):
    offered = json.loads(up("--dry-run", "--json").stdout)
    assert "free" in offered["machine"]
    assert up("--dry-run").stdout.startswith(f"{offered['machine']}\n1  ")
    assert list(folder.iterdir()) == []


def test_a_card_is_read_from_its_driver(lore_process, folder, models):
    driver = StandIn(folder, compiled(models.parent))
    driver.show(total=24 * GIB, free=24 * GIB - GIB // 2)
    card = {**driver.environment, "LORE_GOVERNOR__GPU": "0", "XDG_CONFIG_HOME": str(folder)}
    offered = json.loads(lore_process("up", "--dry-run", "--json", **card).stdout)
    assert offered["machine"] == "23.5 GiB of 24.0 GiB of VRAM free"
    assert offered["models"][0]["bytes"] > 8 * GIB


def test_where_nobody_can_be_asked_it_names_the_options_that_choose(up):
    done = up()
    assert done.returncode == 2
    assert "nobody can be asked which model" in done.stderr
    assert "--yes takes" in done.stderr
    assert "--model NAME" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["nowhere"], 2, "there is no "),
        (["--model", "no-such"], 5, "no model no-such"),
        (["--model", "hf:owner"], 2, "hf:OWNER/REPO/FILE.gguf"),
    ],
)
def test_what_cannot_be_brought_up_is_refused_at_once(up, arguments, status, words):
    done = up(*arguments)
    assert (done.returncode, words in done.stderr) == (status, True)


def test_without_a_network_it_says_what_to_copy_where(up, folder):
    done = up("--model", "qwen3-4b", HF_ENDPOINT="http://127.0.0.1:9")
    file = folder / "lorekeep/models/unsloth--Qwen3-4B-Instruct-2507-GGUF/Qwen3-4B-Instruct-2507-Q4_K_M.gguf"
    assert done.returncode == 1
    assert "when there is a network, the same command goes on" in done.stderr
    assert "download http://127.0.0.1:9/unsloth/Qwen3-4B-Instruct-2507-GGUF/resolve/main/Qwen3-4B" in done.stderr
    assert f"elsewhere and copy it to {file}, then the same command again" in done.stderr


def test_without_a_daemon_it_has_set_the_model_and_names_the_line_that_starts_one(up, folder, quoter_model):
    done = up("--model", str(quoter_model))
    assert done.returncode == 3
    assert "start one in another terminal: lore serve; then the same command again" in done.stderr
    assert str(quoter_model) in (folder / "config/lorekeep/config.toml").read_text()
    again = up()
    assert f"the model is {quoter_model}" in again.stderr
    assert again.returncode == 3


def test_a_download_that_has_begun_is_offered_first(up, folder):
    first, second, *_ = json.loads(up("--dry-run", "--json").stdout)["models"]
    owner, name, file = second["source"].removeprefix("hf:").split("/")
    part = Path(folder) / "lorekeep" / "models" / f"{owner}--{name}" / f"{file}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"GG")
    offered = json.loads(up("--dry-run", "--json").stdout)["models"]
    assert offered[0]["name"] == second["name"]
    assert first != second
