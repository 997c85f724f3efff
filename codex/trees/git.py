"""The codex's queries of git, through git's own program, because another implementation could differ.

Runs no hooks, no file-system monitor and no credential prompt. git's ownership check stays on: git refuses a repository of
another user, and the caller falls back to a plain walk. Content filters that the user's own repository configures run as
in any `git status`. Does not know codices.
"""

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from codex.errors import GitError, LoadCancelled

_QUIET = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false")
# What `git rev-parse --local-env-vars` lists: a daemon started from a git hook would work on the hook's repository.
_LOCAL_VARIABLES = """
    GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_COMMON_DIR GIT_PREFIX
    GIT_CONFIG GIT_CONFIG_PARAMETERS GIT_CONFIG_COUNT GIT_GRAFT_FILE GIT_SHALLOW_FILE GIT_IMPLICIT_WORK_TREE
    GIT_NO_REPLACE_OBJECTS GIT_REPLACE_REF_BASE GIT_INTERNAL_SUPER_PREFIX
"""
_OF_ANOTHER_REPOSITORY = frozenset(_LOCAL_VARIABLES.split())
_POLL_S = 0.1  # how soon a cancelled clone is noticed
_TAIL = 300  # characters of git's own message worth showing


@dataclass(frozen=True, slots=True)
class Blob:
    """One file of a tree: raw path relative to the tree, object name, size in bytes, whether it is a link, or the place of
    a submodule, whose files are another repository's."""

    path: str
    oid: str
    size: int
    is_link: bool = False
    is_submodule: bool = False


def available() -> bool:
    """Whether a git program is on PATH."""
    return shutil.which("git") is not None


class Git:
    """Git run in one folder (of a working tree, or a bare repository)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *arguments: str, fed: bytes = b"", cancelled: Callable[[], bool] | None = None) -> bytes:
        """Standard output of `git ARGUMENTS`, fed these bytes. Raises GitError with git's own last words, LoadCancelled."""
        command = ["git", "-C", str(self.folder), *_QUIET, *arguments]
        try:
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_environment()
            )
        except OSError as error:
            raise GitError(f"git cannot be run in {self.folder}: {error.strerror}; is git installed?") from error
        out, err = _communicate(child, fed, cancelled)
        if child.returncode != 0:
            message = err.decode("utf-8", errors="replace").strip()[-_TAIL:] or f"exit status {child.returncode}"
            raise GitError(f"git {arguments[0]} failed in {self.folder}: {message}")
        return out

    def records(self, *arguments: str, cancelled: Callable[[], bool] | None = None) -> list[str]:
        """NUL-separated records of a command's output, as os.fsdecode gives them. Raises what `run` raises."""
        return _records(self.run(*arguments, cancelled=cancelled))

    def is_work_tree(self) -> bool:
        """Whether the folder lies inside a working tree that this user may use."""
        return self._says("rev-parse", "--is-inside-work-tree") == "true"

    def is_bare(self) -> bool:
        """Whether the folder itself is a bare repository."""
        return self._says("rev-parse", "--is-bare-repository", "--git-dir") == "true\n."

    def is_gits_own(self) -> bool:
        """Whether the folder is, or lies inside, what git keeps for itself: `.git`, or a bare repository."""
        return self._says("rev-parse", "--is-inside-git-dir") == "true"

    def git_folder(self) -> Path:
        """Where HEAD and index.lock of this working tree are."""
        return Path(os.fsdecode(self.run("rev-parse", "--absolute-git-dir").rstrip(b"\n")))

    def exclude_files(self) -> tuple[Path, ...]:
        """Where the user's own ignore rules for this repository, and for all, are read from; they need not exist."""
        named = [self._says("rev-parse", "--path-format=absolute", "--git-path", "info/exclude")]
        named.append(self._says("config", "--type=path", "--get", "core.excludesFile"))
        if named[1] is None:
            home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 - as git does
            named[1] = f"{home}/git/ignore"
        return tuple(self.folder / one for one in named if one)

    def listed(self, cancelled: Callable[[], bool] | None = None) -> list[str]:
        """Tracked files and untracked ones that no rule hides, below the folder; nested repositories end in /."""
        return self.records("ls-files", "-z", "-co", "--exclude-standard", "--deduplicate", cancelled=cancelled)

    def is_hidden(self) -> bool:
        """Whether the folder itself is ignored by the repository around it; the top of a repository never is."""
        return (
            self._says("rev-parse", "--show-prefix") is not None and self._says("check-ignore", "--", ".") is not None
        )

    def ignored(self, paths: Sequence[str]) -> set[str]:
        """Those of the paths below the folder that git's ignore rules hide; a folder ends in /."""
        fed = b"".join(os.fsencode(path) + b"\0" for path in paths)
        try:
            return set(_records(self.run("check-ignore", "-z", "--stdin", fed=fed)))
        except GitError:
            return set()  # status 1: none of them

    def changed(self) -> list[str]:
        """Files below the folder that differ from the commit, untracked ones included."""
        found = self.records("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--", ".")
        return [record[3:] for record in found]

    def head(self) -> tuple[str | None, str | None]:
        """(branch, full revision); None for a detached head, None for a repository without a commit."""
        return self._says("symbolic-ref", "--short", "-q", "HEAD"), self._says("rev-parse", "-q", "--verify", "HEAD")

    def commits_by_file(self, revision: str = "HEAD", newest: int = 1000) -> dict[str, int]:
        """In how many of the newest commits each path below the folder was touched."""
        counts: dict[str, int] = {}
        for path in self._touched(revision, newest):
            counts[path] = counts.get(path, 0) + 1
        return counts

    def resolve(self, revision: str) -> str:
        """The full name of a commit. Raises GitError when there is none of that name."""
        found = self._says("rev-parse", "-q", "--verify", "--end-of-options", f"{revision}^{{commit}}")
        if found is None:
            raise GitError(f"{self.folder} has no revision {revision!r}; name a branch, tag or commit that it has")
        return found

    def blobs(self, revision: str, cancelled: Callable[[], bool] | None = None) -> Iterator[Blob]:
        """All files of a commit's tree, and the places of its submodules."""
        for record in self.records("ls-tree", "-r", "-z", "-l", "--full-tree", revision, cancelled=cancelled):
            facts, _, path = record.partition("\t")
            mode, kind, oid, size = facts.split()
            if kind == "blob":
                yield Blob(path, oid, int(size), mode == "120000")
            else:
                yield Blob(path, oid, 0, is_submodule=True)

    def _touched(self, revision: str, newest: int) -> Iterable[str]:
        if self._says("rev-parse", "-q", "--verify", revision) is None:
            return []
        found = self.records(
            "log", "-z", "--format=", "--name-only", "--no-renames", "--relative", f"-n{newest}", revision, "--"
        )
        return [path.lstrip("\n") for path in found]

    def _says(self, *arguments: str) -> str | None:
        try:
            return os.fsdecode(self.run(*arguments)).strip() or None
        except GitError:
            return None


