"""What is named instead of a name that nothing has."""

import difflib

from hypothesis import given
from hypothesis import strategies as st

from codex.errors import UnknownCodex
from orchestrator.errors import COMPARED_AT_MOST, NAMED_AT_MOST, instead, lore_error

names = st.lists(st.text("abcdef-", min_size=1, max_size=8), unique=True, min_size=1, max_size=NAMED_AT_MOST)


@given(st.text("abcdef-", max_size=8), names)
def test_of_few_each_is_named_once(wanted, known):
    said = instead(wanted, known, "none", "list")
    assert sorted(said.removeprefix("there are: ").split(", ")) == sorted(known)


def test_the_nearest_stands_first():
    assert instead("flsk", ["blinker", "flask", "zope"], "", "") == "there are: flask, blinker, zope"


def test_of_many_the_nearest_alone_are_named_with_what_lists_all():
    known = [f"talk-{number}" for number in range(40)]
    assert instead("talk-33", known, "", "`list`").startswith("the nearest of 40: talk-33, ")
    assert instead("zzz", known, "", "`list`").endswith("`list` shows all")


def test_a_codex_that_the_catalog_does_not_know_is_refused_with_the_nearest_names():
    refusal = lore_error(UnknownCodex("projct-7", tuple(f"project-{number}" for number in range(40))))
    assert (refusal.message, refusal.code) == ("no codex named 'projct-7'", "not_found")
    assert refusal.hint.startswith("the nearest of 40: project-7, ")


def test_where_there_are_none_that_is_said():
    assert instead("any", [], "none is loaded", "") == "none is loaded"


def test_a_name_without_end_is_compared_by_its_beginning(monkeypatch):
    compared = []
    monkeypatch.setattr(difflib, "get_close_matches", lambda name, *_, **__: compared.append(name) or [])
    instead("x" * 1_000_000, ["a"], "", "")
    assert compared == ["x" * COMPARED_AT_MOST]
