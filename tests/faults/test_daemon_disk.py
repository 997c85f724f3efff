"""What lies on disk is damaged, or there is no room for more: said with file and command, and nothing wrong is answered."""

import json
import os
import subprocess
from contextlib import suppress

import pytest
from support.house import CODES, ask, codebase, lent, living, over_socket, question, shown, until
from support.refusals import refusal
from support.small_disk import small_disk


def found(house, vault):
    """What a search says of a vault's code; nothing while the archive cannot say."""
    with over_socket(house) as http:
        answer = http.post("/v1/search", json={"query": question(vault), "codex": "vaults", "n": 3})
    return [hit["snippet"] for hit in answer.json()["hits"]] if answer.is_success else []


def same(size):
    return b"\xa5" * size


def damage(house, made=same, part="*/*"):
    """Every file of the archive's tables is overwritten."""
    files = [path for path in (house.folder / "data").rglob(f"*.lance/{part}") if path.is_file()]
    assert files
    for path in files:
        path.write_bytes(made(path.stat().st_size))


# -- the archive


@pytest.fixture(scope="module")
def house(shared_daemon):
    with lent(shared_daemon) as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait", "--tier", "none").returncode == 0
        yield daemon


def test_an_archive_found_damaged_by_a_start_is_indexed_again_with_a_notice(house):
    house.stop()
    damage(house)
    house.start()
    until(lambda: "indexed again" in shown(house, "vaults")["fresh_notice"])
    until(lambda: any(CODES["zebra"] in snippet for snippet in found(house, "zebra")))
    assert "indexed again" in house.lore("status").stdout
    assert ask(house, "walrus")["answer"].strip().startswith(CODES["walrus"])


@pytest.mark.parametrize(("made", "part"), [(same, "*/*"), (os.urandom, "data/*")], ids=["same", "random"])
def test_an_archive_found_damaged_by_a_question_is_indexed_again_and_nothing_is_made_up_meanwhile(house, made, part):
    damage(house, made, part)
    done = house.lore("ask", question("walrus"), "--max-tokens", "10", "--json")
    if done.returncode == 0:
        answer = json.loads(done.stdout)
        assert answer["answer"].strip().startswith(CODES["walrus"]) or any(
            "damaged" in action for action in answer["lore"]["governor"]["actions"]
        )
    until(lambda: any(CODES["zebra"] in snippet for snippet in found(house, "zebra")))
    until(lambda: not shown(house, "vaults")["unseen"])
    assert ask(house, "walrus")["answer"].strip().startswith(CODES["walrus"])


def test_a_load_finds_a_damaged_archive_and_builds_it_again(house):
    damage(house)
    assert house.lore("load", house.folder / "vaults").returncode == 0
    assert any(CODES["zebra"] in snippet for snippet in found(house, "zebra"))


# -- databases


def serve(daemon):
    return daemon.lore("serve", "--socket", daemon.socket)


@pytest.fixture(scope="module")
def stopped(models):
    """A daemon that had a codex, and was stopped."""
    with living(models) as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--tier", "none").returncode == 0
        daemon.stop()
        yield daemon


def test_damage_within_the_catalog_is_named(stopped):
    (path,) = stopped.folder.rglob("catalog.sqlite")
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xa5" * 8192 + whole[12288:])  # its header is sound
    words = refusal(serve(stopped), 1)
    path.write_bytes(whole)
    assert f"lore: {path} is damaged" in words
    assert f"mv {path.name}* damaged/" in words


def test_a_damaged_database_is_named_with_the_command_that_moves_it_away(stopped):
    for name in ("catalog.sqlite", "sessions.sqlite3", "memories.sqlite3"):
        (path,) = stopped.folder.rglob(name)
        path.write_bytes(b"\xa5" * 8192)
        words = refusal(serve(stopped), 1)
        assert f"lore: {path} is damaged" in words  # and no mistake of ours
        command = words[words.index("cd ") : words.index("damaged/") + len("damaged/")]
        subprocess.run(command, shell=True, check=True)
    stopped.start()
    assert stopped.lore("status").returncode == 0


def test_damaged_databases_that_can_be_made_again_are(house):
    house.stop()
    for name in ("floors.sqlite3", "tokens.sqlite3", "outlines.sqlite3", "prepared.sqlite3"):
        (path,) = house.folder.rglob(name)
        path.write_bytes(b"\xa5" * 8192)
    house.start()
    assert ask(house, "zebra")["answer"].strip().startswith(CODES["zebra"])
    assert house.lore("load", house.folder / "vaults").returncode == 0


# -- no room


def test_a_full_disk_is_told_by_the_load_and_what_stood_before_stays(models, tmp_path):
    with (
        small_disk(tmp_path / "small", "6m"),
        living(models, environment={"XDG_DATA_HOME": str(tmp_path / "small")}) as daemon,
    ):
        folder = codebase(daemon.folder / "vaults", functions=1)
        assert daemon.lore("load", folder, "--no-watch").returncode == 0
        for number in range(400):
            (folder / f"more{number}.txt").write_text(os.urandom(20_000).hex("\n", -40))
        words = refusal(daemon.lore("load", folder), 1)
        assert "room" in words
        assert str(tmp_path / "small") in words
        assert shown(daemon, "vaults")["files"] == 3
        answer = ask(daemon, "zebra")
        assert answer["answer"].strip().startswith(CODES["zebra"])
        fill(tmp_path / "small" / "filling")
        named = daemon.lore("ask", "-c", "vaults", "-s", "plans", "the vault zebra opens with the code ")
        assert named.returncode == 0
        assert "this turn was not saved: no room left" in named.stderr
        (tmp_path / "small" / "filling").unlink()
        assert "ended early" in shown(daemon, "vaults")["fresh_notice"]
        for number in range(400):
            (folder / f"more{number}.txt").unlink()
        assert daemon.lore("load", folder).returncode == 0
        assert any(CODES["zebra"] in snippet for snippet in found(daemon, "zebra"))
        daemon.stop()


def fill(path):
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)) == 4096:
            pass
