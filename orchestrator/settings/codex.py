"""Settings of the codex: which files belong to one, and how it follows them. Defaults are the codex's own."""

from pydantic import Field

from codex.settings import AmendmentSettings, IngestSettings, SecretSettings, WalkSettings, WatchSettings
from orchestrator.settings.slices import Slice, unit
from orchestrator.settings.units import Bytes, Seconds

GIB = 1024**3


class CodexTable(Slice):
    """Which files belong to a codex, and how it follows them."""

    max_file: Bytes = Field(
        WalkSettings.max_file_bytes,
        ge=1024,
        le=GIB,
        description="larger files are skipped, unread",
        json_schema_extra=unit("bytes"),
    )
    max_files: int = Field(
        WalkSettings.max_files, ge=1, description="a load of more files is refused", json_schema_extra=unit("files")
    )
    skip_vendored: bool = Field(WalkSettings.skip_vendored, description="skip third-party trees and minified copies")
    skip_lock_files: bool = Field(WalkSettings.skip_lock_files, description="skip files written by package managers")
    hidden: bool = Field(WalkSettings.hidden, description="take dot-files that git tracks")
    secrets: bool = Field(
        SecretSettings.load_secret_names, description="load .env, keys and files in which a key was found"
    )
    watch: bool = Field(True, description="follow changes on disk, unless a load says otherwise")
    debounce: Seconds = Field(
        WatchSettings.debounce_s,
        ge=0.01,
        le=60,
        description="changes are taken in when nothing has changed for this long",
        json_schema_extra=unit("s"),
    )
    longest_wait: Seconds = Field(
        WatchSettings.longest_wait_s,
        ge=0.1,
        le=600,
        description="and at the latest this long after the first",
        json_schema_extra=unit("s"),
    )
    longest_hold: Seconds = Field(
        WatchSettings.longest_hold_s,
        ge=1,
        le=3600,
        description="how long a git that is at work is waited for",
        json_schema_extra=unit("s"),
    )
    poll: Seconds = Field(
        WatchSettings.poll_s,
        ge=0.5,
        le=3600,
        description="time between comparisons where the kernel gives no watches, or the folder is gone",
        json_schema_extra=unit("s"),
    )
    reconcile: Seconds = Field(
        WatchSettings.reconcile_s,
        ge=1,
        le=86_400,
        description="time between comparisons of everything, in case a change went unnoticed",
        json_schema_extra=unit("s"),
    )
    whole_file: int = Field(
        AmendmentSettings.whole_file_tokens,
        ge=1,
        description="a larger file that changed is told by what changed in it",
        json_schema_extra=unit("tokens"),
    )
    rebase_share: float = Field(
        AmendmentSettings.rebase_share,
        gt=0,
        le=1,
        description="share of a codex's tokens that changes may reach before it gets a new generation",
    )
    readers: int = Field(IngestSettings.readers, ge=1, le=64, description="threads that read and hash files")
