"""What building needs is installed where that is permitted, and named where it is not; a system that has it is left alone.

The scripts run for real, on a PATH of chosen programs; apt-get and id on it are stand-ins that write down or say who asks.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"
COMPLETE = ("gcc", "g++", "git", "make", "systemd-analyze", "python3")


class System:
    """A machine with the programs named, and one user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked = folder / "asked"
        for tool in ("sh", "dirname", "cat"):
            (folder / tool).symlink_to(shutil.which(tool))
        self.program("apt-get", f'echo "$*" >> {self.asked}')
        self.user(0)

    def program(self, name: str, script: str) -> None:
        (self.folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.folder / name).chmod(0o755)

    def user(self, number: int) -> None:
        self.program("id", f"echo {number}")

    def has(self, *names: str) -> None:
        for name in names:
            if name.startswith("python"):
                self.program(name, f'exec {sys.executable} "$@"')
            else:
                self.program(name, "exit 0")

    def run(self, script: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(self.folder), "HOME": os.environ["HOME"], **variables}
        return subprocess.run(
            ["/bin/sh", SCRIPTS / script, *words], env=environment, capture_output=True, text=True, check=False
        )


@pytest.fixture
def system(tmp_path):
    return System(tmp_path)


def test_a_complete_system_is_left_alone(system):
    system.has(*COMPLETE)
    done = system.run("system_packages.sh")
    assert (done.returncode, done.stderr, system.asked.exists()) == (0, "", False)


def test_root_installs_exactly_what_is_missing(system):
    system.has("gcc", "git", "make", "python3")
    assert system.run("system_packages.sh").returncode == 0
    assert system.asked.read_text().splitlines()[-1].endswith("--no-install-recommends g++ systemd")


def test_a_browser_is_installed_for_tests_alone_and_by_itself(system):
    system.has(*COMPLETE)
    assert system.run("system_packages.sh", "tests").returncode == 0
    assert system.asked.read_text().splitlines()[-1].endswith("--no-install-recommends chromium")
    system.has("chromium")
    system.asked.unlink()
    done = system.run("system_packages.sh", "tests")
    assert (done.returncode, done.stderr, system.asked.exists()) == (0, "", False)


def test_a_distribution_without_that_browser_still_installs_the_rest(system):
    system.has("gcc", "git", "make", "python3")
    system.program("apt-get", f'echo "$*" >> {system.asked}; case "$*" in *chromium*) exit 100; esac')
    done = system.run("system_packages.sh", "tests")
    assert (done.returncode, "Not installed: chromium" in done.stderr) == (0, True)
    assert "--no-install-recommends g++ systemd\n" in system.asked.read_text()


def test_anybody_else_is_told_the_command(system):
    system.has("git", "make", "systemd-analyze", "python3")
    system.user(1000)
    done = system.run("system_packages.sh")
    assert done.returncode == 1
    assert "sudo apt-get install gcc g++" in done.stderr
    assert not system.asked.exists()


def test_what_only_tests_need_does_not_stop_anybody(system):
    system.has("gcc", "g++", "git", "make", "python3")
    system.user(1000)
    done = system.run("system_packages.sh")
    assert done.returncode == 0
    assert "package systemd" in done.stderr
    assert "chromium" not in done.stderr
    assert "package chromium" in system.run("system_packages.sh", "tests").stderr


def test_a_system_whose_python_stays_too_old_is_told_how_to_name_another(system):
    system.has("gcc", "g++", "git", "make", "systemd-analyze")
    system.program("python3", "exit 1")
    done = system.run("system_packages.sh")
    assert done.returncode == 1
    assert "make install PYTHON=" in done.stderr


def test_the_first_python_that_is_new_enough_is_taken(system):
    system.program("python3.11", "exit 1")
    system.has("python3.13", "python3")
    assert system.run("python.sh").stdout.strip() == str(system.folder / "python3.13")


def test_a_python_that_was_named_is_the_only_one_considered(system):
    system.has("python3", "python3.12")
    assert system.run("python.sh", PYTHON="python3.12").stdout.strip() == str(system.folder / "python3.12")
    assert system.run("python.sh", PYTHON="python9").returncode == 1
