"""Which files belong to a codex, decided from names and sizes alone; no file's text is read here.

The decision for one file, first match wins:
  1 excluded       an --exclude glob matches
  2 not included   there are --include globs and none matches
  3 named          the user named this very file: loaded, without the rules below
  4 version control's own folders
  5 secret names   unless the settings allow them
  6 `.loreignore`  excludes or includes (a `!` rule also overrules 7)
  7 heuristics     hidden files, vendored trees, lock files, minified copies, formats that are never text
  8 loaded, if it is not too large

Globs are written as in a .gitignore. Rules of `.gitignore` itself are git's business (`codex.trees.walk`).
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

from dulwich.ignore import IgnoreFilter, Pattern, read_ignore_patterns
from dulwich.wildmatch import MalformedPattern

from codex.errors import SourceError
from codex.settings import SecretSettings, WalkSettings

_STAR = b"[^/]*"  # as dulwich writes one
LORE_IGNORE = ".loreignore"
GIT_IGNORE = ".gitignore"
RulesReader = Callable[[str], bytes | None]
"""Bytes of the ignore file at a raw relative path, None when there is none."""


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


_VERSION_CONTROL = frozenset({".git", ".hg", ".svn", ".bzr", ".jj", "CVS", "_darcs"})
_VENDORED_FOLDERS = _names("""
    node_modules bower_components jspm_packages vendor vendored third_party thirdparty 3rdparty .venv venv virtualenv
    site-packages __pycache__ .tox .nox .eggs .mypy_cache .ruff_cache .pytest_cache .hypothesis .gradle .terraform
    .next .nuxt .yarn .pnpm-store .cargo .bundle Pods Carthage .dart_tool .cache .ipynb_checkpoints
""")
_LOCK_FILES = _names("""
    package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock bun.lockb deno.lock poetry.lock
    Pipfile.lock uv.lock pdm.lock pixi.lock conda-lock.yml Cargo.lock composer.lock Gemfile.lock go.sum go.work.sum
    flake.lock mix.lock rebar.lock pubspec.lock Podfile.lock Package.resolved packages.lock.json gradle.lockfile
    buildscript-gradle.lockfile MODULE.bazel.lock .terraform.lock.hcl cabal.project.freeze stack.yaml.lock Chart.lock
    requirements.lock requirements-dev.lock
""")
_MINIFIED = re.compile(
    r"([.-]min\.(js|mjs|cjs|css|html))$|\.(bundle|chunk)\.(js|css)$|\.(js|mjs|cjs|css)\.map$", re.IGNORECASE
)
_NEVER_TEXT = _names("""
    png jpg jpeg gif bmp tif tiff ico icns webp avif heic psd xcf mp3 mp4 m4a m4v avi mov mkv webm ogg oga ogv flac
    wav aac zip gz tgz bz2 xz zst lz4 7z rar tar jar war whl egg deb rpm so o a dll dylib exe bin class pyc pyo pyd
    wasm elc beam pdf doc docx xls xlsx ppt pptx odt ods odp epub ttf otf woff woff2 eot db sqlite sqlite3 parquet
    arrow feather npy npz pt pth onnx gguf safetensors h5 hdf5 pkl pickle mo iso img dmg
""")
_SECRET_FOLDERS = frozenset({".ssh", ".gnupg", ".aws", ".azure", ".kube", ".password-store"})
_SECRET_NAMES = _names("""
    id_rsa id_dsa id_ecdsa id_ecdsa_sk id_ed25519 id_ed25519_sk ssh_host_rsa_key ssh_host_ecdsa_key
    ssh_host_ed25519_key .netrc _netrc .pgpass .my.cnf .htpasswd .pypirc .dockercfg .git-credentials .vault-token
    .s3cfg .boto .env .envrc credentials.tfrc.json
