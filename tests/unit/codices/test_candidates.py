"""A codex that was never loaded to its end is not one that there is not."""

import pytest

from codex.catalog.generations import Codex
from orchestrator.codices.lifecycle import candidates_of
from orchestrator.errors import NotFound, NotReady
from orchestrator.prompt.situation import ReadableCodex

REPO = Codex("repo", "/src/repo#", ("/src/repo", "/src/docs"), "{}", 3)
BIG = Codex("big", "/src/repo/big#", ("/src/repo/big",), "{}", None)
ALL = [ReadableCodex("repo", "/src/repo"), ReadableCodex("repo", "/src/docs")]


def candidates(asked, cwd="", far=None):
    return candidates_of([BIG, REPO], asked, cwd, {"big": far}.get)


@pytest.mark.parametrize(("asked", "cwd"), [("repo", ""), ("none", "/src/repo/big"), (None, "/src/repo"), (None, "")])
def test_others_can_be_asked_meanwhile(asked, cwd):
    assert candidates(asked, cwd) == ALL


@pytest.mark.parametrize(("asked", "cwd"), [("big", ""), (None, "/src/repo/big/below")])
def test_one_that_is_being_loaded_says_how_far_it_is(asked, cwd):
    with pytest.raises(NotReady, match=r"^codex 'big' is being loaded \(index 374 of 1,023\)"):
        candidates(asked, cwd, "index 374 of 1,023")
    with pytest.raises(NotReady, match=r"^codex 'big' is being loaded"):
        candidates(asked, cwd, "")


def test_one_whose_load_ended_names_the_command_that_continues_it():
    with pytest.raises(NotFound) as caught:
        candidates("big")
    assert caught.value.message == "codex 'big' was not loaded to the end"
    assert "lore load /src/repo/big --name big" in caught.value.hint
