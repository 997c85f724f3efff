"""The sources that a user can load: a folder, single files, several roots, a git revision. Opens nothing (`opening.py`).

    lore load .                      one root        src/a.py
    lore load src docs notes.md      several         src/a.py   docs/b.md   home/notes.md
    lore load https://…/x.git#v1.2   a revision      src/a.py   (through a mirror in the data folder)

With several roots the names of files begin with their root's label, the last part of its path.
"""

import errno
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from codex.documents import name_of
from codex.errors import OPEN_FILES, SourceError
from codex.trees.git import Git, available
from codex.trees.ignore import Globs
from codex.trees.port import labelled_name

_URL = re.compile(r"^(?:https?|ssh|git|file)://|^[\w.-]+@[\w.-]+:", re.IGNORECASE)
MOUNTS = Path("/proc/self/mounts")
_FILE_SYSTEMS = """
    proc sysfs devtmpfs devpts cgroup cgroup2 securityfs debugfs tracefs bpf pstore efivarfs configfs mqueue fusectl
    binfmt_misc rpc_pipefs nsfs selinuxfs
"""
MADE_UP = frozenset(_FILE_SYSTEMS.split())  # by the kernel
DEVICES = Path("/dev")  # in containers an ordinary file system in memory


@dataclass(frozen=True)
class LoadSpec:
    """What to load. `sources` are paths or git URLs; a URL may end in #REVISION."""

    sources: tuple[str, ...]
    name: str | None = None
    globs: Globs = field(default_factory=Globs)
    revision: str | None = None  # read this state of a repository instead of the files on disk
    load_secrets: bool = False
    take_name: bool = False  # replace what another source has loaded under the name
    sent: bool = False  # a client has sent the files: the source is where it has them, and is not opened


@dataclass(frozen=True)
class Root:
    """One root, resolved. `label` leads the names of its files; empty when there is no other root."""

    label: str
    path: Path
    files: tuple[str, ...] | None = None  # raw names in `path`, when single files were named
    url: str | None = None
    revision: str | None = None
    named: tuple[str, ...] = ()  # of a folder or files: absolute, with the links that led to them
    sent: str = ""  # the codex whose files a client has sent; `path` is its own, and is not opened


@dataclass(frozen=True)
class CodexSource:
    """Where a codex comes from: the same source is an update, another one under the same name is refused."""

    roots: tuple[Root, ...]

    @property
    def key(self) -> str:
        """One line that names the source; equal for equal sources."""
        return "\n".join(
            f"{root.sent and f'sent:{root.sent}:'}{root.url or root.path}#{root.revision or ''}"
            + "".join(f":{name}" for name in root.files or ())
            for root in self.roots
        )

    @property
    def places(self) -> tuple[str, ...]:
        """What each root is: a folder, single files of one, or a URL without credentials. Paths are absolute.

        A file means itself alone: its folder is not loaded, and a working directory there does not mean the file.
        """
        return tuple(_shown(root.url) if root.url else path for root in self.roots for path in _paths(root))

    @property
    def lasting(self) -> tuple[str, ...]:
        """What to name to load the same again from any working directory; a link is named itself, wherever it leads."""
        return tuple(one for root in self.roots for one in _lasting(root))

    @property
    def is_on_disk(self) -> bool:
        """Whether it is folders and files as they are, no revision."""
        return all(root.url is None and not root.sent for root in self.roots)

    def named(self, globs: Globs) -> frozenset[str]:
        """Safe names, as the codex has them, of files that the user named one by one."""
        files = {name_of(labelled_name(root.label, name)) for root in self.roots for name in root.files or ()}
        return frozenset(files) | {name_of(path) for path in globs.literal()}

    @property
    def title(self) -> str:
        """The source in words for a message."""
        return ", ".join(_title(root) for root in self.roots)

    @property
    def suggested_name(self) -> str:
        """The last part of the (first) path or URL; of a link its own, since it may lead elsewhere later."""
        root = self.roots[0]
        named = root.named[0] if len(root.named) == 1 else ""
        last = named or (root.files[0] if root.files and len(root.files) == 1 else None) or (root.url or root.path.name)
        return re.sub(r"\.git$", "", re.split(r"[/:]", last.rstrip("/"))[-1]) or "root"


