"""The data folder is deleted under a running daemon: nothing that it takes from then on is said to be kept."""

import shutil

from support.house import CODES, ask, codebase, living, shown, until

LOST = "was deleted or moved while it was in use"


def gone(folder):
    """Deleted whole? The daemon takes away old tables meanwhile, so that a file may be gone before its turn."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def test_loads_are_refused_and_answers_status_and_doctor_say_that_nothing_is_kept(models):
    with living(models) as house:
        folder = codebase(house.folder / "vaults")
        assert house.lore("load", folder, "--wait").returncode == 0
        until(lambda: gone(house.folder / "data" / "lorekeep"))
        again = house.lore("load", folder, "--wait")
        assert again.returncode != 0
        assert f"catalog.sqlite {LOST}" in again.stderr
        assert "start the daemon anew and load again" in again.stderr
        answer = ask(house, "zebra", session="new")
        assert answer["answer"].strip().startswith(CODES["zebra"])
        assert f"sessions.sqlite3 {LOST}" in answer["lore"]["not_kept"]
        assert any(f"catalog.sqlite {LOST}" in notice for notice in answer["lore"]["notices"])
        assert LOST in shown(house, "vaults")["fresh_notice"]
        assert LOST in house.lore("status").stdout
        assert "was deleted while process" in house.lore("doctor").stdout
