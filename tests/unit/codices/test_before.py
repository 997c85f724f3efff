"""What a cancelled load takes back: all that it may have changed of a codex."""

import pytest

from codex.library import Library
from codex.trees.sources import LoadSpec
from orchestrator.codices.state_store import CodexStateStore, FrozenLevels, Wishes, state_before, take_back


@pytest.fixture
def stores(tmp_path):
    library, ledger = Library(tmp_path / "data"), CodexStateStore(tmp_path / "ledger.sqlite3")
    yield library, ledger
    library.close()
    ledger.close()


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.py").write_text("a = 1\n")
    return folder


def test_generation_request_wishes_and_levels_are_what_they_were(stores, project):
    library, ledger = stores
    library.load(LoadSpec((str(project),)))
    ledger.wish("project", "map", watch=False)
    ledger.freeze("project", 1, "map", FrozenLevels("2", 90))
    was = state_before(library, ledger, "project", None)
    (project / "a.py").write_text("a = 2\n")
    library.load(LoadSpec((str(project),), load_secrets=True))
    ledger.wish("project", "full", watch=True)
    ledger.freeze("project", 2, "map", FrozenLevels("0", 9))
    take_back(library, ledger, was)
    assert library.catalog.codex("project") == was.codex
    assert ledger.wishes("project") == Wishes("map", False)
    assert ledger.frozen("project", 1) == {"map": FrozenLevels("2", 90)}
    assert was.number == 1


def test_a_first_load_leaves_a_name_or_where_it_did_not_come_so_far_nothing(stores, project):
    library, ledger = stores
    was = state_before(library, ledger, "project", None)
    take_back(library, ledger, was)
    assert library.catalog.codices() == ()
    library.load(LoadSpec((str(project),)))
    ledger.wish("project", "map")
    take_back(library, ledger, was)
    assert library.catalog.codex("project").newest is None
    assert ledger.wishes("project") == Wishes()