class BlobReader:
    """Reads objects of one repository through one `git cat-file --batch`; safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def read(self, oid: str) -> bytes:
        """The object's bytes. Raises OSError when the repository no longer has it."""
        with self._lock:
            self._child = self._child or self._started()
            asked, answers = self._child.stdin, self._child.stdout
            assert asked is not None
            assert answers is not None
            asked.write(oid.encode("ascii") + b"\n")
            asked.flush()
            words = answers.readline().split()
            if len(words) != 3:
                raise FileNotFoundError(f"object {oid} is missing from the repository")
            raw = answers.read(int(words[2]))
            answers.read(1)
        return raw

    def close(self) -> None:
        """End the child and release its pipes."""
        with self._lock:
            child, self._child = self._child, None
        if child is not None:
            child.communicate()

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["git", "-C", str(self._folder), *_QUIET, "cat-file", "--batch"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
        )


def mirror(url: str, into: Path, cancelled: Callable[[], bool]) -> None:
    """Clone all branches and tags of `url` into the bare repository `into`, or bring an earlier clone up to date.

    The clone appears whole or not at all. Raises GitError, LoadCancelled.
    """
    if into.exists():
        _from_afar(Git(into), url, "fetch", "--prune", "--tags", "origin", cancelled=cancelled)
        return
    into.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    unfinished = into.with_name(into.name + ".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        arguments = ("clone", "--mirror", "--quiet", "--", url, str(unfinished))
        _from_afar(Git(into.parent), url, *arguments, cancelled=cancelled)
        unfinished.rename(into)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _from_afar(git: Git, url: str, *arguments: str, cancelled: Callable[[], bool]) -> None:
    """Runs what asks another host. Raises LoadCancelled, GitError with git's first line, which names the reason."""
    try:
        git.run(*arguments, cancelled=cancelled)
    except GitError as fault:
        message = str(fault).removeprefix(f"git {arguments[0]} failed in {git.folder}: ")
        why = (message.splitlines() or [message])[0].removeprefix("fatal: ")
        shown = re.sub(r"^(https?://)[^/@]*@", r"\1", url)  # what stands before the @ may be a password
        hint = f"see whether the daemon's user can read it, without being asked for anything: git ls-remote {shown}"
        raise GitError(f"{shown} cannot be read: {why}; {hint}") from fault


def _records(out: bytes) -> list[str]:
    return [os.fsdecode(record) for record in out.split(b"\0") if record]


def _communicate(
    child: subprocess.Popen[bytes], fed: bytes, cancelled: Callable[[], bool] | None
) -> tuple[bytes, bytes]:
    if cancelled is None:
        return child.communicate(fed)
    while True:
        try:
            return child.communicate(fed, timeout=_POLL_S)
        except subprocess.TimeoutExpired:
            if cancelled():
                child.kill()
                child.communicate()
                raise LoadCancelled("the load was cancelled while git was at work; nothing of it was kept") from None


def _environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in _OF_ANOTHER_REPOSITORY}
    quiet = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
    return {"GIT_SSH_COMMAND": "ssh -oBatchMode=yes", **kept, **quiet}
