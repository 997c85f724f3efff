"""One key changed in a user's file, and nothing else."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.settings import SettingsError
from orchestrator.settings.sources import with_value

MINE = """\
# mine
[serve]
tcp = "" # none

[model] # which
  path = 'old # not a comment'  # a comment
threads = 2
[log]
level = "info"
"""


def test_only_the_line_of_the_key_changes_and_its_comment_stays():
    changed = with_value(MINE, "model", "path", "new.gguf")
    assert changed == MINE.replace("'old # not a comment'", '"new.gguf"')


@pytest.mark.parametrize("text", ["", "# only a comment", "[log]\nlevel = 'info'", "[model]", "[model]\nthreads = 1\n"])
def test_a_key_that_is_not_there_is_added_to_its_table(text):
    changed = tomllib.loads(with_value(text, "model", "path", "x"))
    assert changed["model"]["path"] == "x"


def test_a_table_that_is_not_there_is_added_at_the_end_after_a_blank_line():
    assert (
        with_value("[log]\nlevel = 'info'\n", "model", "path", "x")
        == "[log]\nlevel = 'info'\n\n[model]\npath = \"x\"\n"
    )


@pytest.mark.parametrize("text", ["model = {path = 'x'}", "model.path = 'x'", '[model]\npath = """\nlong"""\n'])
def test_whatever_way_the_key_is_written_in_it_is_changed_in_its_place(text):
    assert tomllib.loads(with_value(text, "model", "path", "y")) == {"model": {"path": "y"}}


@pytest.mark.parametrize("text", ["model = 3", "model = [1]", "[[model]]\npath = 'x'\n"])
def test_a_file_whose_table_is_no_table_is_refused_rather_than_damaged(text):
    with pytest.raises(SettingsError, match="cannot be edited"):
        with_value(text, "model", "path", "y")


def test_a_file_that_is_no_toml_is_refused():
    with pytest.raises(SettingsError, match="no TOML"):
        with_value("[model", "model", "path", "y")


@given(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from([MINE, "", "[model]\n", "[log]\n"]))
def test_any_value_is_read_back_as_it_was_written_and_all_else_is_the_same(value, text):
    before, after = tomllib.loads(text), tomllib.loads(with_value(text, "model", "path", value))
    assert after.pop("model") == before.pop("model", {}) | {"path": value}
    assert after == before
