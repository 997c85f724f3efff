"""Ctrl-C, and readers that leave: a command ends at once and quietly."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import SOON

from orchestrator.cli import commands

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


SIGINT_AT_TYPER = """
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
"""
SIGINT_AT_THE_END = "atexit.register(os.kill, os.getpid(), signal.SIGINT)\n"


@pytest.mark.parametrize("when", [SIGINT_AT_TYPER, SIGINT_AT_THE_END], ids=["loading", "the end"])
def test_ctrl_c_before_and_after_the_command_itself_ends_quietly_with_130(when):
    script = f"import atexit, os, signal, sys\nsys.argv = ['lore', '--version']\n{when}"
    script += "from orchestrator.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_daemon_that_is_stopped_while_it_loads_its_modules_ends_in_order(number, tmp_path):
    script = f"import os, signal, sys\nsys.argv = ['lore', 'serve', '--socket', {str(tmp_path / 's')!r}]\n"
    script += SIGINT_AT_TYPER.replace('"typer"', '"orchestrator.daemon"').replace("signal.SIGINT", str(int(number)))
    script += "from orchestrator.cli import main\nmain()"
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    command = [sys.executable, "-P", "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_has_enough_ends_the_command_quietly(lorekeep, folder):
    process = started(folder, "ask", "word " * 5000)
    process.stdout.read(1)
    process.stdout.close()
    told = process.stderr.read()
    assert process.wait(SOON) in (0, 141)
    assert b"Traceback" not in told
    process.stderr.close()


@pytest.mark.parametrize("command", [("config", "show"), ("--help",), ("--version",)])
def test_who_reads_the_output_may_leave(command):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([LORE, *command], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("command", [("config", "show"), ("--help",)])
def test_an_output_that_cannot_be_written_is_told_and_no_mistake_of_ours(command):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([LORE, *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "lore: the output cannot be written: No space left on device\n")


def test_notes_that_nobody_can_read_change_nothing(environment):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([LORE, "status"], env=environment, stderr=full, check=False)
    assert done.returncode == 3


def test_an_output_that_was_closed_before_the_start_is_no_mistake():
    for closed in (">&-", "2>&-"):
        command = ["sh", "-c", f"exec {LORE} config path {closed}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False)


def test_a_fault_that_is_no_files_is_not_taken_for_the_outputs(monkeypatch):
    def timed_out():
        raise TimeoutError

    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # which `run` sets
    monkeypatch.setattr(commands, "app", timed_out)
    with pytest.raises(TimeoutError):
        commands.run()
