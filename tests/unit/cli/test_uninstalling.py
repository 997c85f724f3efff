"""`lore service uninstall --purge` asks before anything happens, deletes what the daemon wrote, and nothing else."""

import json
import os

import pytest

from orchestrator.cli.client import Failure
from orchestrator.cli.service import bytes_in, data_folders, delete, paths_of
from orchestrator.instance import held
from orchestrator.settings import Paths

NAMES = ("CONFIG", "DATA", "STATE", "CACHE")


@pytest.fixture
def places(folder):
    """A house in which a daemon has been; systemd is not there."""
    environment = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in NAMES}
    environment |= {"HOME": str(folder), "XDG_RUNTIME_DIR": str(folder / "run"), "PATH": "/nowhere"}
    paths = Paths.of(environment)
    paths.prepare()
    (paths.data / "memories.sqlite3").write_bytes(b"m" * 2048)
    paths.config.mkdir(parents=True)
    (paths.config / "config.toml").write_text("")
    (folder / "data" / "other").mkdir()
    return environment


def test_nothing_is_touched_where_nobody_says_yes(lore, places, folder):
    assert lore("service", "install", **places).returncode == 1  # systemd is not there; the units are
    unit = folder / "config" / "systemd" / "user" / "lorekeep.service"
    done = lore("service", "uninstall", "--purge", **places)
    assert (done.returncode, "--yes deletes without asking" in done.stderr) == (2, True)
    assert str(folder / "data" / "lorekeep") in done.stderr
    assert (unit.exists(), (folder / "data" / "lorekeep" / "memories.sqlite3").exists()) == (True, True)


def test_data_state_and_cache_go_and_the_configuration_and_the_neighbours_stay(lore, places, folder):
    done = lore("service", "uninstall", "--purge", "--yes", "--json", **places)
    told = json.loads(done.stdout)
    assert told["purged"] == [str(folder / name / "lorekeep") for name in ("data", "state", "cache")]
    assert not any((folder / name / "lorekeep").exists() for name in ("data", "state", "cache"))
    assert (folder / "config" / "lorekeep" / "config.toml").exists()
    assert (folder / "data" / "other").is_dir()


def test_without_purge_data_stays(lore, places, folder):
    lore("service", "uninstall", **places)
    assert (folder / "data" / "lorekeep" / "memories.sqlite3").exists()


def test_a_daemon_that_still_runs_keeps_its_folders(lore, places, folder):
    paths = Paths.of(places)
    with held(paths, "/run/x.sock"):
        done = lore("service", "uninstall", "--purge", "--yes", **places)
    assert (done.returncode, f"kill {os.getpid()}" in done.stderr) == (1, True)
    assert (folder / "data" / "lorekeep" / "memories.sqlite3").exists()


def test_a_link_goes_and_what_it_leads_to_stays(places, folder):
    paths, elsewhere = Paths.of(places), folder / "large-disk"
    elsewhere.mkdir()
    (elsewhere / "kv").write_text("x")
    (paths.cache).rmdir()
    paths.cache.symlink_to(elsewhere)
    delete(data_folders(paths), paths)
    assert (paths.cache.is_symlink(), (elsewhere / "kv").exists()) == (False, True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may delete everything")
def test_what_may_not_be_deleted_is_named(places, folder):
    paths = Paths.of(places)
    paths.data.chmod(0o500)
    with pytest.raises(Failure, match=r"memories\.sqlite3"):
        delete([paths.data], paths)
    paths.data.chmod(0o700)


def test_sizes_are_those_of_files(places):
    assert bytes_in(Paths.of(places).data) == 2048


def test_the_system_s_folders_are_those_of_its_unit():
    assert [str(one) for one in data_folders(paths_of(user=False))] == ["/var/lib/lorekeep", "/var/cache/lorekeep"]
