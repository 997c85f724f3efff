"""A codex's computed prefix is taken to another machine with the same model, and is not computed there."""

import os
import shutil
from functools import cache

import pytest
from support.house import (
    CODES,
    WHOLE_WINDOW,
    ask,
    blocks,
    cached_whole,
    codebase,
    counters,
    living,
    shown,
    until,
    write_vault,
)


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


# -- coverages that choose among the files


def with_long_bodies(folder):
    """Signatures of all fit in a small window, and some of the bodies."""
    body = "".join(f"    value = value * {line} + other\n" for line in range(18))
    for number in range(24):
        (folder / f"part{number}.py").write_text(
            f"def part_{number}(value: int, other: int):\n{body}    return value\n"
        )


def with_many_signatures(folder):
    """Not even the signatures of all fit there."""
    for number in range(36):
        names = [f"part_{number}_{at}" for at in range(1 + number % 7 * 6)]
        text = "\n\n".join(f"def {name}(value: int, other: str):\n    return value, other" for name in names)
        (folder / f"part{number}.py").write_text(text)


TIERS = {"skeleton+hot": with_long_bodies, "map": with_many_signatures, "none": with_many_signatures}


def of_window(models, tokens):
    return living(models, environment={"LORE_MODEL__CONTEXT": str(tokens)})


@pytest.fixture(scope="module")
def sent(models):
    """A daemon with a small window, and of a coverage the codex that it has so: its folder, its exported prefix, and what
    the export said."""
    with of_window(models, 4_096) as there:

        @cache
        def exported(tier):
            code = codebase(there.folder / ("of-" + tier.replace("+", "-")))
            TIERS[tier](code)
            assert there.lore("load", code, "--wait", *(("--tier", "none") if tier == "none" else ())).returncode == 0
            assert shown(there, code.name)["tier"] == tier
            ask(there, "zebra", codex=code.name)
            return (
                code,
                code.with_suffix(".floor"),
                there.json("codex", "export", code.name, code.with_suffix(".floor")),
            )

        yield there, exported


def taken_in(here, tier, moved, *options):
    """The codex as the load said it where its prefix was imported, and the tokens that the load computed."""
    code, file, written = moved
    taken = here.json("codex", "import", file)
    assert (taken["tier"], taken["tokens"], taken["notices"]) == (tier, written["tokens"], [])
    before = counters(here)["computed_tokens"]
    copy = shutil.copytree(code, here.folder / "copy")
    loaded = here.json("load", copy, "--name", code.name, "--wait", *options)
    return loaded["codex"], counters(here)["computed_tokens"] - before


@pytest.mark.parametrize("tier", TIERS)
def test_what_a_coverage_shows_of_each_file_moves_with_it_to_where_another_load_would_show_more(models, sent, tier):
    there, exported = sent
    with of_window(models, 4_608) as here:
        codex, computed = taken_in(here, tier, exported(tier), *(("--tier", "none") if tier == "none" else ()))
        name = codex["name"]
        assert (codex["tier"], codex["notices"], computed) == (tier, [], 0)
        assert codex["tier_tokens"] == shown(there, name)["tier_tokens"]
        assert ask(here, "walrus", codex=name)["answer"] == ask(there, "walrus", codex=name)["answer"]


def test_where_another_coverage_is_chosen_the_load_says_why_the_prefix_is_computed(models, sent):
    with of_window(models, int(WHOLE_WINDOW["LORE_MODEL__CONTEXT"])) as here:
        codex, computed = taken_in(here, "skeleton+hot", sent[1]("skeleton+hot"))
        assert codex["tier"] == "full"
        (notice,) = codex["notices"]
        assert "the imported prefix has the coverage skeleton+hot, and this codex has full here" in notice
        assert "--tier skeleton+hot" in notice
        assert computed >= codex["tier_tokens"] / 2


def test_where_files_are_others_the_load_says_that_a_part_is_computed(models, sent):
    code, file, _ = sent[1]("skeleton+hot")
    with of_window(models, 4_096) as here:
        here.json("codex", "import", file)
        copy = shutil.copytree(code, here.folder / "copy")
        write_vault(copy, "walrus", "7654321")
        (notice,) = here.json("load", copy, "--name", code.name, "--wait")["codex"]["notices"]
        assert notice == "the imported prefix is of other files: from the first that differs it is computed"
        assert shown(here, code.name)["tier"] == "skeleton+hot"
