"""The daemon and its engine are killed while something is written behind an answer: checkpoints, vectors."""

import os
import signal
from pathlib import Path

import pytest
from support.house import CODES, ask, begun, blocks, codebase, counters, lent, living, reply, shown, until


def end_all(daemon):
    """SIGKILL to the daemon and its engine at once: nobody is left to finish what is half-written."""
    process = daemon.process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    daemon.process = None


def half_written(daemon):
    return [*(daemon.folder / "cache").rglob("*.tmp")]


def written(daemon):
    return [*(daemon.folder / "cache").rglob("*.kv")]


@pytest.fixture(scope="module")
def house(shared_daemon):
    with lent(shared_daemon) as daemon:
        yield daemon


@pytest.mark.parametrize("files", [0, 3])
def test_a_kill_while_checkpoints_are_written_leaves_whole_ones_or_none(house, files):
    folder, before = codebase(house.folder / f"vaults{files}", functions=60), len(written(house))
    loading = begun(house, "load", folder, "--no-watch")
    spin_until(lambda: len(written(house)) >= before + max(files, 1) or (files == 0 and half_written(house)))
    end_all(house)
    loading.communicate(timeout=60)
    house.start()
    answer = ask(house, "zebra", codex=folder.name)
    assert answer["answer"].strip().startswith(CODES["zebra"])
    assert counters(house)["tier_damaged"] == 0
    assert blocks(answer["lore"])["codex"]["tokens"] > 0
    until(lambda: half_written(house) == [])


def spin_until(true):
    """A file that is being written is there for milliseconds: asking the daemon would be too slow, and so is a look begun
    when the load has returned. A look that misses it meets the whole file, and the kill comes then."""
    for _ in range(20_000_000):
        if true():
            return
    pytest.fail("it never came")


def test_a_kill_while_texts_get_their_vectors_loses_none_and_the_next_start_goes_on(models):
    with living(models, '[embedding]\nmodel = "builtin:words"\n') as daemon:
        folder = codebase(daemon.folder / "vaults", functions=5)
        for number in range(500):
            (folder / f"more{number}.py").write_text(f"def more{number}():\n    return 'thing {number}'\n")
        assert daemon.lore("load", folder, "--no-watch", "--tier", "none").returncode == 0
        until(lambda: (now := filled(daemon)) and now["embedded"] > 0)
        end_all(daemon)
        daemon.start()
        before = filled(daemon) or {"embedded": 0, "texts": 1}
        until(lambda: (now := filled(daemon)) and now["embedded"] == now["texts"] > 0, timeout_s=120)
        assert filled(daemon)["fault"] == ""
        assert before["embedded"] <= filled(daemon)["texts"]
        found = reply(daemon, "/v1/search", {"query": "thing 234", "codex": "vaults", "n": 5})
        assert found["hits"]
        assert not [notice for notice in found["notices"] if "not followed since" not in notice]
        assert ask(daemon, "zebra", codex="vaults")["answer"].strip().startswith(CODES["zebra"])


def filled(daemon):
    return shown(daemon, "vaults")["embedding"]


def test_a_lock_that_was_killed_is_no_hindrance(house):
    end_all(house)
    house.start()
    locks = [*Path(house.folder).rglob("daemon.lock")]
    assert len(locks) == 2
    assert {lock.read_text().splitlines()[0] for lock in locks} == {str(house.process.pid)}
