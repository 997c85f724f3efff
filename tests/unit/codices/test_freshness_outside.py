"""What is told of a codex that nobody follows: the files that are shown at once, all others once they were compared."""

import time
from types import SimpleNamespace

import pytest
from support.libraries import fill, request

from codex.library import Library
from orchestrator.codices.archive import ArchiveUpkeep
from orchestrator.codices.freshness import CodexWatchers, FreshnessGauge
from orchestrator.codices.loads import Loads
from orchestrator.codices.state_store import CodexStateStore

LEFT = "what changed on disk is not in it"


@pytest.fixture
def parts(tmp_path):
    """A loaded codex of three files that nobody follows: its folder, and whoever is asked how fresh it is."""
    library, store = Library(tmp_path / "data"), CodexStateStore(tmp_path / "ledger.sqlite")
    folder = fill(tmp_path / "code", {f"{name}.py": f"# {name}\n" for name in "abc"})
    codices = SimpleNamespace(rebasing=lambda name: False)
    watching = CodexWatchers(library, library.settings.watch, lambda name: False, on=False)
    upkeep = ArchiveUpkeep(library, None, lambda name: None)
    loads = Loads()
    gauge = FreshnessGauge(library, codices, store, upkeep, watching, loads.unseen, loads.failed)

    def load():
        """As a load that ended well leaves it."""
        began = time.time()
        library.load(request(folder))
        store.compared("code", began)

    yield folder, gauge, load
    gauge.comparing.wait()
    library.close()
    store.close()


def test_what_is_shown_is_told_at_once_and_the_rest_to_whoever_asks_next(parts):
    folder, gauge, load = parts
    load()
    fill(folder, {"a.py": "# another\n", "b.py": "# another too\n", "new.py": "new = 1\n"})
    assert gauge.outdated("code", ["a.py", "c.py"]) == "1 file that is shown differs on disk: a.py"
    gauge.comparing.wait()
    assert gauge.unseen("code").endswith(f"{LEFT} (2 files differ, 1 is new)")
    assert gauge.of("code").notice == gauge.unseen("code").removeprefix("code: ")


def test_behind_the_next_load_nothing_is_told_of_what_stood_before(parts):
    folder, gauge, load = parts
    load()
    (folder / "c.py").unlink()
    gauge.outdated("code", [])
    gauge.comparing.wait()
    assert gauge.unseen("code").endswith(f"{LEFT} (1 file is gone)")
    load()
    assert gauge.unseen("code").endswith(LEFT)
