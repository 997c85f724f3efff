"""Replies of the routes: codices, conversations, search, vectors, and the small ones: done, dropped, renamed, ready."""

from typing import Literal

from pydantic import Field

from orchestrator.wire.answers import IdentityState, RefusalReport
from orchestrator.wire.base import ReplyShape, SparseReply, empty
from orchestrator.wire.places import ChangePhase, LoadPhase, MeasurePhase

DataName = Literal["traces", "sessions", "cache"]


class Fault(RefusalReport):
    """A refusal as an error."""

    type: str = Field(description="OpenAI's kind of it")


class ErrorReply(ReplyShape):
    """The body of every error, and the last event of a stream that failed."""

    error: Fault = Field(description="what went wrong")


class Cancelled(ReplyShape):
    """What was stopped."""

    cancelled: str = Field(description="the codex")
    what: Literal["load", "floor"] = Field(description="its load, or the computing of the floor that follows a load")


class ImportedFloor(ReplyShape):
    """A prefix that was computed elsewhere and is on disk here."""

    codex: str = Field(description="the name that the codex must have here")
    state: str = Field(description="of its code then: branch, revision, changed files; empty outside version control")
    tier: str = Field(description="its coverage then")
    identity: str = Field(description="the name of the identity at its beginning")
    tokens: int = Field(description="that need no computing")
    bytes: int = Field(description="that it takes on disk")
    segments: int = Field(description="files that hold it")
    notices: tuple[str, ...] = Field(description="why a codex that is loaded may not find it, or not all of it")


class Dropped(ReplyShape):
    """What was forgotten."""

    dropped: str = Field(description="its name")
    memories: int | None = Field(
        None, exclude_if=empty, description="with `?memories=1`: how many of the asking user's went with it"
    )


class KeptData(ReplyShape):
    """What is kept of one kind."""

    name: DataName = Field(description="of the kind")
    what: str = Field(description="of it, in words")
    count: int = Field(description="how many")
    bytes: int = Field(description="that they take on disk, about")


class KeptReply(ReplyShape):
    """What can be purged: the asking user's own, and with `admin` the cache of all."""

    kept: tuple[KeptData, ...] = Field(description="each kind")


class Purged(ReplyShape):
    """What was deleted for good."""

    purged: KeptData = Field(description="as it was")


class Renamed(ReplyShape):
    """A conversation under its new name."""

    renamed: str = Field(description="the name before")
    name: str = Field(description="the name now")


class Health(ReplyShape):
    """That an answer can be given."""

    status: Literal["ok"] = Field(description="llama-server's word")


class Alive(ReplyShape):
    """The daemon runs."""

    ok: bool = Field(description="true")


class Ready(ReplyShape):
    """Whether an answer can be given."""

    ready: bool = Field(description="true with status 200, false with 503")
    detail: str = Field(description="what it waits for, or what failed")


class SearchHit(ReplyShape):
    """A passage of the archive."""

    path: str = Field(description="the file")
    start: int = Field(description="first line, from 1")
    end: int = Field(description="last line")
    symbol: str = Field(description="the definition that holds it; may be empty")
    score: float = Field(description="by which hits are ordered")
    scores: dict[str, float] = Field(description="the parts of the score, by kind")
    snippet: str = Field(description="its most relevant lines")
    line: int = Field(description="on which the snippet begins")
    exact: bool = Field(False, description="it holds what was quoted as it is; others were found by its words")
    near: str = Field("", description="of what `graph` adds: from which hit it was reached, and by what")
    branch: str | None = Field(None, description="git's, of the codex's folder, or the revision that was asked for")


class SearchReply(ReplyShape):
    """Places that match."""

    hits: tuple[SearchHit, ...] = Field(description="best first")
    notices: tuple[str, ...] = Field(description="what the search may not have seen")
    absent: bool = Field(False, description="nothing holds what was quoted: the hits hold words of it")


class FileLines(ReplyShape):
    """Lines of a file of a codex."""

    path: str = Field(description="the file")
    start: int = Field(description="first line, from 1; 0: the file is empty")
    end: int = Field(description="last line")
    total: int = Field(description="lines that the file has")
    text: str = Field(description="the lines, each with its end")
    notices: tuple[str, ...] = Field((), description="which codex was chosen, where several could be meant")


class SymbolRow(ReplyShape):
    """A definition."""

    name: str = Field(description="its own")
    qualified: str = Field(description="with the names of the definitions around it; of a module its dotted name")
    kind: str = Field(description="class, function, method, variable, field, section, ...; module: code outside of all")
    path: str = Field(description="the file")
    line: int = Field(description="of its name, from 1")
    end: int = Field(description="its last line")
    signature: str = Field("", description="its head on one line")
    doc: str = Field("", description="the first line of what documents it")
    uses: tuple[int, ...] = Field((), description="of callers and callees: the lines of the calls, in the calling file")
    certain: bool = Field(True, description="false: only the name says so, because the type of a receiver is not known")
    which: str = Field("", description="where the name may mean several definitions: the one that this is about")


