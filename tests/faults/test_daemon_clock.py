"""Files from the future: a time that lies ahead hides no change, and none is seen where there is none."""

import os

import pytest
from support.house import CODES, ask, codebase, lent, shown, until, write_vault

AHEAD = 4_070_908_800  # 2099


@pytest.fixture(scope="module")
def house(shared_daemon):
    with lent(shared_daemon) as daemon:
        folder = codebase(daemon.folder / "vaults")
        for file in folder.iterdir():
            os.utime(file, (AHEAD, AHEAD))
        assert daemon.lore("load", folder, "--wait", "--no-watch").returncode == 0
        yield daemon


def load(house, *options):
    return house.json("load", house.folder / "vaults", *options)["codex"]


def test_a_file_from_the_future_is_answered_from(house):
    assert ask(house, "zebra")["answer"].strip().startswith(CODES["zebra"])


def test_loading_again_what_did_not_change_makes_no_new_generation(house):
    assert load(house, "--no-watch")["generation"] == load(house, "--no-watch")["generation"] == 1


def test_a_change_of_the_same_length_under_the_same_time_is_seen_by_a_load(house):
    os.utime(write_vault(house.folder / "vaults", "zebra", "1234567"), (AHEAD, AHEAD))
    assert load(house, "--no-watch", "--wait")["generation"] == 2
    assert ask(house, "zebra")["answer"].strip().startswith("1234567")


def test_a_change_of_the_same_length_under_the_same_time_is_seen_by_the_watcher(house):
    load(house, "--watch", "--wait")
    os.utime(write_vault(house.folder / "vaults", "zebra", "7654321"), (AHEAD, AHEAD))
    until(lambda: shown(house, "vaults")["amendments"])  # also of the file when it was emptied and not yet written
    until(lambda: ask(house, "zebra")["answer"].strip().startswith("7654321"))