def resolve(request: LoadSpec, folder: Path) -> CodexSource:
    """The source that a request names; relative paths are below `folder`. Raises SourceError."""
    if not request.sources:
        raise SourceError("nothing to load was named; name a folder, a file, or a git URL")
    if any("\0" in one for one in (*request.sources, request.revision or "")):
        raise SourceError("what was named holds a NUL character; no folder, URL or revision does")
    if request.sent:
        return CodexSource((Root("", Path(request.sources[0]), sent=request.name or ""),))
    found = [_root(one, request.revision, folder) for one in dict.fromkeys(request.sources)]
    home = Path(os.path.realpath(os.path.expanduser("~")))  # noqa: PTH111 - as in `_root`
    for root in found:
        if home.is_relative_to(root.path) and not (root.url or root.files or request.globs.include):
            raise SourceError(
                f"{root.path} is your home folder, or holds it; name a folder of code, or say with --include what to load"
            )
    roots = _with_files_joined(found)
    if len(roots) == 1:
        return CodexSource((roots[0],))
    return CodexSource(tuple(_labelled(roots)))


def is_url(source: str) -> bool:
    """Whether git fetches it; anything else is a path. The command line uses the same rule (`wire/places.py`)."""
    return _URL.match(source) is not None


def _root(source: str, revision: str | None, folder: Path) -> Root:
    if is_url(source):
        url, _, named = source.partition("#")
        return Root("", Path(), url=url, revision=named or revision)
    home = os.path.expanduser(source)  # noqa: PTH111 - pathlib raises where ~NAME is nobody; this names what is not there
    path = Path(os.path.realpath(folder / home))
    as_given = (path_as_named(folder / home, path),)
    kind = _kind_of(path)
    if system := made_up_by_kernel(path):
        raise SourceError(f"{path} holds no files of yours: the kernel makes it up ({system}); name a folder of code")
    if stat.S_ISREG(kind):
        return Root("", path.parent, files=(path.name,), named=as_given)
    if not stat.S_ISDIR(kind):
        raise SourceError(f"{path} is neither a file nor a folder; name one, or a git URL")
    if revision is not None or (_may_be_gits_own(path) and Git(path).is_bare()):
        return Root("", path, url=str(path), revision=revision)
    if _may_be_gits_own(path) and Git(path).is_gits_own():
        raise SourceError(
            f"{path} is what git keeps for itself, not code; name the working tree it belongs to, "
            "or with --revision a state of its repository"
        )
    return Root("", path, named=as_given)


def _may_be_gits_own(path: Path) -> bool:
    """Cheap to ask before git is: every load and every change on disk comes by here."""
    return available() and (".git" in path.parts or (path / "HEAD").is_file())


def _kind_of(path: Path) -> int:
    """Its mode. Raises SourceError for what is not there, and for a folder that may not be listed or entered."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            os.scandir(f"{path}/.").close()  # the dot is looked up in it
        return mode
    except OSError as error:
        why = "is not there" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        another = "name an existing file or folder, or a git URL"
        what_to_do = f"raise {OPEN_FILES}" if error.errno in (errno.EMFILE, errno.ENFILE) else another
        raise SourceError(f"{path} {why}; {what_to_do}") from error


def _with_files_joined(roots: Sequence[Root]) -> list[Root]:
    """Single files of one folder are one root."""
    labelled_name: dict[Path, list[tuple[str, str]]] = {}
    for root in roots:
        if root.files:
            labelled_name.setdefault(root.path, []).extend(zip(root.files, root.named, strict=True))
    singles = [
        Root("", path, files=tuple(name for name, _ in found), named=tuple(named for _, named in found))
        for path, found in ((path, sorted(files)) for path, files in labelled_name.items())
    ]
    return [root for root in roots if not root.files] + singles


def _labelled(roots: Sequence[Root]) -> list[Root]:
    taken: set[str] = set()
    result = []
    for root in roots:
        base = CodexSource((replace(root, files=None, named=() if root.files else root.named),)).suggested_name
        label, number = base, 2
        while label in taken:
            label, number = f"{base}-{number}", number + 1
        taken.add(label)
        result.append(replace(root, label=label))
    return result


def _lasting(root: Root) -> tuple[str, ...]:
    if root.url is not None and is_url(root.url) and root.revision:
        return (f"{root.url}#{root.revision}",)
    return (root.url,) if root.url else root.named or _paths(root)


def _paths(root: Root) -> tuple[str, ...]:
    return tuple(str(root.path / name) for name in root.files) if root.files else (str(root.path),)


def _title(root: Root) -> str:
    where = _shown(root.url) if root.url else str(root.path)
    if root.files:
        return ", ".join(f"{where}/{name}" for name in root.files)
    return f"{where}#{root.revision}" if root.revision else where


def _shown(url: str) -> str:
    """A URL as it may be printed and logged: a token before the host is a secret."""
    return re.sub(r"(?<=://)[^/@]*@", "", url)


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


def path_as_named(given: Path, path: Path) -> str:
    """Absolute and without `..`; where that would not lead to `path`, `path`: `..` behind a link is another folder."""
    plain = os.path.abspath(given)  # noqa: PTH100 - resolve() would follow links
    return plain if os.path.realpath(plain) == str(path) else str(path)
