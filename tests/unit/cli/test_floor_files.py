"""`lore codex export` writes the whole file or none; `lore codex import` shows why one is not taken."""

import json
import os
import signal
import socket
import subprocess
import tarfile

import pytest
from private_daemon import LORE, end_with_parent
from support.floor_archives import archive
from support.house import until
from support.small_service import SEGMENTS


def test_a_prefix_is_written_for_its_owner_alone_and_what_it_gives_away_is_said(lorekeep, lore, folder):
    done = lore("codex", "export", "demo", str(folder / "demo.floor"))
    assert (done.returncode, done.stdout) == (0, "")
    assert "can read the code in it" in done.stderr
    assert (folder / "demo.floor").read_bytes() == archive(SEGMENTS)
    assert (folder / "demo.floor").stat().st_mode & 0o777 == 0o600
    with tarfile.open(folder / "demo.floor") as opened:
        assert opened.getnames() == ["manifest.json", f"{'a' * 64}.kv"]


def test_programs_get_its_size_and_its_tokens(lorekeep, lore, folder):
    done = lore("codex", "export", "demo", str(folder / "demo.floor"), "--json")
    size = (folder / "demo.floor").stat().st_size
    assert json.loads(done.stdout) == {
        "codex": "demo",
        "file": str(folder / "demo.floor"),
        "bytes": size,
        "tokens": 600,
    }


def test_a_prefix_that_breaks_off_anywhere_leaves_no_file(lorekeep, lore, folder):
    whole = archive(SEGMENTS)
    for end in (0, 100, 700, len(whole) // 2, len(whole) - 512):
        lorekeep.service.archive = [whole[:end]]
        done = lore("codex", "export", "demo", str(folder / "demo.floor"))
        assert (done.returncode, "broke off" in done.stderr) == (1, True), (end, done.stderr)
        assert list(folder.glob("demo*")) == []


def as_of_a_terminal():
    """Also where these tests run under `nohup`, which is respected."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    end_with_parent()


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_who_ends_it_or_closes_its_terminal_finds_nothing_of_it(environment, folder, ending):
    with socket.socket(socket.AF_UNIX) as slow:
        slow.bind(str(folder / "lore.sock"))
        slow.listen()
        command = [str(LORE), "codex", "export", "demo", str(folder / "demo.floor")]
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, preexec_fn=as_of_a_terminal)
        connection, _ = slow.accept()
        with connection:
            connection.recv(4096)
            begun = archive(SEGMENTS)[:-512]
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(begun) + 512) + begun)
            until(lambda: list(folder.glob("demo*.part")))
            process.send_signal(ending)
            assert process.wait(60) == 128 + ending
    assert list(folder.glob("demo*")) == []


def test_what_somebody_laid_where_it_writes_is_not_written_through(lorekeep, environment, folder):
    """Names of processes are easily guessed, and a folder may be anybody's."""
    (folder / "mine").write_text("mine")
    line = f"ln -s mine {folder}/demo.floor.$$.part; exec {LORE} codex export demo {folder}/demo.floor"
    done = subprocess.run(["bash", "-c", line], env=environment, capture_output=True, text=True, check=False)
    assert (folder / "mine").read_text() == "mine"
    assert (done.returncode, "File exists" in done.stderr) == (1, True)


def test_a_file_that_is_there_is_not_written_over(lorekeep, lore, folder):
    (folder / "demo.floor").write_text("mine")
    done = lore("codex", "export", "demo", str(folder / "demo.floor"))
    assert (done.returncode, "is there already" in done.stderr) == (2, True)
    assert (folder / "demo.floor").read_text() == "mine"


def test_an_unknown_codex_and_a_missing_folder_are_told(lorekeep, lore, folder):
    assert lore("codex", "export", "nothing", str(folder / "x")).returncode == 5
    done = lore("codex", "export", "demo", str(folder / "no" / "x"))
    assert (done.returncode, "No such file" in done.stderr) == (1, True)
    assert lore("codex", "import", str(folder / "no" / "x")).returncode == 5


def test_what_was_taken_in_is_told_with_what_comes_next(lorekeep, lore, folder):
    (folder / "demo.floor").write_bytes(archive(SEGMENTS))
    done = lore("codex", "import", str(folder / "demo.floor"))
    assert done.returncode == 0
    assert "next: lore load PATH --name demo, with the same files (main@1a2b3c4)" in done.stderr
    assert "mind that" in done.stderr
    taken = json.loads(lore("codex", "import", str(folder / "demo.floor"), "--json").stdout)
    assert taken["bytes"] == (folder / "demo.floor").stat().st_size


def test_a_refusal_comes_before_the_rest_is_sent_and_says_what_is_another_one(lorekeep, lore, folder):
    with (folder / "demo.floor").open("wb") as file:
        file.write(b"other")
        file.truncate(1 << 33)  # nobody sends 8 GiB to be refused
    done = lore("codex", "import", str(folder / "demo.floor"))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "lore: the prefix is of no use here: V is q8_0 there and f16 here",
        "      the setting model.kv_type_v",
    ]


def test_what_has_no_size_is_not_called_damaged(lore, folder):
    os.mkfifo(folder / "pipe")
    held = os.open(folder / "pipe", os.O_RDWR)
    done = lore("codex", "import", str(folder / "pipe"))
    os.close(held)
    assert (done.returncode, "is no file: its size is not known" in done.stderr) == (2, True)
