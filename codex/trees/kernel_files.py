"""Which folders hold no files of anybody's: the kernel makes up their text when it is read, never twice alike.

Knows mounts only; where the system lists none, nothing is told apart.
"""

import re
from pathlib import Path

MOUNTS = Path("/proc/self/mounts")
MADE_UP = frozenset(
    {
        "proc",
        "sysfs",
        "devtmpfs",
        "devpts",
        "cgroup",
        "cgroup2",
        "securityfs",
        "debugfs",
        "tracefs",
        "bpf",
        "pstore",
        "efivarfs",
        "configfs",
        "mqueue",
        "fusectl",
        "binfmt_misc",
        "rpc_pipefs",
        "nsfs",
        "selinuxfs",
    }
)
DEVICES = Path("/dev")  # in containers an ordinary file system in memory


def made_up_by_kernel(path: Path, mounts: Path = MOUNTS) -> str:
    """The kind of file system that `path` (absolute, without links) lies in if the kernel makes it up, else ''."""
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    place, kind = Path("/"), ""
    for fields in (line.split(" ") for line in lines):
        if len(fields) < 3:
            continue
        point = Path(_plain(fields[1]))
        # Of two at one place the later one covers the earlier.
        if path.is_relative_to(point) and len(point.parts) >= len(place.parts):
            place, kind = point, fields[2]
    if kind in MADE_UP:
        return kind
    return "devices" if place == DEVICES else ""


def _plain(escaped: str) -> str:
    """Mounts write blanks and backslashes as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), escaped)
