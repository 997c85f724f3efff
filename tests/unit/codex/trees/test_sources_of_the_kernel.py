"""Folders whose files the kernel makes up are refused by name; what lies beside them is not."""

from pathlib import Path

import pytest

from codex.errors import SourceError
from codex.trees.sources import LoadSpec, made_up_by_kernel, resolve

MOUNTS = r"""overlay / overlay rw 0 0
proc /proc proc rw 0 0
tmpfs /dev tmpfs rw 0 0
tmpfs /dev/shm tmpfs rw 0 0
sysfs /sys sysfs ro 0 0
/dev/sda /mnt/two\040words ext4 rw 0 0
cgroup2 /mnt/covered cgroup2 rw 0 0
/dev/sdb /mnt/covered ext4 rw 0 0
"""


@pytest.mark.parametrize("source", ["/proc/self", "/proc", "/proc/self/status"])
def test_what_the_kernel_makes_up_is_refused_in_words(source: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"/proc.* holds no files of yours: the kernel makes it up \(proc\)"):
        resolve(LoadSpec((source,)), tmp_path)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/proc/1", "proc"),
        ("/process", ""),
        ("/sys/class", "sysfs"),
        ("/dev", "devices"),
        ("/dev/input", "devices"),
        ("/dev/shm/code", ""),
        ("/mnt/two words/code", ""),
        ("/mnt/covered/code", ""),
        ("/home/me", ""),
    ],
)
def test_the_deepest_and_last_mount_decides(path: str, kind: str, tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    assert made_up_by_kernel(Path(path), mounts) == kind


def test_where_no_mounts_are_listed_nothing_is_told_apart(tmp_path: Path) -> None:
    assert made_up_by_kernel(Path("/proc"), tmp_path / "none") == ""
