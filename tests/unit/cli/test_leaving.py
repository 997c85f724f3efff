"""Ctrl-C, and readers that leave: a command ends at once and quietly."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import SOON

LORE = Path(sys.executable).parent / "lore"


def started(folder, *arguments):
    environment = {**os.environ, "LORE_SOCKET": str(folder / "lore.sock")}
    return subprocess.Popen(
        [LORE, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize(
    ("command", "words"), [(["ask", "forever"], b""), (["load", "/forever", "--json"], b"the daemon goes on loading")]
)
def test_ctrl_c_ends_with_130(lorekeep, folder, command, words):
    process = started(folder, *command)
    lorekeep.wait_for(lorekeep.service.begun)
    process.stdout.read(6)  # the command is where it waits for more
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=SOON)
    assert process.returncode == 130
    assert words in told
    assert b"Traceback" not in told
    if command[0] == "ask":
        lorekeep.wait_for(lorekeep.service.ended)


def test_a_reader_that_has_enough_ends_the_command_quietly(lorekeep, folder):
    process = started(folder, "ask", "word " * 5000)
    process.stdout.read(1)
    process.stdout.close()
    told = process.stderr.read()
    assert process.wait(SOON) in (0, 141)
    assert b"Traceback" not in told
    process.stderr.close()


def test_who_reads_the_output_may_leave(folder):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([LORE, "config", "show"], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_an_output_that_was_closed_before_the_start_is_no_mistake():
    for closed in (">&-", "2>&-"):
        command = ["sh", "-c", f"exec {LORE} config path {closed}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False)
