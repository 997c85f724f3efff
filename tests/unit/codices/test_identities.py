"""Which version of an identity answers: the newest whose floor stands, as far as files and what is kept can tell."""

import os

import pytest

from formatters.context import CodexView, IdentityView, ToolView
from orchestrator.codices.floors import DEFAULT, DEFAULT_IDENTITY_TEXT, IdentityFiles, ServingIdentities
from orchestrator.codices.state import CodexStateStore, FloorKey, pool_parts
from orchestrator.errors import InvalidRequest, NotFound

CODEX = CodexView(name="vaults", generation=3)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "identities").mkdir()
    return tmp_path / "identities"


@pytest.fixture
def serving(folder, tmp_path):
    return again(folder, tmp_path)


def again(folder, tmp_path, model="m1", tools=()):
    """As the next run of the daemon makes it."""
    return ServingIdentities(
        IdentityFiles(folder), CodexStateStore(tmp_path / "ledger.sqlite3"), lambda: (model, tools)
    )


def written(folder, text, name=DEFAULT):
    (folder / f"{name}.md").write_text(text)


def answers(served):
    """What answers, and what is coming."""
    return served.view.text, served.coming.text if served.coming else None


def stands(serving, codex=CODEX, name=None):
    """The floor of what answers now is computed."""
    serving.now_resident(FloorKey.of(codex, serving.now(codex, name).view))


# -- who answers


def test_without_a_floor_the_newest_answers_at_once(serving, folder):
    assert answers(serving.now(CODEX)) == (DEFAULT_IDENTITY_TEXT, None)
    written(folder, "You are brief.\n")
    assert answers(serving.now(CODEX)) == ("You are brief.\n", None)


def test_what_stood_answers_until_the_floor_of_the_new_version_stands(serving, folder):
    stands(serving)
    written(folder, "You are brief.\n")
    served = serving.now(CODEX)
    assert answers(served) == (DEFAULT_IDENTITY_TEXT, "You are brief.\n")
    assert f"version {served.view.version} answers until the prefix of {served.coming.version}" in served.notice
    assert serving.coming(CODEX) == served.coming
    serving.now_resident(FloorKey.of(CODEX, served.coming))
    assert answers(serving.now(CODEX)) == ("You are brief.\n", None)
    assert (serving.coming(CODEX), serving.now(CODEX).notice) == (None, "")


def test_a_change_that_is_taken_back_needs_no_floor(serving, folder):
    stands(serving)
    written(folder, "You are brief.\n")
    (folder / f"{DEFAULT}.md").unlink()
    assert answers(serving.now(CODEX)) == (DEFAULT_IDENTITY_TEXT, None)


def test_a_change_of_the_tools_is_a_change_of_the_identity(serving, folder, tmp_path):
    stands(serving)
    tool = ToolView(name="search", description="looks")
    served = again(folder, tmp_path, tools=(tool,)).now(CODEX)
    assert (served.view.tools, served.coming.tools) == ((), (tool,))


def test_another_generation_tier_or_model_has_no_floor_to_wait_on(serving, folder, tmp_path):
    stands(serving)
    written(folder, "You are brief.\n")
    for codex in (CODEX.model_copy(update={"generation": 4}), CODEX.model_copy(update={"tier": "map"})):
        assert answers(serving.now(codex)) == ("You are brief.\n", None)
    assert answers(again(folder, tmp_path, "m2").now(CODEX)) == ("You are brief.\n", None)


def test_codices_and_names_are_served_apart(serving, folder):
    other = CodexView(name="cellars", generation=1)
    written(folder, "You review.\n", "reviewer")
    stands(serving)
    stands(serving, name="reviewer")
    written(folder, "You are brief.\n")
    assert answers(serving.now(other)) == ("You are brief.\n", None)
    assert answers(serving.now(CODEX, "reviewer")) == ("You review.\n", None)
    written(folder, "You review again.\n", "reviewer")
    assert serving.coming(CODEX).text == "You are brief.\n", "the default one goes first"
    serving.now_resident(FloorKey.of(CODEX, serving.now(CODEX).coming))
    assert serving.coming(CODEX).text == "You review again.\n"


