"""A name that is no part of a route is refused in words, not with the route it would lead to."""

import pytest


@pytest.mark.parametrize("command", ["show", "drop", "reload"])
@pytest.mark.parametrize("name", ["../..", "a/b", "..", "."])
def test_there_is_no_codex_of_such_a_name(lore, lorekeep, command, name):
    done = lore("codex", command, name)
    assert done.returncode == 5
    assert done.stderr == f"lore: no codex named {name!r}\n      lore codex list shows what there is\n"


@pytest.mark.parametrize("command", [("show",), ("export",), ("drop",), ("rename", "x")])
def test_there_is_no_conversation_of_such_a_name(lore, lorekeep, command):
    done = lore("session", command[0], "../..", *command[1:])
    assert done.returncode == 5
    assert done.stderr == "lore: no session named '../..'\n      lore session list shows what there is\n"


def test_a_file_that_is_no_model_is_told_as_what_it_is(lore, lorekeep, folder):
    (folder / "notes.gguf").write_text("nothing of a model\n")
    for path in ("/etc/passwd", str(folder / "notes.gguf")):
        done = lore("model", "show", path)
        assert done.returncode == 2
        assert f"lore: this is no model: {path}: is no GGUF" in done.stderr
    for path in (str(folder / "gone.gguf"), "~nobody-of-this-name/model.gguf"):
        gone = lore("model", "show", path)
        assert (gone.returncode, "there is no model file" in gone.stderr) == (2, True)
