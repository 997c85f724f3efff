"""`lore service install` offers what keeps a user's services running: it asks a person, and does nothing unasked.

systemd is two small programs here, which note what they are told: the real one would change this machine.
"""

import os
import shutil
from pathlib import Path

import pytest
from private_daemon import LORE
from terminals import terminal

ASKED = "keep it running after you log out (loginctl enable-linger)? [Y/n]:"


@pytest.fixture
def machine(folder):
    """A home, and a systemd that obeys; `said` reads what it was told."""
    programs = folder / "bin"
    programs.mkdir()
    linger = folder / "lingers"
    written(programs / "systemctl", 'echo "systemctl $*" >> "$TOLD"')
    written(programs / "loginctl", f'echo "loginctl $*" >> "$TOLD"; [ "$1" = show-user ] && cat {linger}; exit 0')
    linger.write_text("no\n")
    paths = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "DATA", "STATE", "CACHE")}
    told = folder / "told"
    told.write_text("")
    return paths | {
        "HOME": str(folder),
        "TOLD": str(told),
        "PATH": f"{programs}:{Path(shutil.which('cat') or '').parent}",
    }


def written(program, text):
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)


def told(machine):
    return Path(machine["TOLD"]).read_text().splitlines()


def answered(machine, answer):
    """What the command says behind its question, and its exit status."""
    with terminal(LORE, "service", "install", environment=machine, columns=200) as person:
        person.until(ASKED)
        person.type(f"{answer}\r")
        said = person.rest()
        return said, person.process.returncode


def test_who_says_yes_has_services_that_outlast_a_logout(machine):
    said, status = answered(machine, "")
    assert (status, told(machine)[-1]) == (0, "loginctl enable-linger"), said


def test_who_says_no_is_told_how_to_do_it_later(machine):
    said, status = answered(machine, "n")
    assert (status, "loginctl enable-linger" in told(machine)) == (0, False)
    assert "it ends when you log out; to keep it running: loginctl enable-linger" in said


def test_where_nobody_can_be_asked_it_is_said_and_not_done(lore, machine):
    done = lore("service", "install", **machine)
    assert (done.returncode, "loginctl enable-linger" in told(machine)) == (0, False), done.stderr
    assert "to keep it running: loginctl enable-linger" in done.stderr


def test_who_lingers_already_is_not_asked(machine, folder):
    (folder / "lingers").write_text("yes\n")
    with terminal(LORE, "service", "install", environment=machine) as person:
        said = person.rest()
    assert (person.process.returncode, "log out" in said) == (0, False), said
    assert f"loginctl show-user {os.getuid()} --property=Linger --value" in told(machine)


def test_a_machine_that_refuses_is_a_fault_that_says_what_works_and_whom_to_ask(machine, folder):
    written(folder / "bin" / "loginctl", 'echo "Could not enable linger: Access denied" >&2; exit 1')
    said, status = answered(machine, "y")
    assert (status, "the units work, but end when you log out: loginctl enable-linger: Could not" in said) == (1, True)
    assert "sudo loginctl enable-linger USER" in said
