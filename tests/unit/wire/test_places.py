"""Clients look for the daemon in one order: option, variable, user's, system's."""

import os
from pathlib import Path

from orchestrator.wire.places import candidates


def test_the_option_and_the_variable_stand_alone():
    environ = {"LORE_SOCKET": "/variable", "XDG_RUNTIME_DIR": "/run/user/7"}
    assert candidates("/option", environ) == (Path("/option"),)
    assert candidates(None, environ) == (Path("/variable"),)


def test_the_user_s_comes_before_the_system_s():
    user = Path("/run/user/7/lorekeep/lore.sock")
    system = Path("/run/lorekeep/lore.sock")
    assert candidates(None, {"XDG_RUNTIME_DIR": "/run/user/7"}) == (user, system)


def test_without_the_variable_the_runtime_folder_is_the_user_s_own():
    assert candidates(None, {})[0] == Path(f"/run/user/{os.getuid()}/lorekeep/lore.sock")
