"""`lore identity` against the real API: what is told, and what never saves anything."""

import json
from pathlib import Path

import pytest
from support.served import Served


@pytest.fixture
def editor(tmp_path: Path):
    """`editor("echo x > \"$1\"")`: a program that does this to the file that it is given."""

    def made(script: str) -> str:
        program = tmp_path / "editor"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o700)
        return str(program)

    return made


def test_they_are_listed_and_one_is_shown_with_what_a_change_costs(lore, lorekeep: Served) -> None:
    lorekeep.service.texts["terse"] = "Be terse.\n"
    names = [one["name"] for one in json.loads(lore("identity", "list", "--json").stdout)["identities"]]
    assert names == ["lorekeep", "terse"]
    shown = lore("identity", "show").stdout
    assert shown.endswith("You answer.\n")
    assert "the floor of demo anew: 1,002 tokens" in shown


def test_an_edited_text_is_saved_after_a_yes(lore, lorekeep: Served, editor) -> None:
    done = lore("identity", "edit", "--yes", VISUAL="", EDITOR=editor('echo "Be terse." > "$1"'))
    assert (done.returncode, lorekeep.service.texts) == (0, {"lorekeep": "Be terse.\n"})
    assert "it computes the floor of demo anew" in done.stderr


def test_a_new_identity_begins_empty(lore, lorekeep: Served, editor) -> None:
    script = 'test ! -s "$1" && echo "Be new." > "$1"'
    assert lore("identity", "edit", "fresh", "--yes", VISUAL="", EDITOR=editor(script)).returncode == 0
    assert lorekeep.service.texts["fresh"] == "Be new.\n"


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ('echo "Be terse." > "$1"', "nobody can be asked"),
        ("exit 3", "ended with status 3"),
        ('printf "\\377" > "$1"', "cannot be read"),
        ('rm "$1"', "cannot be read"),
        ('printf " " > "$1"', "an identity cannot be empty"),
    ],
)
def test_what_was_not_agreed_to_or_is_no_text_is_not_saved(lore, lorekeep: Served, editor, script, says) -> None:
    done = lore("identity", "edit", VISUAL="", EDITOR=editor(script))
    assert done.returncode != 0
    assert says in done.stderr
    assert lorekeep.service.texts == {"lorekeep": "You answer.\n"}


@pytest.mark.parametrize(
    ("editor_word", "says"), [("", "no editor is set"), ("'", "is no command"), ("/no/such", "cannot be started")]
)
def test_without_an_editor_it_says_what_to_set(lore, lorekeep: Served, editor_word: str, says: str) -> None:
    done = lore("identity", "edit", VISUAL="", EDITOR=editor_word)
    assert done.returncode != 0
    assert says in done.stderr
    assert "set VISUAL or EDITOR" in done.stderr


def test_a_text_that_was_left_as_it_is_asks_nothing(lore, lorekeep: Served, editor) -> None:
    done = lore("identity", "edit", VISUAL="", EDITOR=editor("true"))
    assert (done.returncode, done.stderr) == (0, "identity lorekeep says this already\n")


def test_an_identity_without_a_name_is_not_made_the_default(lore, lorekeep: Served, tmp_path: Path) -> None:
    refused = lore("identity", "use", "", XDG_CONFIG_HOME=str(tmp_path))
    assert (refused.returncode, "name" in refused.stderr) == (2, True)
    assert list(tmp_path.rglob("*.toml")) == []


def test_an_unknown_one_is_not_shown(lore, lorekeep: Served) -> None:
    done = lore("identity", "show", "nobody")
    assert done.returncode != 0
    assert "no identity named 'nobody'" in done.stderr
