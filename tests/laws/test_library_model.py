"""Law: whatever happens to the files, the library tells what they were at each load, and its log leads to what they are."""

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from support.examples import few
from support.prefixes import shared_prefix

from codex.documents import digest_of
from codex.following.amendments import effective
from codex.library import Library, next_order
from codex.trees.sources import LoadSpec

PATHS = st.sampled_from(["a.py", "b.py", "deep/c.py", "deep/er/d.py", "grün.md", "e\udcff.py"])
TEXTS = st.sampled_from(["", "x = 1\n", "x = 2\n", "y\r\nz\n", "grün\n"])


class FilesAgainstLibrary(RuleBasedStateMachine):
    @initialize(in_git=st.booleans())
    def begin(self, in_git: bool) -> None:
        self.folder = TemporaryDirectory()
        self.root, self.data = Path(self.folder.name) / "root", Path(self.folder.name) / "data"
        self.root.mkdir()
        if in_git:
            subprocess.run(["git", "init", "-q", self.root], check=True)
        (self.root / "always.py").write_text("here\n")
        self.disk = {"always.py": "here\n"}
        self.generations: dict[int, dict[str, str]] = {}
        self.library = Library(self.data)

    @rule(path=PATHS, text=TEXTS)
    def a_file_is_written(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_bytes(text.encode())
        self.disk[path] = text

    @rule(path=PATHS)
    def a_file_is_removed(self, path: str) -> None:
        (self.root / path).unlink(missing_ok=True)
        self.disk.pop(path, None)

    @rule(path=PATHS, to=PATHS)
    def a_file_is_renamed(self, path: str, to: str) -> None:
        if path in self.disk:
            (self.root / to).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).rename(self.root / to)
            self.disk[to] = self.disk.pop(path)

    @rule()
    def the_folder_is_loaded(self) -> None:
        old = self._entries(max(self.generations)) if self.generations else []
        loaded = self.library.load(LoadSpec((str(self.root),), name="it"))
        self.generations[loaded.generation.number] = self._told_disk()
        new = self._entries(loaded.generation.number)
        if old:
            assert shared_prefix(old, new) == shared_prefix(
                old, [(path, dict(new)[path]) for path in next_order(old, dict(new), {})]
            )

    @precondition(lambda self: self.generations)
    @rule()
    def the_log_leads_to_the_disk(self) -> None:
        before = self.library.catalog.amendments("it")
        followed = self.library.follow("it", count=len, changed_definitions=lambda old, new: None)
        base = self.library.catalog.generation("it").digests()
        assert followed.log[: len(before)] == before
        assert effective(base, followed.log) == {
            path.replace("\udcff", "\\xff"): digest_of(text.encode()) for path, text in self.disk.items()
        }

    @rule()
    def a_restart_changes_nothing(self) -> None:
        self.library.close()
        self.library = Library(self.data)

    @precondition(lambda self: self.generations)
    @rule()
    def every_generation_is_told_as_it_was(self) -> None:
        for number, files in self.generations.items():
            told = self.library.catalog.documents(self.library.catalog.generation("it", number).entries)
            assert {one.path: one.text for one in told} == files

    def _told_disk(self) -> dict[str, str]:
        return {path.replace("\udcff", "\\xff"): text.replace("\r\n", "\n") for path, text in self.disk.items()}

    def _entries(self, number: int) -> list[tuple[str, str]]:
        return [(one.path, one.digest) for one in self.library.catalog.generation("it", number).entries]

    def teardown(self) -> None:
        if hasattr(self, "library"):
            self.library.close()
            self.folder.cleanup()


TestFilesAgainstLibrary = FilesAgainstLibrary.TestCase
TestFilesAgainstLibrary.settings = settings(few(8), stateful_step_count=15)