class SymbolsReply(ReplyShape):
    """Definitions, those that are certain first."""

    symbols: tuple[SymbolRow, ...] = Field(description="what was asked for")
    meant: tuple[SymbolRow, ...] = Field((), description="the definitions that the name may mean")
    near: tuple[str, ...] = Field((), description="names like it, where nothing has the name")
    notices: tuple[str, ...] = Field((), description="what was not looked at")


class EmbeddingRow(ReplyShape):
    """One text's vector."""

    object: Literal["embedding"] = Field(description="OpenAI's word")
    index: int = Field(description="of the text, from 0")
    embedding: list[float] | str = Field(description="length 1; base64 where asked for")


class EmbeddingUsage(ReplyShape):
    """Tokens of all texts."""

    prompt_tokens: int = Field(description="read")
    total_tokens: int = Field(description="the same")


class EmbeddingCut(ReplyShape):
    """What did not fit."""

    cut: tuple[int, ...] = Field(description="tokens of each text that were not read")


class EmbeddingsReply(ReplyShape):
    """OpenAI's list of vectors."""

    object: Literal["list"] = Field(description="OpenAI's word")
    data: tuple[EmbeddingRow, ...] = Field(description="one a text, in order")
    model: str = Field(description="the model that embeds")
    usage: EmbeddingUsage = Field(description="in tokens")
    lore: EmbeddingCut = Field(description="what the protocol has no words for")


class SessionHead(ReplyShape):
    """A conversation, without what was said in it."""

    name: str = Field(description="its name")
    codex: str | None = Field(description="that it is about")
    title: str = Field(description="the beginning of its first question")
    created: float = Field(description="seconds since 1970")
    used: float = Field(description="seconds since 1970")
    variant: str = Field(
        "", exclude_if=empty, description="of the rules of relevance, that it is pinned to; left out: none"
    )


class SessionRow(SessionHead):
    """A conversation."""

    turns: int = Field(description="messages in it")


class SessionRows(ReplyShape):
    """Your conversations."""

    sessions: tuple[SessionRow, ...] = Field(description="the last used first")


class SessionHit(ReplyShape):
    """A message that holds words of the query."""

    session: str = Field(description="its conversation")
    codex: str | None = Field(description="that it is about")
    title: str = Field(description="the beginning of the conversation's first question")
    role: str = Field(description="user, assistant or tool")
    number: int = Field(description="which of its messages, from 0")
    created: float = Field(description="seconds since 1970")
    snippet: str = Field(description="some of its words, around those that were found")


class SessionHits(ReplyShape):
    """What was said."""

    hits: tuple[SessionHit, ...] = Field(description="best first")


class SessionTurn(SparseReply):
    """A message of a conversation."""

    role: str = Field(description="user, assistant or tool")
    text: str = Field(description="what was said")
    created: float = Field(0.0, description="seconds since 1970")
    evidence: str = Field("", description="passages that were sent with a question, as JSON")


class SessionGist(ReplyShape):
    """What stands in prompts for questions that no longer fit, with their answers."""

    first: int = Field(description="the first of them, from 1")
    last: int = Field(description="the last")
    text: str = Field(description="what they were about, in short")


class SessionExport(SessionHead):
    """A conversation with its turns."""

    turns: tuple[SessionTurn, ...] = Field(description="in their order, all of them")
    gists: tuple[SessionGist, ...] = Field((), description="in their order")


class SessionReply(ReplyShape):
    """One conversation."""

    session: SessionExport = Field(description="with its turns")


class CoverageTokens(ReplyShape):
    """Tokens of each coverage; none where one was not made."""

    full: int | None = Field(description="all files whole")
    skeleton: int | None = Field(description="skeletons of all files, none of them whole")
    map: int | None = Field(description="what a map may take")


class FloorProgress(ReplyShape):
    """The floor being computed."""

    done: int = Field(description="tokens computed")
    total: int = Field(description="tokens in all")
    left_s: float | None = Field(description="seconds for the rest, if known")


class EmbeddingProgress(ReplyShape):
    """How far the vectors of a codex are, for the search by meaning."""

    texts: int = Field(description="distinct ones in the archive")
    embedded: int = Field(description="of these: have a vector")
    refused: int = Field(description="of these: cannot be embedded")
    fault: str = Field(description="why it does not go on")


class LoadReport(ReplyShape):
    """How far a load is, or how it ended."""

    codex: str = Field(description="what is loaded")
    number: int = Field(description="of this load, of all since the daemon's start")
    phase: LoadPhase | None = Field(description="what it does; none before its first, rules are those of secrets")
    done: int = Field(description="in the phase's unit")
    total: int = Field(description="0: not known")
    rate: float = Field(description="a second")
    eta_s: float | None = Field(description="seconds left in this phase, if known")
    ended: bool = Field(description="it runs no more")
    failed: str = Field(description="why it ended without a loaded codex; else empty")


