"""Replies about codices: how one stands, and a load's events."""

from typing import Literal

from pydantic import Field

from orchestrator.wire.lore import IdentityState
from orchestrator.wire.shapes import Shape


class TierTokens(Shape):
    """Tokens of each tier; none where one was not made."""

    full: int | None = Field(description="all files whole")
    skeleton: int | None = Field(description="signatures, without hot bodies")
    map: int | None = Field(description="a ranked map")


class FloorProgress(Shape):
    """The floor being computed."""

    done: int = Field(description="tokens that stand")
    total: int = Field(description="tokens in all")
    left_s: float | None = Field(description="seconds for the rest, if known")


class EmbeddedTexts(Shape):
    """How far the vectors of a codex are, for the search by meaning."""

    texts: int = Field(description="distinct ones in the archive")
    embedded: int = Field(description="of these: have a vector")
    refused: int = Field(description="of these: cannot be embedded")
    fault: str = Field(description="why it does not go on")


class CodexReport(Shape):
    """A codex as it stands. One that is not raised yet has only its name, root, generation and how fresh it is."""

    name: str = Field(description="its name")
    root: str = Field(description="the first folder, file or URL")
    roots: tuple[str, ...] = Field((), description="all of them")
    generation: int | None = Field(description="none: never loaded to its end; 0: a dry run")
    generation_reason: str = Field("", description="why the daemon took it in by itself")
    branch: str | None = Field(None, description="git's, as seen last")
    revision: str | None = Field(None, description="git's, as seen last")
    state: str = Field("", description="the same in words, with files that git saw changed")
    files: int = Field(0, description="taken")
    skipped: dict[str, int] = Field({}, description="files and folders left out, by reason")
    notices: tuple[str, ...] = Field((), description="what should be known of what was taken")
    tokens: TierTokens | None = Field(None, description="of each tier")
    estimated: tuple[str, ...] = Field((), description="tiers whose tokens are no exact count")
    tier: str | None = Field(description="what stands in the cached prefix: full, skeleton+hot, map or none")
    tier_tokens: int = Field(0, description="of what stands there")
    reason: str = Field("", description="why this tier, with the numbers")
    hint: str = Field("", description="what would give a larger one")
    kv_bytes: int = Field(0, description="of the prefix")
    disk_bytes: int = Field(0, description="of the files")
    indexed_chunks: int = Field(0, description="in the archive")
    amendments: int = Field(0, description="changes told behind the generation")
    changed_files: tuple[str, ...] = Field((), description="files of these changes")
    removed_files: tuple[str, ...] = Field((), description="those of them that are gone")
    amended_tokens: int = Field(0, description="of these changes")
    fresh: str = Field("", description="how true it is to the disk, in a word or a few")
    fresh_notice: str = Field("", description="what should be known of that")
    unseen: str = Field("", description="what a search may not see now")
    identity: IdentityState | None = Field(None, description="the persona that answers unless another is named")
    prefill: FloorProgress | None = Field(None, description="none where nothing is computed")
    embedding: EmbeddedTexts | None = Field(None, description="none without a model that embeds")


class CodexReply(Shape):
    """One codex."""

    codex: CodexReport = Field(description="as it stands")


class CodicesReply(Shape):
    """All codices."""

    codices: tuple[CodexReport, ...] = Field(description="by name")


class ProgressEvent(Shape):
    """How far a load, or a change of the model, is."""

    event: Literal["progress"] = Field(description="what kind of event")
    phase: str = Field(
        description="of a load: model, walk, read, index, count, outline, map, prefill; "
        "of a change: checking, stopping, loading, raising"
    )
    done: int = Field(description="in the phase's unit")
    total: int = Field(description="0: not known")
    rate: float = Field(description="a second")
    eta_s: float | None = Field(description="seconds left in this phase, if known")
    name: str = Field("", description="of a load: the codex")


class LoadedEvent(Shape):
    """The last event of a load."""

    event: Literal["loaded"] = Field(description="what kind of event")
    codex: CodexReport = Field(description="as it stands")