""")
_SECRET_ENDINGS = (".pem", ".key", ".p8", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk", ".env")
_EXAMPLES = (".example", ".sample", ".template", ".dist", ".defaults")


class SkipReason(StrEnum):
    """Why a file is not in the codex. The values are what a user reads."""

    EXCLUDED = "excluded"
    NOT_INCLUDED = "not included"
    IGNORED = "ignored"
    VERSION_CONTROL = "version control"
    SECRET_NAME = "secret by name"  # noqa: S105 - words for a person
    SECRET_CONTENT = "secret found in it"  # noqa: S105
    VENDORED = "vendored"
    LOCK_FILE = "lock file"
    MINIFIED = "minified"
    BINARY = "binary"
    HIDDEN = "hidden"
    TOO_LARGE = "too large"
    LINK = "symbolic link"
    SPECIAL = "not a plain file"
    UNREADABLE = "unreadable"
    VANISHED = "vanished"
    WORKTREE = "linked worktree"
    SUBMODULE = "submodule without files"  # not checked out, or a revision is read, which holds only its name


@dataclass(frozen=True)
class Globs:
    """Patterns that a user gave for one load."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def literal(self) -> frozenset[str]:
        """Paths that --include names as they are, without a wildcard."""
        return frozenset(glob.lstrip("/") for glob in self.include if not set(glob) & set("*?[!\\"))


class IgnoreRules:
    """Nested ignore files of one name below one root, decided as git does.

    From the top down, the last matching pattern of the deepest file decides about each folder; what lies in an ignored
    folder is ignored and cannot be taken back. dulwich matches the patterns; its own decision about a folder speaks of
    the folder's content (`a/*` ignores `a/`), which is not what a walk asks.
    """

    def __init__(self, file_name: str, read: RulesReader) -> None:
        self._file_name = file_name
        self._read = read
        self._patterns: dict[str, list[Pattern]] = {}
        self._ruled: dict[str, tuple[str, ...]] = {}
        self._folders: dict[str, bool | None] = {"": None}

    def verdict(self, path: str, *, is_folder: bool = False) -> bool | None:
        """True: ignored. False: a `!` rule takes it. None: no rule speaks of it. `path` is raw and relative."""
        if not is_folder:
            return self._decide(path, is_folder=False)
        if path not in self._folders:
            self._folders[path] = self._decide(path, is_folder=True)
        return self._folders[path]

    def _decide(self, path: str, *, is_folder: bool) -> bool | None:
        above = _parent(path)
        if self.verdict(above, is_folder=True):
            return True
        for folder in self._with_rules(above):
            name = os.fsencode(path[len(folder) + 1 :] if folder else path)
            for pattern in reversed(self._patterns_of(folder)):
                if pattern.matches(name, is_folder):
                    return bool(pattern.is_exclude)
        return None

    def _with_rules(self, folder: str) -> tuple[str, ...]:
        """Of a folder and those above it, upwards, those that have patterns: each file asks, and most folders have none."""
        if folder not in self._ruled:
            above = self._with_rules(_parent(folder)) if folder else ()
            self._ruled[folder] = (folder, *above) if self._patterns_of(folder) else above
        return self._ruled[folder]

    def _patterns_of(self, folder: str) -> list[Pattern]:
        if folder not in self._patterns:
            raw = self._read(f"{folder}/{self._file_name}" if folder else self._file_name)
            found = IgnoreFilter(read_ignore_patterns((raw or b"").split(b"\n"))).patterns
            self._patterns[folder] = [_bounded(one) for one in found]
        return self._patterns[folder]