class CodexReport(SparseReply):
    """The state of a codex. One that is not built yet has only its name, root, generation and freshness."""

    name: str = Field(description="its name")
    root: str = Field(description="the first folder, file or URL")
    roots: tuple[str, ...] = Field((), description="all of them")
    generation: int | None = Field(description="none: no load has completed; 0: a dry run")
    generation_reason: str = Field("", description="why the daemon made it without a load")
    branch: str | None = Field(None, description="git's, as seen last")
    revision: str | None = Field(None, description="git's, as seen last")
    state: str = Field("", description="the same in words, with files that git saw changed")
    files: int = Field(0, description="in the codex")
    skipped: dict[str, int] = Field({}, description="files and folders left out, by reason")
    notices: tuple[str, ...] = Field((), description="what a reader should know of these files")
    tokens: CoverageTokens | None = Field(None, description="of each coverage, before its amendments")
    estimated: tuple[str, ...] = Field((), description="coverages whose tokens are no exact count")
    tier: str | None = Field(description="coverage in the cached prefix: full, skeleton+hot, map or none")
    tier_tokens: int = Field(0, description="of the codex in the cached prefix, amendments included")
    floor_tokens: int = Field(0, description="of the whole prefix: identity, codex and amendments; 0: not built yet")
    reason: str = Field("", description="why this coverage, with the numbers")
    hint: str = Field("", description="what would give a larger one")
    kv_bytes: int = Field(0, description="of the prefix")
    disk_bytes: int = Field(0, description="of the files")
    indexed_chunks: int = Field(0, description="in the archive")
    amendments: int = Field(0, description="changed files reported after the generation")
    changed_files: tuple[str, ...] = Field((), description="files of these changes")
    removed_files: tuple[str, ...] = Field((), description="those of them that are gone")
    amended_tokens: int = Field(0, description="of these changes")
    fresh: str = Field("", description="how current it is against the disk, in a few words")
    fresh_notice: str = Field("", description="what follows from that")
    unseen: str = Field("", description="what a search may miss now")
    identity: IdentityState | None = Field(None, description="the identity that answers unless another is named")
    prefill: FloorProgress | None = Field(None, description="none where nothing is computed")
    load: LoadReport | None = Field(None, description="the load that runs; none where none does")
    embedding: EmbeddingProgress | None = Field(None, description="none without a model that embeds")


class CodexReply(ReplyShape):
    """One codex."""

    codex: CodexReport = Field(description="its state")


class OfferReply(ReplyShape):
    """What came of an offer."""

    codex: str = Field(description="the codex's whole name")
    wanted: tuple[str, ...] = Field(description="digests of the files to send")


class FilesTaken(ReplyShape):
    """Files that were sent."""

    taken: int = Field(description="how many")


class MapLine(ReplyShape):
    """A file in a line."""

    path: str = Field(description="its path in the codex")
    line: str = Field(description="what it is and what it defines")


class CodexMap(ReplyShape):
    """The files of a codex, a line each."""

    files: tuple[MapLine, ...] = Field(description="in the order of their paths")
    left_out: int = Field(description="files without a line: those that tell least, where there is no room for all")


class FileTokens(ReplyShape):
    """What a file, or a change of one, takes of a codex's prefix."""

    path: str = Field(description="its path in the codex")
    level: str = Field(
        description="how much of it is there: full, skeleton, line; change: a change reported behind them"
    )
    tokens: int = Field(description="as it is written there, with its heading")


class CodexCosts(ReplyShape):
    """What the files of a codex take of its prefix, the dearest first."""

    codex: str = Field(description="its name")
    tier: str = Field(description="its coverage")
    tokens: int = Field(description="of the codex in the prefix, changes included")
    kv_bytes_per_token: float = Field(description="of the loaded model")
    files: tuple[FileTokens, ...] = Field(description="those that cost most first")
    left_out: int = Field(description="files without a row, because they cost least")
    outside: int = Field(description="files of the codex that nothing of is in the prefix")


class CodicesReply(ReplyShape):
    """All codices."""

    codices: tuple[CodexReport, ...] = Field(description="by name")


class ProgressEvent(ReplyShape):
    """How far a load, a change of the model, or a measurement of its context is."""

    event: Literal["progress"] = Field(description="what kind of event")
    phase: LoadPhase | ChangePhase | MeasurePhase = Field(
        description="of a load, or else of a change of the model; rules are those of secrets, raising is building codices; "
        "measure: in prompt tokens"
    )
    done: int = Field(description="in the phase's unit")
    total: int = Field(description="0: not known")
    rate: float = Field(description="a second")
    eta_s: float | None = Field(description="seconds left in this phase, if known")
    name: str = Field("", exclude_if=empty, description="of a load: the codex; else left out")


class LoadedEvent(ReplyShape):
    """The last event of a load."""

    event: Literal["loaded"] = Field(description="what kind of event")
    codex: CodexReport = Field(description="its state")
