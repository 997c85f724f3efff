"""A folder on disk as a tree: its files, and their bytes.

Inside a git working tree git itself lists the files (by all rules of `.gitignore`; submodules and nested repositories one
by one). Elsewhere a plain walk applies `.gitignore` files by dulwich's rules. `codex.trees.ignore` then decides for each.

Symbolic links are not followed: a target inside the root is loaded at its own path, and a target outside does not belong to
the codex. So loops cannot occur, and only plain files are opened.
"""

import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from codex.documents import name_of
from codex.errors import GitError, SourceError
from codex.progress import Cancelled, Step, insist, never, uncounted
from codex.trees import git
from codex.trees.git import Git
from codex.trees.ignore import GIT_IGNORE, LORE_IGNORE, IgnoreRules, Selection, SkipReason
from codex.trees.port import BEING_WRITTEN, CandidateFile, FileBytes, Scan, Skipped, TreeState, by_age, by_commits

_RULES_BYTES = 1 << 20  # an ignore file larger than this is none
_SETTLED_NS = 2_000_000_000  # file systems and kernels tick coarsely: a younger file may change under the same stamp
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class DiskTree:
    """Files below `root`, or only `files` (raw paths relative to it) of them."""

    def __init__(
        self,
        root: Path,
        selection: Selection,
        *,
        max_files: int,
        max_file_bytes: int,
        files: tuple[str, ...] | None = None,
        named: tuple[str, ...] = (),
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`named`: absolute paths that led to root or files when they were looked up, with the links in them."""
        self.root = Path(os.path.realpath(root))
        self._inside = f"{self.root}/".replace("//", "/")  # what paths of all in it begin with
        self.named = named or tuple(str(self.root / name) for name in files or ("",))
        self.selection = selection
        self._max_files = max_files
        self._max_file_bytes = max_file_bytes
        self.files = files
        self._clock_ns = clock_ns
        self._notices: list[str] = []
        self._repositories: dict[str, Git | None] = {}
        self.forget_rules()

    def scan(self, cancelled: Cancelled = never, found: Step = uncounted) -> Scan:
        self._insist_on_root()
        self._notices.clear()
        self.forget_rules()
        candidates: list[CandidateFile] = []
        skipped: list[Skipped] = []
        for listed in self._list(cancelled):
            insist(cancelled)
            one = listed if isinstance(listed, Skipped) else self._judge(listed)
            if isinstance(one, CandidateFile):
                candidates.append(one)
                found()
            elif one is not None:
                skipped.append(one)
            if len(candidates) > self._max_files:
                raise SourceError(
                    f"{self.root} holds more than {self._max_files:,} files to load; "
                    f"name a smaller folder, leave some out with {LORE_IGNORE} or --exclude, or raise codex.max_files"
                )
        self._insist_on_root()  # moved away or unmounted meanwhile, it would look like one whose files were deleted
        candidates.sort(key=lambda one: one.path)
        skipped.sort(key=lambda one: one.path)
        return Scan(tuple(candidates), tuple(skipped), tuple(self._notices))

    def _insist_on_root(self) -> None:
        if not _is_real_folder(self.root):
            raise SourceError(f"{self.root} is not there or is no folder; name an existing file or folder")

    def read(self, candidate: CandidateFile) -> FileBytes:
        try:
            handle = os.open(self._inside + candidate.origin, _OPEN)
        except FileNotFoundError:
            self._insist_on_root()
            raise
        try:
            before = os.fstat(handle)
            self._insist_on_plain_file_inside(handle, before)
            raw = _read_all(handle, self._max_file_bytes + 1)
            settled = stamp_of(before) == stamp_of(os.fstat(handle)) and len(raw) == before.st_size
            old_enough = before.st_mtime_ns < self._clock_ns() - _SETTLED_NS
            return FileBytes(raw, stamp_of(before) if settled and old_enough else "")
        finally:
            os.close(handle)

    def state(self) -> TreeState:
        repository = self.repository()
        if repository is None:
            return TreeState()
        try:
            branch, revision = repository.head()
            return TreeState(branch, revision, len(repository.changed()))
        except GitError:
            return TreeState()

    def volatility(self, candidates: Sequence[CandidateFile]) -> Mapping[str, int]:
        repository = self.repository()
        if repository is None:
            return by_age({one.path: int(one.stamp.split(":")[1]) for one in candidates})
        try:
            steps = by_commits({name_of(path): count for path, count in repository.commits_by_file().items()})
            return steps | {name_of(path): BEING_WRITTEN for path in repository.changed()}
        except GitError:
            return {}

    def close(self) -> None:
        pass

    def forget_rules(self) -> None:
        """Read the ignore files, and look for repositories, again when next asked."""
        self._with_git = git.available()  # asked once: it looks through PATH, and a tree has thousands of folders
        self.rules = IgnoreRules(LORE_IGNORE, self._read_rules)
        self._git_rules = IgnoreRules(GIT_IGNORE, self._read_rules)
        self._repositories.clear()

    def repository(self, folder: str = "") -> Git | None:
        """Git for the root or a folder below it; None without git, outside a repository, or when ignored."""
        if folder not in self._repositories:
            found = Git(self.root / folder)
            usable = self._with_git and found.is_work_tree() and not found.is_hidden()
            self._repositories[folder] = found if usable else None
        return self._repositories[folder]

    def hidden(self, paths: Sequence[str]) -> set[str]:
        """Those of raw relative paths (a folder ends in /) that `.gitignore` rules hide, each by its own repository."""
        found: set[str] = set()
        asked: dict[str, list[str]] = {}
        for path in paths:
            asked.setdefault(self._repository_of(path), []).append(path)
        for prefix, inside in asked.items():
            repository = self.repository(prefix)
            if repository is None:
                rules = self._git_rules
                found |= {path for path in inside if rules.verdict(path.rstrip("/"), is_folder=path.endswith("/"))}
            else:
                found.update(prefix + path for path in repository.ignored([path[len(prefix) :] for path in inside]))
        return found

    def _repository_of(self, path: str) -> str:
        """The nearest folder above the path that is a repository of its own; empty: the root."""
        folder = path.rstrip("/").rpartition("/")[0]
        while folder and not has_repository(self.root / folder):
            folder = folder.rpartition("/")[0]
        return f"{folder}/" if folder else ""

    def _list(self, cancelled: Cancelled) -> Iterator[str | Skipped]:
        if self.files is not None:
            yield from self.files
        elif self.repository() is not None:
            yield from self._list_by_git("", cancelled)
        else:
            if self._with_git and has_repository(self.root):
                self._notices.append(
                    f"git refuses {self.root}, so its files were listed without it: see `git -C {self.root} status`"
                )
            yield from self._list_by_walk("", cancelled)

    def _list_by_git(self, prefix: str, cancelled: Cancelled) -> Iterator[str | Skipped]:
        """Paths relative to the root. `prefix` is empty or ends in /, and leads to a working tree."""
        for path in Git(self.root / prefix).listed(cancelled):
            inside = prefix + path.rstrip("/")
            if not _is_real_folder(self.root / inside):
                yield inside
            elif is_linked_worktree(self.root / inside):
                yield _left_out(inside + "/", SkipReason.WORKTREE)  # the same code once more, on another branch
            elif has_repository(self.root / inside):
                yield from self._list_by_git(inside + "/", cancelled)
            else:
                yield _left_out(inside + "/", SkipReason.SUBMODULE)

    def _list_by_walk(self, prefix: str, cancelled: Cancelled) -> Iterator[str | Skipped]:
        waiting = [prefix]
        while waiting:
            insist(cancelled)  # here too: folders without files yield nothing
            folder = waiting.pop()
            try:
                entries = sorted(os.scandir(self.root / folder), key=lambda entry: entry.name, reverse=True)
            except OSError as error:
                yield _left_out(folder, _reason_of(error))
                continue
            for entry in entries:
                path = folder + entry.name
                if not entry.is_dir(follow_symlinks=False):
                    yield _left_out(path, SkipReason.IGNORED) if self._git_rules.verdict(path) else path
                elif self._with_git and has_repository(self.root / path):
                    yield from self._nested_repository(path, cancelled)
                elif not self.selection.enters(path, self.rules):
                    reason = self.selection.verdict(path + "/x", 0, self.rules)
                    yield path + "/" if reason is None else _left_out(path + "/", reason)
                elif self._git_rules.verdict(path, is_folder=True):
                    yield _left_out(path + "/", SkipReason.IGNORED)
                else:
                    waiting.append(path + "/")

    def _nested_repository(self, path: str, cancelled: Cancelled) -> Iterator[str | Skipped]:
        if is_linked_worktree(self.root / path):
            yield _left_out(path + "/", SkipReason.WORKTREE)
        elif Git(self.root / path).is_work_tree():
            yield from self._list_by_git(path + "/", cancelled)
        else:
            yield from self._list_by_walk(path + "/", cancelled)

    def _judge(self, path: str) -> CandidateFile | Skipped | None:
        """None for a file that git knows and that was deleted: it is not left out, it is not there."""
        try:
            facts = os.lstat(self._inside + path)
        except FileNotFoundError:
            return None
        except OSError as error:
            return _left_out(path, _reason_of(error))
        reason = _reason_by_kind(facts) or self.selection.verdict(path, facts.st_size, self.rules)
        if reason is not None:
            return _left_out(path, reason)
        return CandidateFile(name_of(path), path, facts.st_size, stamp_of(facts))

    def _read_rules(self, path: str) -> bytes | None:
        try:
            handle = os.open(self.root / path, _OPEN)
        except OSError:
            return None
        try:
            return _read_all(handle, _RULES_BYTES) if stat.S_ISREG(os.fstat(handle).st_mode) else None
        finally:
            os.close(handle)

    def _insist_on_plain_file_inside(self, handle: int, facts: os.stat_result) -> None:
        """Refuses a folder that was replaced by a link since the scan: checks the path that the kernel has opened."""
        opened = os.readlink(f"/proc/self/fd/{handle}")  # noqa: PTH115 - as above
        if not stat.S_ISREG(facts.st_mode) or not opened.startswith(self._inside):
            raise PermissionError(f"{opened} is not a plain file inside {self.root}")


def stamp_of(facts: os.stat_result) -> str:
    """Everything a changed file cannot leave as it was, once its clock tick is over."""
    return f"{facts.st_size}:{facts.st_mtime_ns}:{facts.st_ctime_ns}:{facts.st_ino}"


def _read_all(handle: int, limit: int) -> bytes:
    pieces = []
    while limit > 0 and (piece := os.read(handle, min(limit, 1 << 20))):
        pieces.append(piece)
        limit -= len(piece)
    return b"".join(pieces)


def _left_out(path: str, reason: SkipReason) -> Skipped:
    return Skipped(name_of(path), reason)


def _reason_by_kind(facts: os.stat_result) -> SkipReason | None:
    if stat.S_ISLNK(facts.st_mode):
        return SkipReason.LINK
    return None if stat.S_ISREG(facts.st_mode) else SkipReason.SPECIAL


def _reason_of(error: OSError) -> SkipReason:
    return SkipReason.VANISHED if isinstance(error, FileNotFoundError) else SkipReason.UNREADABLE


def has_repository(path: Path) -> bool:
    """Whether the folder is the top of a repository; no when it cannot be looked into."""
    try:
        os.lstat(path / ".git")
    except OSError:
        return False
    return True


def _is_real_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def is_linked_worktree(path: Path) -> bool:
    """A linked worktree's `.git` is a file that names a folder inside the main repository's `worktrees`."""
    try:
        return "/worktrees/" in (path / ".git").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
