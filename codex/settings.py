"""The codex's settings in slices: every default in one place, with its unit and its reason.

A part receives its own slice, never the whole and never the environment.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True)
class WalkSettings:
    """Which files belong to a codex."""

    max_file_bytes: int = MIB  # larger ones are skipped by size, unread: a person's source file is smaller
    max_line_bytes: int = 20_000  # one longer line than this: minified or generated, no help in a prompt
    max_files: int = 500_000  # beyond it a load is refused: most likely a home directory by mistake
    skip_vendored: bool = True  # third-party trees and minified copies inside the project
    skip_lock_files: bool = True  # written by package managers: many tokens, no answers
    hidden: bool = True  # dot-files that git tracks say much (.github, .pre-commit-config.yaml)


@dataclass(frozen=True)
class SecretSettings:
    """What is left out because it would put a secret into a prompt."""

    load_secret_names: bool = False  # .env, keys, .ssh; a file that was named is always loaded
    load_secret_contents: bool = False  # files in which a private key or token was found


@dataclass(frozen=True)
class IngestSettings:
    """How a load uses the machine."""

    readers: int = 4  # threads that read and hash; they wait for the disk, and both release the GIL
    batch_bytes: int = 8 * MIB  # read and not yet stored: bounds the memory of a load
    batch_files: int = 256
    zlib_level: int = 3  # a third of source text; higher levels cost more time than they save room


@dataclass(frozen=True)
class AmendmentSettings:
    """How changes are appended before a rebase. Source: the cache protocol's two numbers."""

    whole_file_tokens: int = 600  # a changed file above it is amended by its changed definitions
    rebase_share: float = 0.10  # of the codex's tokens: from there on a new generation pays


@dataclass(frozen=True)
class WatchSettings:
    """How the watcher follows the disk. Seconds."""

    debounce_s: float = 0.3  # an editor's save is several events within milliseconds
    longest_wait_s: float = 2.0  # a stream of writes is reported at least this often
    longest_hold_s: float = 60.0  # git's index.lock may be left behind by a git that was killed
    poll_s: float = 10.0  # when inotify has no watches left
    reconcile_s: float = 600.0  # events can be lost silently: compare with the disk this often


@dataclass(frozen=True)
class RemoteArchive:
    """An archive on object storage. `options` are LanceDB's storage options, keys among them; `holder` names who writes."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    writes: bool = True
    holder: str = ""
    lease_s: float = 600.0  # since a write, in which nobody else writes: longer than anybody pauses between two edits
    timeout_s: float = 10.0  # of one request


@dataclass(frozen=True)
class LibrarySettings:
    """All slices of the ingest side."""

    walk: WalkSettings = field(default_factory=WalkSettings)
    secrets: SecretSettings = field(default_factory=SecretSettings)
    ingest: IngestSettings = field(default_factory=IngestSettings)
    amendments: AmendmentSettings = field(default_factory=AmendmentSettings)
    watch: WatchSettings = field(default_factory=WatchSettings)
