"""Floors as files that are of another model, cut off, or left in the middle: named, and nothing half is left."""

import os
import socket
import tarfile
from http.client import HTTPResponse
from pathlib import Path

import pytest
from support.house import CODES, ask, codebase, counters, engine_child, living, reply, until
from support.small_disk import small_disk


@pytest.fixture(scope="module")
def house(models):
    with living(models) as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
        assert daemon.lore("codex", "export", "vaults", daemon.folder / "vaults.floor").returncode == 0
        yield daemon


@pytest.fixture
def floor(house) -> bytes:
    return (house.folder / "vaults.floor").read_bytes()


def files(daemon, pattern: str) -> list[Path]:
    return sorted((daemon.folder / "cache").rglob(pattern))


class Upload:
    """A client that sends a prefix piece by piece."""

    def __init__(self, daemon, raw: bytes) -> None:
        self._raw, self._at = raw, 0
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(daemon.socket))
        self._socket.sendall(b"POST /v1/floors HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(raw))

    def send(self, upto: int) -> None:
        self._socket.sendall(self._raw[self._at : upto])
        self._at = upto

    def answer(self) -> str:
        self._socket.settimeout(60)
        with HTTPResponse(self._socket) as read:
            read.begin()
            return f"{read.status} {read.read().decode()}"

    def leave(self) -> None:
        self._socket.close()


def half_sent(daemon, raw: bytes) -> Upload:
    """More than its first segment has come, and lies beside its place."""
    upload = Upload(daemon, raw)
    upload.send(len(raw) * 3 // 4)
    until(lambda: files(daemon, "*.tmp"))
    return upload


def test_a_client_that_leaves_in_the_middle_leaves_nothing(house, floor):
    before = files(house, "*.kv")
    half_sent(house, floor).leave()
    until(lambda: not files(house, "*.tmp"))
    assert files(house, "*.kv") == before
    assert house.lore("codex", "import", house.folder / "vaults.floor").returncode == 0


def test_a_daemon_that_is_killed_in_the_middle_deletes_what_had_come_at_its_next_start(house, floor):
    half_sent(house, floor)
    house.kill()
    assert files(house, "*.tmp")
    house.start()
    assert ask(house, "zebra")["answer"].strip().startswith(CODES["zebra"])
    assert not files(house, "*.tmp")


def test_an_engine_that_ends_in_the_middle_takes_nothing_and_the_next_import_is_whole(house, floor):
    upload, ended = half_sent(house, floor), reply(house, "/v1/status")["engine"]["restarts"]
    os.kill(engine_child(house), 9)
    until(lambda: reply(house, "/v1/status")["engine"]["restarts"] > ended)
    until(lambda: reply(house, "/v1/status")["engine"]["state"] == "ready")
    upload.send(len(floor))
    answer = upload.answer()
    assert answer.startswith("500"), answer
    assert ("deleted meanwhile" in answer, "Errno" in answer, str(house.folder) in answer) == (True, False, False), (
        answer
    )
    assert not files(house, "*.tmp")
    taken = house.json("codex", "import", house.folder / "vaults.floor")
    assert counters(house)["tier_segments"] >= taken["segments"]


def test_a_copy_that_was_cut_off_is_told_and_nothing_is_left(house, floor):
    cut = house.folder / "cut.floor"
    cut.write_bytes(floor[: len(floor) // 2])
    done = house.lore("codex", "import", cut)
    assert (done.returncode, "ends early" in done.stderr, "export it again" in done.stderr) == (2, True, True)
    assert not files(house, "*.tmp")


def test_checkpoints_that_were_purged_come_back_with_their_file(house):
    house.stop()
    house.start()
    assert house.lore("purge", "--cache", "--yes").returncode == 0
    taken = house.json("codex", "import", house.folder / "vaults.floor")
    with tarfile.open(house.folder / "vaults.floor") as opened:
        assert set(opened.getnames()[1:]) <= {path.name for path in files(house, "*.kv")}
    house.kill()
    house.start()
    ask(house, "walrus")
    assert counters(house)["tier_restored_tokens"] == taken["tokens"]


def test_a_full_disk_takes_no_part_of_a_file(house, tmp_path):
    with small_disk(tmp_path / "stick", "16k") as stick:
        done = house.lore("codex", "export", "vaults", stick / "vaults.floor")
        assert (done.returncode, "No space left" in done.stderr) == (1, True), done.stderr
        assert list(stick.iterdir()) == []


def test_a_prefix_of_other_types_of_kv_is_refused_by_their_names(house):
    house.stop()
    house.environment |= {"LORE_MODEL__KV_TYPE_K": "q8_0", "LORE_MODEL__KV_TYPE_V": "f16"}
    house.start()
    done = house.lore("codex", "import", house.folder / "vaults.floor")
    assert done.returncode == 2
    assert "K is f16 there and q8_0 here" in done.stderr
    assert "the setting model.kv_type_k" in done.stderr
    assert not files(house, "*.tmp")
