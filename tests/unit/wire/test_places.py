"""Paths as people write them: `~` is a home, that of nobody does not exist. And where clients look for the daemon."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codex.errors import SourceError
from codex.trees import sources
from codex.trees.sources import LoadSpec, resolve
from orchestrator.cli.codex import absolute
from orchestrator.errors import InvalidRequest, NotFound
from orchestrator.model.embedding_model import find_embedding
from orchestrator.model.model_file import find_model, removal_of
from orchestrator.settings.model import EmbeddingSettings
from orchestrator.wire import places
from orchestrator.wire.places import candidates, path_of

NOBODY = "~there-is-no-such-user/model.gguf"


def test_a_home_is_put_in_its_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert path_of("~/x.gguf") == tmp_path / "x.gguf"
    assert path_of("~root/x.gguf") == Path("/root/x.gguf")
    assert [path_of(name) for name in ("x", "/x/~/y", "a~b")] == [Path("x"), Path("/x/~/y"), Path("a~b")]
    assert path_of(NOBODY) == Path(NOBODY)


def test_a_model_in_the_home_of_nobody_is_one_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=f"there is no model file {NOBODY}"):
        find_model(NOBODY, tmp_path)
    assert "there-is-no-such-user" in find_embedding(EmbeddingSettings(model=NOBODY), tmp_path).fault
    with pytest.raises(NotFound, match="no downloaded model ~there"):
        removal_of(NOBODY, tmp_path, [])


def test_a_model_that_is_configured_there_keeps_no_other_from_being_dropped(tmp_path: Path) -> None:
    (tmp_path / "one.gguf").write_bytes(b"GGUF")
    assert removal_of("one.gguf", tmp_path, [NOBODY]).paths == (tmp_path / "one.gguf",)


def test_code_in_the_home_of_nobody_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no-such-user/code is not there"):
        resolve(LoadSpec(("~there-is-no-such-user/code",)), tmp_path)
    assert absolute("~there-is-no-such-user/code").endswith("/~there-is-no-such-user/code")


def test_a_socket_in_the_home_of_nobody_is_one_that_nobody_listens_at() -> None:
    assert candidates("~there-is-no-such-user/s", {}) == (Path("~there-is-no-such-user/s"),)


@given(st.from_regex(r"(https?|SSH|git|file|ftp|)(://|:|)[a-z.~-]{0,3}@?[a-z./-]{0,4}:?[a-z/]{0,3}", fullmatch=True))
def test_both_ends_tell_a_url_from_a_path_by_one_rule(named: str) -> None:
    assert places.is_url(named) == sources.is_url(named)


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