def test_the_bare_identity_is_always_the_newest(serving, folder):
    serving.now_resident(FloorKey.of(None, serving.now(None).view))
    written(folder, "You are brief.\n")
    assert answers(serving.now(None)) == ("You are brief.\n", None)


# -- over a restart


def test_the_old_text_is_kept_over_a_restart(serving, folder, tmp_path):
    written(folder, "You were long.\n")
    stands(serving)
    written(folder, "You are brief.\n")
    assert answers(again(folder, tmp_path).now(CODEX)) == ("You were long.\n", "You are brief.\n")


def test_a_dropped_codex_is_forgotten(serving, folder, tmp_path):
    stands(serving)
    serving.forget(CODEX.name)
    CodexStateStore(tmp_path / "ledger.sqlite3").forget(CODEX.name)
    written(folder, "You are brief.\n")
    assert answers(serving.now(CODEX)) == ("You are brief.\n", None)


# -- files that cannot be read


def broken(folder, name=DEFAULT):
    (folder / f"{name}.md").write_bytes(b"\xff\xfe\xff")


def test_a_file_that_cannot_be_read_is_told_and_what_stood_answers_also_after_a_restart(serving, folder, tmp_path):
    stands(serving)
    broken(folder)
    for one in (serving, again(folder, tmp_path)):
        served = one.now(CODEX)
        assert answers(served) == (DEFAULT_IDENTITY_TEXT, None)
        assert served.fault.startswith("identity 'lorekeep' cannot be read: ")
        assert served.notice.endswith(f"; version {served.view.version} of it, which could be read last, answers")
        assert one.newest(CODEX.name) == served.view
        assert one.coming(CODEX) is None


def test_one_that_never_stood_is_refused_with_what_to_do(serving, folder):
    broken(folder)
    with pytest.raises(InvalidRequest) as fault:
        serving.now(CODEX)
    assert str(folder / f"{DEFAULT}.md") in fault.value.hint
    with pytest.raises(InvalidRequest):
        serving.newest(CODEX.name)


def test_a_link_to_nowhere_and_a_file_that_is_too_large_are_broken_and_not_the_shipped_one(serving, folder):
    stands(serving)
    (folder / f"{DEFAULT}.md").symlink_to(folder / "nothing")
    assert "cannot be read" in serving.now(CODEX).fault
    (folder / f"{DEFAULT}.md").unlink()
    written(folder, "x" * (256 * 1024 + 1))
    assert serving.now(CODEX).fault.endswith("is larger than 256 KiB")


def test_a_named_one_whose_file_is_gone_is_not_found(serving, folder):
    written(folder, "You review.\n", "reviewer")
    stands(serving, name="reviewer")
    (folder / "reviewer.md").unlink()
    with pytest.raises(NotFound):
        serving.now(CODEX, "reviewer")
    assert serving.coming(CODEX) is None


@pytest.mark.parametrize("name", ["../secret", "/etc/hosts", "a\0b"])
def test_a_name_is_no_path(serving, folder, name):
    (folder.parent / "secret.md").write_text("not an identity")
    with pytest.raises(NotFound):
        serving.now(CODEX, name)


# -- what is small


def test_a_file_that_is_as_it_was_is_not_read_again(folder):
    written(folder, "You are brief.\n")
    identities = IdentityFiles(folder)
    first = identities.get()
    stamp = (folder / f"{DEFAULT}.md").stat()
    assert identities.get() is first
    written(folder, "You are terse.\n")
    assert identities.get().text == "You are terse.\n"
    written(folder, "You are brief.\n")
    os.utime(folder / f"{DEFAULT}.md", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert identities.get() == first


def test_what_another_version_of_the_program_kept_is_done_without(folder, tmp_path, serving):
    stands(serving)
    ledger = CodexStateStore(tmp_path / "ledger.sqlite3")
    ledger._file.write(lambda database: database.execute("UPDATE stood SET view = '{\"novelty\": 1}'"))
    assert ledger.last_resident(CODEX.name, DEFAULT) is None


def test_the_name_of_a_pool_tells_its_parts_also_of_names_with_signs():
    place = FloorKey("a@b/c", 1, "full", IdentityView(name="x@y", version="0123"))
    assert place.pool == "x@y@0123/a@b/c"
    assert pool_parts(place.pool) == ("x@y", "0123", "a@b/c")
