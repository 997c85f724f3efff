"""`lore model use`: the user's file, what becomes cold, and what is refused."""

import json
import tomllib

import pytest
from support.wire_shapes import filled

from orchestrator.errors import InvalidRequest, NotPermitted
from orchestrator.wire.replies import ProgressEvent


@pytest.fixture
def config(folder):
    path = folder / "lorekeep" / "config.toml"
    path.parent.mkdir()
    return path


@pytest.fixture
def use(lore, folder):
    places = {"XDG_CONFIG_HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    return lambda *arguments, **more: lore("model", "use", *arguments, **places, **more)


def test_it_writes_the_setting_and_names_the_floors_that_become_cold(use, lorekeep, config):
    config.write_text("# mine\n[model]\nthreads = 3\n")
    done = use("builtin:noise-s")
    assert done.returncode == 0
    assert config.read_text() == '# mine\n[model]\nthreads = 3\npath = "builtin:noise-s"\n'
    assert "cold: the floor of demo, which is built anew for this model" in done.stderr
    assert "the daemon runs it now" in done.stderr
    again = use("builtin:noise-s").stderr
    assert "model.path = builtin:noise-s already" in again
    assert "the daemon runs it\n" in again


def test_it_needs_no_daemon_and_makes_the_file(use, config):
    done = json.loads(use("builtin:quoter", "--json").stdout)
    assert (done["model"]["changed"], done["cold"]) == (True, [])
    assert tomllib.loads(config.read_text()) == {"model": {"path": "builtin:quoter"}}
    assert config.stat().st_mode & 0o777 == 0o600


def test_a_model_that_the_daemon_cannot_load_is_not_written(use, lorekeep, config, monkeypatch, folder):
    async def refuse(name):
        yield filled(ProgressEvent, phase="loading", total=1)
        raise InvalidRequest(f"{name} cannot be loaded: it is broken", "builtin:quoter answers again")

    lorekeep.service.use_model = refuse
    done = use("builtin:noise-s")
    assert (done.returncode, "it is broken" in done.stderr, config.exists()) == (2, True, False)


def test_later_changes_the_file_alone_and_says_how_it_takes_effect(use, lorekeep, config):
    done = use("builtin:noise-s", "--later")
    assert "restart the daemon" in done.stderr
    assert "cold: the floor of demo" in done.stderr
    assert lorekeep.service.running == "builtin:quoter"


def test_who_may_not_change_the_daemon_changes_the_own_file_and_is_told(use, lorekeep, config):
    async def refuse(name):
        raise NotPermitted("PUT /v1/model needs admin")
        yield {}

    lorekeep.service.use_model = refuse
    done = use("builtin:noise-s")
    assert (done.returncode, "keeps its model" in done.stderr) == (0, True)


def test_the_model_that_runs_makes_nothing_cold(use, lorekeep, config):
    assert json.loads(use("builtin:quoter", "--json").stdout)["cold"] == []


def test_a_variable_that_wins_over_the_file_is_named(use, config):
    assert "LORE_MODEL is set and wins" in use("builtin:quoter", LORE_MODEL="builtin:noise-s").stderr


def test_an_unknown_model_or_a_file_that_is_none_changes_nothing(use, config, folder):
    (folder / "odd.gguf").write_bytes(b"no")
    for name, status in (("nope", 5), (str(folder / "odd.gguf"), 2)):
        done = use(name)
        assert (done.returncode, "Traceback" in done.stderr) == (status, False)
    assert not config.exists()
