"""`lore purge` and `lore codex drop --memories`: nothing goes unasked, and nobody deletes what is another's."""

import json
import os

import pytest
from support.traced import traced


@pytest.fixture
def turns(lorekeep):
    store = lorekeep.service.records.traces_held
    for number in range(3):
        store.keep(traced(f"mine{number}", uid=os.getuid()))
    store.keep(traced("theirs", uid=os.getuid() + 1))
    return store


def test_without_an_option_it_lists_and_deletes_nothing(lore, turns, lorekeep):
    done = lore("purge")
    assert done.returncode == 0
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        ["kept", "number"],
        ["traces", "3"],
        ["sessions", "0"],
        ["cache", "0"],
        ["history", "0"],
    ]
    assert "memories and codices stay: lore memory forget" in done.stderr
    assert turns.kept(os.getuid())[0] == 3


def test_nothing_goes_unasked(lore, turns, lorekeep):
    done = lore("purge", "--traces")
    assert (done.returncode, "--yes deletes without asking" in done.stderr) == (2, True)
    assert turns.kept(os.getuid())[0] == 3


def test_what_is_named_goes_and_what_is_another_users_stays(lore, turns, lorekeep):
    done = lore("purge", "--traces", "--yes", "--json")
    (purged,) = json.loads(done.stdout)["purged"]
    assert (purged["name"], purged["count"]) == ("traces", 3)
    assert (turns.kept(os.getuid())[0], turns.kept(os.getuid() + 1)[0]) == (0, 1)


def test_all_begins_with_the_cache_which_goes_also_on_a_disk_without_room(lore, turns, lorekeep):
    assert lore("purge", "--all", "--yes").returncode == 0
    assert lorekeep.service.records.purged == ["cache", "traces", "sessions"]


def test_a_codex_goes_with_the_users_memories_of_it_and_with_no_others(lore, lorekeep):
    for codex in ("demo", "demo", "none"):
        text = f"The cache is Redis {codex} {len(json.loads(lore('memory', 'list', '--json').stdout)['memories'])}."
        assert lore("memory", "add", text, "-c", codex).returncode == 0
    unasked = lore("codex", "drop", "demo", "--memories")
    assert (unasked.returncode, "demo" in lorekeep.service.known) == (2, True)
    done = lore("codex", "drop", "demo", "--memories", "--yes")
    assert done.stderr.strip().endswith("dropped demo, and 2 memories of it")
    assert [one["codex"] for one in json.loads(lore("memory", "list", "--json").stdout)["memories"]] == [None]


def test_memories_of_a_codex_that_is_gone_already_can_still_be_deleted(lore, lorekeep):
    lore("memory", "add", "The cache is Redis.", "-c", "demo")
    assert lore("codex", "drop", "demo").returncode == 0
    assert lore("codex", "drop", "demo", "--memories", "--yes").returncode == 0
    assert json.loads(lore("memory", "list", "--json").stdout)["memories"] == []
    assert lore("codex", "drop", "demo", "--memories", "--yes").returncode == 5
