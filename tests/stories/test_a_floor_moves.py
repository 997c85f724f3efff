"""A codex's computed prefix is taken to another machine with the same model, and is not computed there."""

import os
import shutil

import pytest
from support.house import CODES, ask, blocks, cached_whole, codebase, counters, living, shown, until, write_vault


@pytest.fixture(scope="module")
def moved(models, tmp_path_factory):
    """Two daemons that know nothing of each other; the first has written the prefix of `vaults` to a file."""
    file = tmp_path_factory.mktemp("between") / "vaults.floor"
    with living(models) as there, living(models) as here:
        code = codebase(there.folder / "vaults")
        assert there.lore("load", code, "--wait").returncode == 0
        ask(there, "zebra")  # a conversation, of which nothing is to be in the file
        written = there.json("codex", "export", "vaults", file)
        yield there, here, file, written


def test_the_prefix_is_read_and_not_computed_and_answers_are_the_same(moved):
    there, here, file, written = moved
    taken = here.json("codex", "import", file)
    assert (taken["codex"], taken["tokens"], taken["notices"]) == ("vaults", written["tokens"], [])
    copy = shutil.copytree(there.folder / "vaults", here.folder / "elsewhere")
    for age, name in enumerate(
        sorted((path.name for path in copy.iterdir()), reverse=True)
    ):  # its order by age is another one
        os.utime(copy / name, (age * 86_400_000, age * 86_400_000))
    before = counters(here)["computed_tokens"]
    assert here.lore("load", copy, "--name", "vaults", "--wait").returncode == 0
    assert counters(here)["computed_tokens"] == before
    answer = ask(here, "walrus")
    assert answer["answer"].strip().startswith(CODES["walrus"])
    assert answer["answer"] == ask(there, "walrus")["answer"]
    assert cached_whole(answer["lore"], "identity", "codex")
    assert blocks(answer["lore"])["codex"]["tokens"] == blocks(ask(there, "walrus")["lore"])["codex"]["tokens"]


def test_a_codex_that_is_loaded_here_is_told_to_make_way(moved):
    _, here, file, _ = moved
    (notice,) = here.json("codex", "import", file)["notices"]
    assert "lore codex drop vaults" in notice


def test_a_codex_that_has_changed_is_exported_once_it_is_laid_out_anew(moved):
    there, _, file, _ = moved
    write_vault(there.folder / "vaults", "zebra", "1234567")
    until(lambda: shown(there, "vaults")["amendments"])
    refused = there.lore("codex", "export", "vaults", file.with_name("changed"))
    assert (refused.returncode, "lore codex reload vaults" in refused.stderr) == (1, True)
    assert not file.with_name("changed").exists()
    assert there.lore("codex", "reload", "vaults").returncode == 0
    written = there.json("codex", "export", "vaults", file.with_name("changed"))
    assert written["tokens"] == shown(there, "vaults")["floor_tokens"]
