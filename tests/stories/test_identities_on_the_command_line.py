"""`lore identity`: a person lists, shows and edits identities, and is told what a change costs before it is made."""

import json
import stat

import pytest
from support.house import ask, codebase, living


@pytest.fixture(scope="module")
def house(models):
    with living(models) as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults", functions=30), "--wait").returncode == 0
        yield daemon


def identities(daemon):
    return daemon.folder / "config" / "lorekeep" / "identities"


def edit(daemon, script, *arguments):
    """With an editor that is a line of shell; its file is "$1"."""
    program = daemon.folder / "editor"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    return daemon.lore("identity", "edit", *arguments, environment={"EDITOR": str(program), "VISUAL": ""})


def test_the_one_that_ships_is_listed_as_the_default_and_shown_with_its_cost(house):
    listed = json.loads(house.lore("identity", "list", "--json").stdout)["identities"]
    assert [(one["name"], one["default"], one["codices"]) for one in listed] == [("lorekeep", True, ["vaults"])]
    shown = json.loads(house.lore("identity", "show", "--json").stdout)["identity"]
    floor = json.loads(house.lore("codex", "show", "vaults", "--json").stdout)["codex"]["floor_tokens"]
    assert shown["tokens"] > 0
    assert [(cost["name"], cost["tokens"]) for cost in shown["cost"]] == [("vaults", floor)]
    assert "computes the floor of vaults anew" in house.lore("identity", "show").stdout


def test_an_edited_identity_is_saved_for_its_owner_alone_and_answers(house):
    done = edit(house, 'printf "You are terse.\\n" > "$1"', "terse", "--yes")
    assert done.returncode == 0, done.stderr
    path = identities(house) / "terse.md"
    assert path.read_text() == "You are terse.\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [one for one in path.parent.iterdir() if one.suffix != ".md"] == []
    assert ask(house, "zebra", identity="terse")["lore"]["identity"]["name"] == "terse"
    assert json.loads(house.lore("identity", "show", "terse", "--json").stdout)["identity"]["codices"] == ["vaults"]


def test_a_change_says_what_it_computes_and_the_same_again_computes_nothing(house):
    edit(house, 'printf "You are calm.\\n" > "$1"', "calm", "--yes")
    ask(house, "zebra", identity="calm")
    done = edit(house, 'printf "You are very calm.\\n" > "$1"', "calm", "--yes")
    assert "it computes the floor of vaults anew" in done.stderr
    again = edit(house, "true", "calm", "--yes")
    assert "identity calm says this already" in again.stderr
    assert "computes" not in again.stderr


@pytest.mark.parametrize(
    ("script", "status", "said"),
    [
        ('printf " \\n" > "$1"', 2, "an identity cannot be empty"),
        ('printf "\\377\\376" > "$1"', 2, "what the editor left cannot be read"),
        ('printf "a\\000b" > "$1"', 2, "holds the control character"),
        ('head -c 300000 /dev/zero | tr "\\0" a > "$1"', 2, "at most 262,144 are taken"),
        ("exit 3", 1, "ended with status 3; nothing is saved"),
    ],
)
def test_what_cannot_be_an_identity_is_refused_and_nothing_is_written(house, script, status, said):
    done = edit(house, script, "refused", "--yes")
    assert (done.returncode, said in done.stderr) == (status, True), done.stderr
    assert not (identities(house) / "refused.md").exists()


def test_without_a_yes_and_a_terminal_nothing_is_saved(house):
    done = edit(house, 'echo "You ask." > "$1"', "unasked")
    assert (done.returncode, "say --yes" in done.stderr) == (2, True)
    assert not (identities(house) / "unasked.md").exists()


def test_without_an_editor_it_says_what_to_set(house):
    missing = {"EDITOR": "/nonexistent/editor", "VISUAL": ""}
    assert "cannot be started" in house.lore("identity", "edit", "--yes", environment=missing).stderr
    done = house.lore("identity", "edit", "--yes", environment={"EDITOR": "", "VISUAL": ""})
    assert (done.returncode, "set VISUAL or EDITOR" in done.stderr) == (2, True)


def test_names_that_lead_elsewhere_and_links_are_refused(house):
    outside = house.folder / "outside.md"
    outside.write_text("mine\n")
    identities(house).mkdir(parents=True, exist_ok=True)
    (identities(house) / "linked.md").symlink_to(outside)
    done = edit(house, 'echo "theirs" > "$1"', "linked", "--yes")
    assert (done.returncode, "is a link" in done.stderr) == (2, True)
    assert outside.read_text() == "mine\n"
    (identities(house) / "linked.md").unlink()
    assert house.lore("identity", "show", "../outside").returncode == 5
    assert house.lore("identity", "show", "nobody").returncode == 5
    assert "is no name of an identity" in edit(house, 'echo a > "$1"', ".hidden", "--yes").stderr


