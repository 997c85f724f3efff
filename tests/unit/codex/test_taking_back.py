"""A load that is taken back: the codex is what it was, and what was read is not read again."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from codex.errors import UnknownGeneration
from codex.trees.sources import LoadSpec


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    write(folder, "a = 1\n")
    return folder


def write(folder: Path, text: str) -> None:
    """Long ago: what was just written may be written again unseen, and is always read."""
    (folder / "a.py").write_text(text)
    os.utime(folder / "a.py", (1e9, 1e9 + int(text[-2])))


def request(folder: Path, **more: object) -> LoadSpec:
    return LoadSpec((str(folder),), **more)


def test_the_generation_before_is_the_newest_again_and_how_it_was_asked_for_too(library, project):
    library.load(request(project))
    before, generation = library.catalog.codex("project"), library.catalog.generation("project")
    write(project, "a = 2\n")
    library.load(request(project, load_secrets=True))
    assert library.catalog.codex("project") != before
    library.take_back(before)
    assert (library.catalog.codex("project"), library.catalog.generation("project")) == (before, generation)
    assert [one.text for one in library.catalog.documents(generation.entries)] == ["a = 1\n"]


def test_a_first_load_that_is_taken_back_leaves_a_name_without_a_generation(library, project):
    loaded = library.load(request(project))
    library.take_back(replace(loaded.codex, newest=None))
    assert library.catalog.codex("project").newest is None
    again = library.load(request(project))
    assert (again.read, again.generation.number) == (0, 1)


def test_what_is_kept_no_longer_cannot_be_gone_back_to(library, project):
    library.load(request(project))
    before = library.catalog.codex("project")
    write(project, "a = 2\n")
    now = library.load(request(project)).codex
    library.release("project")
    with pytest.raises(UnknownGeneration, match="no generation 1 any more"):
        library.take_back(before)
    assert library.catalog.codex("project") == now
