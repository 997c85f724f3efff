"""A second daemon is refused before its parts are loaded."""

import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from orchestrator.api.sockets import lock_of
from orchestrator.errors import Conflict
from orchestrator.instance.lock_file import taken
from orchestrator.instance.second import refuse_second
from orchestrator.settings import Paths
from orchestrator.settings.model import ServeSettings

HEAVY = ("lancedb", "pyarrow", "pydantic_ai", "starlette", "uvicorn", "numpy")


@pytest.fixture
def paths(tmp_path):
    made = Paths.of({"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run")})
    made.prepare()
    return made


@contextmanager
def held(file, about=""):
    lock = taken(file, about)
    try:
        yield
    finally:
        os.close(lock)


def test_where_no_daemon_lives_nothing_is_refused(paths):
    refuse_second(ServeSettings(), paths)
    with held(lock_of(paths.socket)):
        pass
    refuse_second(ServeSettings(), paths)


def test_the_daemon_that_serves_the_socket_is_named(paths):
    with (
        held(lock_of(paths.socket)),
        pytest.raises(Conflict, match=f"pid {os.getpid()}.*already serves {paths.socket}"),
    ):
        refuse_second(ServeSettings(), paths)


def test_the_daemon_that_has_the_folders_is_named_with_its_socket(paths):
    with held(paths.cache / "daemon.lock", "/tmp/other.sock"), pytest.raises(Conflict) as refused:
        refuse_second(ServeSettings(socket="/tmp/mine.sock"), paths)
    assert str(paths.cache) in refused.value.message
    assert "/tmp/other.sock" in refused.value.hint


def test_nothing_heavy_is_loaded_for_it():
    code = f"import orchestrator.instance.second, sys; print([one for one in {HEAVY} if one in sys.modules])"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
