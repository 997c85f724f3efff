"""The daemon's folders are one daemon's, for as long as that lives and no longer; a second one is refused before its parts
are loaded."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from orchestrator.errors import Conflict
from orchestrator.instance import daemon_of, held, lock_file, lock_of, refuse_second
from orchestrator.settings import Paths, SettingsError
from orchestrator.settings.model import ServeSettings

HEAVY = ("lancedb", "pyarrow", "pydantic_ai", "starlette", "uvicorn", "numpy")
HOLDING = """
import os, sys
from orchestrator.instance import held
from orchestrator.settings import Paths
with held(Paths.of(os.environ), "/run/first.sock"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def paths(tmp_path):
    made = Paths.of({"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run")})
    made.prepare()
    return made


@pytest.fixture
def other(paths, tmp_path):
    """Another process that holds them."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", HOLDING],
        env={**os.environ, "HOME": str(tmp_path), **dict.fromkeys(("XDG_DATA_HOME", "XDG_CACHE_HOME"), "")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_folder_that_another_process_holds_is_named_with_that_process_and_its_socket(paths, other):
    with pytest.raises(Conflict, match=f"pid {other.pid}.*{paths.data}") as refused, held(paths, "/run/second.sock"):
        pass
    assert "--socket /run/first.sock" in refused.value.hint
    assert f"kill {other.pid}" in refused.value.hint
    assert "XDG_DATA_HOME" in refused.value.hint


def test_a_kill_lets_go_of_it_though_its_file_stays(paths, other):
    assert daemon_of(paths).pid == str(other.pid)
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert (paths.data / "daemon.lock").exists()
    assert daemon_of(paths) is None
    with held(paths, "/run/second.sock"):
        assert daemon_of(paths).about == "/run/second.sock"
    assert daemon_of(paths) is None


def test_one_folder_in_common_is_enough(paths, tmp_path):
    elsewhere = Paths.of({"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data"), "XDG_RUNTIME_DIR": "/run"})
    elsewhere.data.mkdir(parents=True)
    with held(paths, "a"), pytest.raises(Conflict, match=str(paths.cache)), held(elsewhere, "b"):
        pass
    with held(paths, "a"):
        assert not list(elsewhere.data.glob("*.sqlite3"))


def test_data_and_cache_in_one_folder_are_held_once(tmp_path):
    environment = {"STATE_DIRECTORY": str(tmp_path), "CACHE_DIRECTORY": str(tmp_path), "HOME": "/root"}
    with held(Paths.of(environment), "a"):
        assert daemon_of(Paths.of(environment)).pid == str(os.getpid())


def test_a_lock_that_is_a_link_is_not_followed(paths, tmp_path):
    (tmp_path / "mine").write_text("mine")
    (paths.data / "daemon.lock").symlink_to(tmp_path / "mine")
    with pytest.raises(SettingsError, match=r"cannot lock .*daemon\.lock"), held(paths, "a"):
        pass
    assert (tmp_path / "mine").read_text() == "mine"


# -- a second daemon


@contextmanager
def locked(file, about=""):
    lock = lock_file(file, about)
    try:
        yield
    finally:
        os.close(lock)


def test_where_no_daemon_lives_nothing_is_refused(paths):
    refuse_second(ServeSettings(), paths)
    with locked(lock_of(paths.socket)):
        pass
    refuse_second(ServeSettings(), paths)


def test_the_daemon_that_serves_the_socket_is_named(paths):
    with (
        locked(lock_of(paths.socket)),
        pytest.raises(Conflict, match=f"pid {os.getpid()}.*already serves {paths.socket}"),
    ):
        refuse_second(ServeSettings(), paths)


def test_the_daemon_that_has_the_folders_is_named_with_its_socket(paths):
    with locked(paths.cache / "daemon.lock", "/tmp/other.sock"), pytest.raises(Conflict) as refused:
        refuse_second(ServeSettings(socket="/tmp/mine.sock"), paths)
    assert str(paths.cache) in refused.value.message
    assert "/tmp/other.sock" in refused.value.hint


def test_nothing_heavy_is_loaded_for_it():
    code = f"import orchestrator.instance, sys; print([one for one in {HEAVY} if one in sys.modules])"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