# -- the default


def identity_of(answer):
    return answer["lore"]["identity"]["name"]


@pytest.fixture
def chosen(models):
    """A daemon of its own, with two identities, asked under the one that ships."""
    with living(models) as daemon:
        folder = identities(daemon)
        folder.mkdir()
        (folder / "terse.md").write_text("You are terse.\n")
        (folder / "calm.md").write_text("You are calm.\n")
        assert daemon.lore("load", codebase(daemon.folder / "vaults", functions=30), "--wait").returncode == 0
        assert identity_of(ask(daemon, "zebra")) == "lorekeep"
        yield daemon


def test_the_default_identity_is_used_by_the_running_daemon_and_by_the_next(chosen):
    done = chosen.lore("identity", "use", "terse")
    assert done.returncode == 0, done.stderr
    assert "it computes the floor of vaults anew" in done.stderr
    assert "tokens" in done.stderr
    config = chosen.folder / "config" / "lorekeep" / "config.toml"
    assert config.read_text() == '[identity]\ndefault = "terse"\n'
    assert identity_of(ask(chosen, "zebra")) == "terse"
    listed = chosen.json("identity", "list")["identities"]
    assert [one["name"] for one in listed if one["default"]] == ["terse"]
    again = chosen.json("identity", "use", "terse")
    assert (again["daemon"], again["cost"], again["identity"]["changed"]) == ("same", [], False)
    chosen.json("model", "use", "builtin:noise-s")
    assert identity_of(ask(chosen, "zebra")) == "terse"  # another model changes nothing about it
    chosen.stop()
    chosen.start()
    assert identity_of(ask(chosen, "zebra")) == "terse"


def test_a_default_that_there_is_not_is_refused_with_the_nearest_and_nothing_is_written(chosen):
    done = chosen.lore("identity", "use", "tersse")
    assert (done.returncode, "terse" in done.stderr) == (5, True), done.stderr
    assert (chosen.folder / "config" / "lorekeep" / "config.toml").read_text() == ""
    assert identity_of(ask(chosen, "zebra")) == "lorekeep"
    chosen.stop()
    done = chosen.lore("identity", "use", "tersse")
    assert (done.returncode, "terse" in done.stderr) == (5, True), done.stderr
    assert chosen.lore("identity", "use", "calm").returncode == 0
    chosen.start()
    assert identity_of(ask(chosen, "zebra")) == "calm"


def test_where_the_file_of_the_default_is_gone_the_one_that_ships_answers_and_says_so(chosen):
    assert chosen.lore("identity", "use", "calm").returncode == 0
    assert identity_of(ask(chosen, "zebra")) == "calm"
    (identities(chosen) / "calm.md").unlink()
    chosen.stop()
    chosen.start()
    answer = ask(chosen, "zebra")
    assert identity_of(answer) == "lorekeep"
    assert any("the default identity calm is not there: lorekeep answers" in one for one in answer["lore"]["notices"])
    assert "the default identity calm is not in" in chosen.log_end(1000)
    checked = chosen.lore("config", "check")
    assert (checked.returncode, "identity.default" in checked.stderr) == (2, True)
    (identities(chosen) / "calm.md").write_text("You are calm again.\n")
    assert identity_of(ask(chosen, "zebra")) == "calm"


# -- in short

LONG = """You are the keeper. You were made with care by many people over many years, and they were fond of you.

Never push to main. The branch is protected, as everybody in the house has known for a long time.
"""
SHORT = "You are the keeper.\n\nNever push to main.\n"


def test_an_identity_is_condensed_after_a_yes_with_every_rule_and_the_text_before_is_kept(house):
    path = identities(house) / "keeper.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text(LONG)
    asked = house.lore("identity", "condense", "keeper")
    assert (asked.returncode, "say --yes" in asked.stderr) == (2, True)
    assert path.read_text() == LONG
    assert "+You are the keeper.\n" in asked.stdout
    done = house.lore("identity", "condense", "keeper", "--yes")
    assert done.returncode == 0, done.stderr
    assert path.read_text() == SHORT  # the model at hand quotes and cannot write: it is an extract
    assert "it is an extract, every rule to the letter: the model's text is refused" in done.stderr
    assert "tokens before" in done.stderr
    assert path.with_name("keeper.md.before").read_text() == LONG
    assert "keeper.md.before" not in house.lore("identity", "list").stdout
    assert ask(house, "zebra", identity="keeper")["lore"]["identity"]["name"] == "keeper"
    again = house.json("identity", "condense", "keeper")
    assert (again["changed"], again["saved"]) == (False, False)
    assert path.with_name("keeper.md.before").read_text() == LONG
    assert house.lore("identity", "condense", "nobody").returncode == 5