class Selection:
    """The decision above for one load. `named` are raw relative paths that the user named one by one.

    Raises SourceError for a glob that cannot be read.
    """

    def __init__(
        self,
        walk: WalkSettings,
        secrets: SecretSettings,
        globs: Globs = Globs(),
        named: frozenset[str] = frozenset(),
    ) -> None:
        self._walk = walk
        self._secrets = secrets
        self._include = _rules_of(globs.include)
        self._exclude = _rules_of(globs.exclude)
        self._named = named | globs.literal()

    def verdict(self, path: str, size: int, rules: IgnoreRules | None) -> SkipReason | None:
        """None when the file is taken. `path` is raw and relative, `size` in bytes."""
        too_large = SkipReason.TOO_LARGE if size > self._walk.max_file_bytes else None
        return self._by_globs(path) or self._by_name(path, rules) or too_large

    def enters(self, path: str, rules: IgnoreRules | None) -> bool:
        """Whether a walk or a watch has any business in this folder."""
        name = PurePosixPath(path).name
        if name in _VERSION_CONTROL:
            return False
        if any(named.startswith(path + "/") for named in self._named):
            return True
        if self._exclude is not None and self._exclude.verdict(path, is_folder=True):
            return False
        ruled = None if rules is None else rules.verdict(path, is_folder=True)
        if ruled is not None:
            return not ruled
        return not (self._walk.skip_vendored and _is_vendored(name)) and (self._walk.hidden or not _is_hidden(name))

    def _by_globs(self, path: str) -> SkipReason | None:
        if self._exclude is not None and self._exclude.verdict(path):
            return SkipReason.EXCLUDED
        if self._include is not None and not self._include.verdict(path) and path not in self._named:
            return SkipReason.NOT_INCLUDED
        return None

    def _by_name(self, path: str, rules: IgnoreRules | None) -> SkipReason | None:
        if path in self._named:
            return None
        if not _VERSION_CONTROL.isdisjoint(path.split("/")[:-1]):
            return SkipReason.VERSION_CONTROL
        if not self._secrets.load_secret_names and is_secret(path):
            return SkipReason.SECRET_NAME
        ruled = None if rules is None else rules.verdict(path)
        if ruled is not None:
            return SkipReason.IGNORED if ruled else None
        return self._by_heuristics(path)

    def _by_heuristics(self, path: str) -> SkipReason | None:
        *folders, name = path.split("/")
        if not self._walk.hidden and any(map(_is_hidden, [*folders, name])):
            return SkipReason.HIDDEN
        if self._walk.skip_vendored and any(map(_is_vendored, folders)):
            return SkipReason.VENDORED
        if self._walk.skip_lock_files and name in _LOCK_FILES:
            return SkipReason.LOCK_FILE
        if self._walk.skip_vendored and _MINIFIED.search(name):
            return SkipReason.MINIFIED
        never_text = "." in name and name.rpartition(".")[2].lower() in _NEVER_TEXT  # it need not be read to know
        return SkipReason.BINARY if never_text else None


def _rules_of(globs: Sequence[str]) -> IgnoreRules | None:
    for glob in globs:
        try:
            Pattern(os.fsencode(glob))
        except MalformedPattern as error:
            raise SourceError(f"{glob!r} is no pattern: a [ needs its ]; write \\[ for the sign itself") from error
    text = b"\n".join(map(os.fsencode, globs))
    return IgnoreRules("", {"": text}.get) if globs else None


def _bounded(pattern: Pattern) -> Pattern:
    """The same pattern, whose stars do not try what cannot help: seven in a name of 60 signs took eight seconds.

    What is between two stars of a name is matched where it is found first; the second star takes whatever follows.
    """
    first, *behind = pattern._name_re.pattern.split(_STAR)
    if len(behind) > 1:
        steps = (b"(?>" + _STAR + b"?" + one + b")" if _is_of_one_name(one) else _STAR + one for one in behind[:-1])
        pattern._name_re = re.compile(first + b"".join(steps) + _STAR + behind[-1])
    return pattern


def _is_of_one_name(expression: bytes) -> bool:
    """Whether it is a row of single signs, without a folder's end and without a group."""
    bare = re.sub(rb"(?s)\\.", b"", expression).replace(b"[^/", b"[")
    return b"/" not in bare and b"(" not in bare


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def _is_vendored(folder: str) -> bool:
    return folder in _VENDORED_FOLDERS or folder.endswith((".egg-info", ".dist-info"))


def is_secret(path: str) -> bool:
    """Whether a file of this path is there to hold a secret. Examples and public halves are not."""
    *folders, name = path.split("/")
    if not _SECRET_FOLDERS.isdisjoint(folders):
        return True
    if name.endswith(_EXAMPLES):
        return False
    return name in _SECRET_NAMES or name.startswith(".env.") or name.lower().endswith(_SECRET_ENDINGS)
