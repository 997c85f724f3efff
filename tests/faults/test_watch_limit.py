"""The kernel's limits on watches, forced for real in a user namespace of its own, so that nobody else feels them."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = textwrap.dedent("""
    import json, queue, sys
    from pathlib import Path
    from codex.library import Library
    from codex.settings import WatchSettings
    from codex.trees.sources import LoadSpec
    from codex.following.watch import Watcher

    limit, value, data, root = sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])
    Path(f"/proc/sys/user/{limit}").write_text(value)
    library = Library(data)
    name = library.load(LoadSpec((str(root),))).codex.name
    batches, notices = queue.Queue(), []
    settings = WatchSettings(debounce_s=0.02, poll_s=0.1)
    watcher = Watcher(library.tree(name), settings, batches.put, notices.append)
    watcher.start()
    (root / "d7" / "a.py").write_text("changed\\n")
    batch = batches.get(timeout=60)
    polling = watcher.is_polling
    found = library.follow(name, count=len, changed_definitions=lambda before, now: None)
    changed = [one.path for one in found.log]
    watcher.stop()
    print(json.dumps({"everything": batch.everything, "polling": polling, "notices": notices, "changed": changed}))
""")


def under_limit(limit: str, value: int, tmp_path: Path) -> dict[str, object]:
    for number in range(10):
        (tmp_path / "root" / f"d{number}").mkdir(parents=True)
        (tmp_path / "root" / f"d{number}" / "a.py").write_text("x\n")
    arguments = [limit, str(value), tmp_path / "data", tmp_path / "root"]
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", sys.executable, "-P", "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "unshare" in done.stderr or "/proc/sys/user" in done.stderr:
        pytest.skip("no user namespaces here")
    assert done.returncode == 0, done.stderr
    told: dict[str, object] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize(
    ("limit", "value", "sysctl"),
    [
        ("max_inotify_watches", 5, "fs.inotify.max_user_watches"),
        ("max_inotify_instances", 0, "fs.inotify.max_user_instances"),
    ],
)
def test_without_watches_changes_are_polled_for_and_the_limit_is_named(
    tmp_path: Path, limit: str, value: int, sysctl: str
) -> None:
    told = under_limit(limit, value, tmp_path)
    notices = told.pop("notices")
    assert told == {"everything": True, "polling": True, "changed": ["d7/a.py"]}
    assert isinstance(notices, list)
    assert len(notices) == 1
    assert f"sysctl -w {sysctl}=" in notices[0]
