"""`lore model drop`: what was downloaded goes, after asking; nothing in use, nothing that lies elsewhere."""

import json
import shutil

import pytest


@pytest.fixture
def store(folder, quoter_model):
    """A folder of downloaded models: one whole, one in two parts."""
    place = folder / "cache" / "lorekeep" / "models"
    (place / "owner--repo").mkdir(parents=True)
    shutil.copy(quoter_model, place / "owner--repo" / "small.gguf")
    for part in (1, 2):
        (place / f"big-{part:05d}-of-00002.gguf").write_bytes(b"GGUF")
    return place


@pytest.fixture
def drop(lore, folder):
    places = {"XDG_CONFIG_HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    return lambda *arguments, **more: lore("model", "drop", *arguments, **places, **more)


def test_a_model_goes_with_its_folder_and_others_stay(drop, store):
    done = drop("small", "--yes", "--json")
    assert json.loads(done.stdout)["dropped"] == "small"
    assert sorted(path.name for path in store.iterdir()) == ["big-00001-of-00002.gguf", "big-00002-of-00002.gguf"]


def test_a_model_in_parts_goes_whole(drop, store):
    assert drop("big-00001-of-00002", "-y").returncode == 0
    assert [path.name for path in store.iterdir()] == ["owner--repo"]


def test_nothing_goes_unasked(drop, store):
    done = drop("small")
    assert (done.returncode, "say --yes" in done.stderr) == (2, True)
    assert (store / "owner--repo" / "small.gguf").exists()


def test_the_model_that_runs_or_is_configured_stays(drop, store, lorekeep):
    path = store / "owner--repo" / "small.gguf"
    lorekeep.service.running = str(path)
    elsewhere = {"LORE_SOCKET": "/nonexistent"}
    configured = ({**elsewhere, "LORE_MODEL": str(path)}, {**elsewhere, "LORE_EMBEDDING__MODEL": str(path)})
    for environment in ({}, *configured):
        done = drop("small", "--yes", **environment)
        assert (done.returncode, "is in use" in done.stderr) == (1, True), done.stderr
    assert path.exists()


def test_a_file_elsewhere_a_built_in_model_and_an_unknown_one_are_refused(drop, store, quoter_model):
    for name, status in ((str(quoter_model), 2), ("builtin:quoter", 2), ("nope", 5), ("../nope.gguf", 5)):
        done = drop(name, "--yes")
        assert (done.returncode, "Traceback" in done.stderr) == (status, False), done.stderr
    assert quoter_model.exists()


def test_a_link_in_the_folder_goes_and_what_it_leads_to_stays(drop, store, quoter_model):
    (store / "linked.gguf").symlink_to(quoter_model)
    assert drop("linked", "--yes").returncode == 0
    assert not (store / "linked.gguf").is_symlink()
    assert quoter_model.exists()


def test_two_models_of_one_name_are_told_apart_by_their_paths(drop, store, quoter_model):
    shutil.copy(quoter_model, store / "small.gguf")
    assert "2 models are named small" in drop("small", "--yes").stderr
    assert drop(str(store / "small.gguf"), "--yes").returncode == 0
    assert (store / "owner--repo" / "small.gguf").exists()
