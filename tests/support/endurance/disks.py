"""The disk that holds all that the daemon writes gets full, or may only be read, and is as before again."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from private_daemon import DaemonError, PrivateDaemon, share_models
from report import Row, at_most
from support.endurance.parts import Amount, asked, asks, at_least, messages, opens
from support.house import CODES, codebase, living, until
from support.small_disk import small_disk

CASE = "disk full, read-only, and back"
SIZE = "24m"
STATES = ("full", "read-only")


@dataclass
class Disk:
    daemon: PrivateDaemon
    place: Path
    asked: int = 0
    wrong: int = 0
    silent: int = 0  # answers that were not kept, and starts that were refused, without a word of why
    unkept: int = 0  # turns on a full disk that were answered and not kept
    unkept_read_only: int = 0
    refused: int = 0  # starts on a read-only disk
    late: int = 0  # times that it kept nothing although there was room again
    promised: int = 0

    def round(self, number: int) -> None:
        self.turn()
        if STATES[number % len(STATES)] == "full":
            self.full()
        else:
            self.read_only()
        with suppress(AssertionError):
            until(self.turn, timeout_s=20)
            return
        self.late += 1

    def full(self) -> None:
        fill(self.place / "filling")
        self.unkept += not self.turn()
        (self.place / "filling").unlink()

    def read_only(self) -> None:
        """The kernel makes no file system read-only while a file is open for writing: the daemon starts on one that is."""
        self.daemon.stop()
        remount(self.place, "ro")
        try:
            self.daemon.start()
        except DaemonError as error:
            self.refused += 1
            self.silent += "read-only" not in str(error).lower()
        else:
            self.unkept_read_only += not self.turn()
            self.daemon.stop()
        self.daemon.process = None
        remount(self.place, "rw")
        self.daemon.start()

    def turn(self) -> bool:
        """Whether the turn was kept."""
        self.asked += 1
        vault = sorted(CODES)[self.asked % len(CODES)]
        before = len(messages(self.daemon, "talk"))
        said = asked(self.daemon, asks(vault), session="talk", codex="vaults")
        self.wrong += not opens(said, CODES[vault])
        says_so = bool(said.lore and said.lore.get("not_kept"))
        kept = len(messages(self.daemon, "talk")) >= before + 2
        self.silent += not says_so and not kept
        self.promised += 2 * (not says_so)
        return kept


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)) == 4096:
            pass


def remount(place: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", place], check=True)


def disks(amount: Amount) -> Iterator[Row]:
    """Nothing where no file system can be mounted, which needs root; the row says so."""
    with tempfile.TemporaryDirectory(prefix="lore-disk-") as name:
        try:
            with small_disk(Path(name) / "small", SIZE) as place:
                yield from spoiled(amount, place)
        except pytest.skip.Exception as error:
            yield Row(CASE, "not run", None, note=str(error))


def spoiled(amount: Amount, place: Path) -> Iterator[Row]:
    share_models(amount.models, place)
    environment = {
        "XDG_DATA_HOME": str(place / "data"),
        "XDG_CACHE_HOME": str(place / "cache"),
        "XDG_STATE_HOME": str(place / "state"),
    }
    with living(amount.models, "[model]\ncontext = 4096\n", environment=environment) as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
        disk, done = Disk(daemon, place), 0
        for number in amount.times():
            disk.round(number)
            done += 1
        lost = disk.promised - len(messages(daemon, "talk"))
        daemon.stop()
        daemon.start()
        lost = max(lost, disk.promised - len(messages(daemon, "talk")))
        yield from figures(disk, done, amount, lost)


def figures(disk: Disk, done: int, amount: Amount, lost: int) -> Iterator[Row]:
    yield at_least(CASE, "times", done, amount.number)
    yield at_most(CASE, f"of {disk.asked} answers wrong or missing", disk.wrong, 0, "")
    yield at_least(CASE, "turns on a full disk that were answered and not kept", disk.unkept, 1)
    read_only = disk.refused + disk.unkept_read_only
    yield at_least(CASE, "starts on a read-only disk that were refused, or kept nothing", read_only, 1)
    yield at_most(CASE, "turns not kept, and starts refused, without a word of why", disk.silent, 0, "")
    yield at_most(CASE, "times that nothing was kept 20 s after there was room", disk.late, 0, "")
    yield at_most(CASE, "messages lost that were kept, also after a restart", lost, 0, "")
