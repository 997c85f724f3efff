"""Who is refused while a codex is loaded, who waits, and what is said of who holds it."""

import subprocess
import sys
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from support.libraries import fill, request
from support.waiting import SOON

from codex.errors import LoadCancelled, LoadRunning
from codex.library import Library
from codex.locks import load_lock

ELSEWHERE = """
import sys
from pathlib import Path
from codex.locks import load_lock
with load_lock(Path(sys.argv[1]), "one", "/x", "/x"):
    print("held", flush=True)
    sys.stdin.readline()
"""


def lock(folder: Path, name: str, source: str = "/x", *, asked: bool = True) -> AbstractContextManager[None]:
    return load_lock(folder, name, source, source, asked=asked)


def told(event: threading.Event) -> bool:
    event.set()
    return False


def test_a_load_refused_over_its_source_is_told_which_codex_has_it_and_how_to_end_that(tmp_path: Path) -> None:
    with (
        lock(tmp_path, "one"),
        pytest.raises(LoadRunning, match=r"a load of /x as 'one' is running; .*lore load --cancel one$"),
        lock(tmp_path, "two"),
    ):
        pass


def test_a_load_refused_over_its_name_is_told_what_is_loaded_under_it(tmp_path: Path) -> None:
    with (
        lock(tmp_path, "one", "/x"),
        pytest.raises(LoadRunning, match=r"a load of /x as 'one' is running"),
        lock(tmp_path, "one", "/y"),
    ):
        pass


def test_who_was_refused_is_not_said_to_hold_anything(tmp_path: Path) -> None:
    with lock(tmp_path, "one"):
        for _ in range(2):
            with pytest.raises(LoadRunning, match="as 'one'"), lock(tmp_path, "two"):
                pass
    with lock(tmp_path, "two"), pytest.raises(LoadRunning, match="as 'two'"), lock(tmp_path, "one"):
        pass


def test_a_load_of_another_process_is_named_without_a_command_that_would_not_reach_it(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-c", ELSEWHERE, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with pytest.raises(LoadRunning, match=rf"by process {child.pid} is running") as refused, lock(tmp_path, "two"):
            pass
        child.communicate("\n")
    assert "--cancel" not in str(refused.value)


def test_what_nobody_asked_for_is_waited_for(tmp_path: Path) -> None:
    steps: list[str] = []

    def load() -> None:
        with load_lock(tmp_path, "two", "/x", "/x", cancelled=lambda: told(waits)):
            steps.append("loaded")

    waits, thread = threading.Event(), threading.Thread(target=load)
    with lock(tmp_path, "one", asked=False):
        thread.start()
        assert waits.wait(SOON)
        steps.append("updated")
    thread.join(SOON)
    assert steps == ["updated", "loaded"]


def test_a_load_that_waits_can_be_cancelled(tmp_path: Path) -> None:
    with (
        lock(tmp_path, "one", asked=False),
        pytest.raises(LoadCancelled, match="update of the same files"),
        load_lock(tmp_path, "two", "/x", "/x", cancelled=lambda: True),
    ):
        pass


def test_a_holder_that_could_not_write_who_it_is_is_waited_for(tmp_path: Path) -> None:
    with lock(tmp_path, "one"):
        for file in tmp_path.glob("*.lock"):
            file.write_bytes(b"{")
        with (
            pytest.raises(LoadCancelled),
            load_lock(tmp_path, "two", "/x", "/x", cancelled=lambda: True),
        ):
            pass


def test_a_load_waits_for_the_update_of_another_codex_of_the_same_folder(tmp_path: Path) -> None:
    library, root = Library(tmp_path / "data"), fill(tmp_path / "root", {"a.py": "a = 1\n"})
    library.load(request(root, name="one"))
    waits, loaded = threading.Event(), []

    def load() -> None:
        loaded.append(library.load(request(root, name="two"), cancelled=lambda: told(waits)).codex.name)

    def count(text: str) -> int:  # in the middle of the update
        thread.start()
        assert waits.wait(SOON)
        assert loaded == []
        return len(text)

    thread = threading.Thread(target=load)
    fill(root, {"a.py": "a = 10\n"})
    library.follow("one", count=count, changed_definitions=lambda old, new: None)
    thread.join(SOON)
    assert loaded == ["two"]
    library.close()
