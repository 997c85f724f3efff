"""What each command prints with --json, by its shape: most print a route's reply, some what no route gives.

A new command with --json gets a line in PRINTED; a test fails without it. Keys are only ever added.
"""

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any, Literal

from pydantic import Field, TypeAdapter

from orchestrator.wire import answers, identities, memories, models, replies, status, traces
from orchestrator.wire.base import ReplyShape
from orchestrator.wire.picture import DaemonAway, Picture

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DaemonWord = Literal["changed", "same", "none", "later", "kept"]
DAEMON = (
    "what the running daemon did: changed, the same before, none runs, later with its restart, kept for want of admin"
)


class WholeAnswer(ReplyShape):
    """A question's answer."""

    answer: str = Field(description="the text")
    finish_reason: str | None = Field(description="why it ended: stop, length, tool_calls, content_filter")
    lore: answers.Lore = Field(description="how it was made")
    usage: answers.Usage = Field(description="tokens, as OpenAI counts them")


class SettingRow(ReplyShape):
    """A setting in force."""

    key: str = Field(description="its name, as in TOML")
    value: Any = Field(description="in force")
    default: Any = Field(description="without any setting")
    origin: str = Field(description="the file, variable or option that set it; empty: the default")
    unit: str = Field(description="of the value; empty where it has none")
    range: str = Field(description="what it may be")
    help: str = Field(description="what it is for")


class SettingsShown(ReplyShape):
    """All settings in force."""

    settings: tuple[SettingRow, ...] = Field(description="each")


class SettingFault(ReplyShape):
    """A setting that cannot be used."""

    key: str = Field(description="its name")
    origin: str = Field(description="the file, variable or option that set it; empty: the default")
    message: str = Field(description="what is wrong")
    hint: str = Field(description="what to do")


class SettingsChecked(ReplyShape):
    """Whether the settings can be used."""

    ok: bool = Field(description="whether a daemon would start with them")
    files: tuple[str, ...] = Field(description="that were read")
    set: dict[str, str] = Field(description="keys that are set, and by what")
    faults: tuple[SettingFault, ...] = Field(description="what cannot be used")


class SettingsFile(ReplyShape):
    """A file that may hold settings."""

    path: str = Field(description="its path")
    exists: bool = Field(description="whether it is there")


class SettingsFiles(ReplyShape):
    """The files that are read."""

    files: tuple[SettingsFile, ...] = Field(description="in their order: later ones win")


class NewToken(ReplyShape):
    """A key for a client over TCP. It is shown this once."""

    token: str = Field(description="what the client sends")
    name: str = Field(description="its table's name in the configuration")
    sigil: str = Field(description="what it permits")
    sha256: str = Field(description="its hash: what the configuration holds")


class DoctorFinding(ReplyShape):
    """One thing that was looked at."""

    name: str = Field(description="what")
    ok: bool = Field(description="whether it is good")
    detail: str = Field(description="what was found")
    fix: str = Field(description="the command that mends it, or a tip; empty: none")
    absent: bool = Field(description="whether it is not there, which is no fault")


class DoctorReport(ReplyShape):
    """What the installation is like."""

    ok: bool = Field(description="whether all is good")
    checks: tuple[DoctorFinding, ...] = Field(description="each")


class IdentitySetting(ReplyShape):
    """The setting of the default identity."""

    default: str = Field(description="its name")
    file: str = Field(description="that sets it")
    changed: bool = Field(description="whether the file was changed")
    overridden: str = Field(description="the variable that wins over the file; empty: none")


class IdentityUsed(ReplyShape):
    """What became of the default identity."""

    identity: IdentitySetting = Field(description="in the configuration")
    daemon: DaemonWord = Field(description=DAEMON)
    cost: tuple[identities.FloorCost, ...] = Field(description="what is computed for it")


class IdentityCondensed(identities.IdentityChange):
    """What became of a shorter text."""

    by: Literal["model", "extract"] = Field(description="who wrote it")
    why: str = Field(description="why the model's text was not taken; empty where it was")


class ModelSetting(ReplyShape):
    """The setting of the model."""

    path: str = Field(description="the model, as it is named")
    file: str = Field(description="that sets it")
    changed: bool = Field(description="whether the file was changed")
    overridden: str = Field(description="the variable that wins over the file; empty: none")


class ModelUsed(ReplyShape):
    """What became of a change of the model."""

    model: ModelSetting = Field(description="in the configuration")
    daemon: DaemonWord = Field(description=DAEMON)
    cold: tuple[models.ColdFloor, ...] = Field(description="floors to be computed, unless they were before")


class ModelRemoved(ReplyShape):
    """A model's files that are gone."""

    dropped: str = Field(description="its name")
    paths: tuple[str, ...] = Field(description="its files")
    bytes: int = Field(description="that they took")


class ModelDownloaded(ReplyShape):
    """A model that is on the disk now."""

    path: str = Field(description="its first file")
    bytes: int = Field(description="of all its files")
    checked: bool = Field(description="whether all were compared with the sums that the hub told")
    files: tuple[str, ...] = Field(description="all its files")
    sha256: str | None = Field(description="of the first file that came; null: none had to come")


class FloorExported(ReplyShape):
    """A prefix that is in a file."""

    codex: str = Field(description="whose it is")
    file: str = Field(description="where")
    bytes: int = Field(description="of the file")
    tokens: int = Field(description="of the prefix")


class MemoriesExported(ReplyShape):
    """What an export wrote."""

    exported: int = Field(description="memories")
    removed: int = Field(description="files of forgotten ones")
    folder: str = Field(description="where")


class KeptHere(ReplyShape):
    """What the daemon or, as `history`, `lore chat` keeps of one kind."""

    name: replies.DataName | Literal["history"] = Field(description="of the kind")
    what: str = Field(description="of it, in words")
    count: int = Field(description="how many")
    bytes: int = Field(description="that they take on disk, about")


class AllKept(ReplyShape):
    """What can be purged."""

    kept: tuple[KeptHere, ...] = Field(description="each kind")


class AllPurged(ReplyShape):
    """What was deleted for good."""

    purged: tuple[KeptHere, ...] = Field(description="each kind, as it was")


class UnitFiles(ReplyShape):
    """What became of systemd's units."""

    files: tuple[str, ...] = Field(description="of the units")
    todo: tuple[str, ...] = Field(description="what systemd could not be told")


class UnitsRemoved(UnitFiles):
    """The units are gone, and with --purge what the daemon kept."""

    purged: tuple[str, ...] = Field(description="folders that were deleted")


class UnitStates(ReplyShape):
    """What systemd makes of the units."""

    units: dict[str, str] = Field(description="the state of each")


Shapes = tuple[type[Any], ...]  # of replies, or plain dataclasses
LOADS: Shapes = (replies.ProgressEvent, replies.LoadedEvent)
STREAMED = ("up", "chat", "load", "codex reload", "top")  # a line of JSON for each event
PRINTED: Mapping[str, Shapes] = {  # several: one of them, by what was asked for
    "up": (*LOADS, models.BroughtUp, models.ModelAdvice),
    "load": (*LOADS, replies.Cancelled),
    "ask": (WholeAnswer,),
    "chat": (WholeAnswer,),
    "plan": (answers.PlanReply,),
    "search": (replies.SearchReply, replies.SymbolsReply),
    "status": (status.StatusReply,),
    "top": (Picture, DaemonAway),
    "doctor": (DoctorReport, models.ContextReport),
    "codex list": (replies.CodicesReply,),
    "codex show": (replies.CodexReply,),
    "codex outline": (replies.SymbolsReply,),
    "codex reload": LOADS,
    "codex drop": (replies.Dropped,),
    "codex export": (FloorExported,),
    "codex import": (replies.ImportedFloor,),
    "session list": (replies.SessionRows,),
    "session search": (replies.SessionHits,),
    "session show": (replies.SessionReply,),
    "session export": (replies.SessionReply,),
    "session rename": (replies.Renamed,),
    "session drop": (replies.Dropped,),
    "memory list": (memories.MemoryRows,),
    "memory review": (memories.MemoryRows,),
    **dict.fromkeys(
        ("memory " + name for name in ("show", "add", "rate", "confirm", "consecrate", "retire", "become", "outcome")),
        (memories.MemoryReply,),
    ),
    "memory forget": (memories.Forgotten,),
    "memory search": (memories.FoundMemories,),
    "memory export": (MemoriesExported,),
    "memory import": (memories.MemoriesImported,),
    "trace list": (traces.TraceRows,),
    "trace show": (traces.TraceReply,),
    "trace diff": (traces.TraceDiff,),
    "feedback": (traces.FeedbackReply,),
    "identity list": (identities.IdentityRows,),
    "identity show": (identities.IdentityReply,),
    "identity edit": (identities.IdentityChange,),
    "identity use": (IdentityUsed,),
    "identity condense": (IdentityCondensed,),
    "model list": (models.ModelRows,),
    "model show": (models.ModelReply,),
    "model use": (ModelUsed,),
    "model drop": (ModelRemoved,),
    "model get": (ModelDownloaded,),
    "purge": (AllKept, AllPurged),
    "pause": (status.PauseReply,),
    "resume": (status.ResumeReply,),
    "stats cache": (status.CacheReply, status.ClientStats),
    "stats memory": (memories.MemoryStats,),
    "stats relevance": (traces.RelevanceStats,),
    "config show": (SettingsShown,),
    "config check": (SettingsChecked,),
    "config path": (SettingsFiles,),
    "service install": (UnitFiles,),
    "service uninstall": (UnitsRemoved,),
    "service status": (UnitStates,),
    "token new": (NewToken,),
}


def json_schema(command: str) -> dict[str, Any]:
    """Of what this command prints with --json: of each line, where it streams. Raises KeyError for one that prints none."""
    shapes = PRINTED[command]
    whole: TypeAdapter[Any] = TypeAdapter(reduce(or_, shapes))
    each = " Each line is one of these." if command in STREAMED else ""
    about = {"$schema": DIALECT, "title": f"lore {command} --json", "description": f"Keys are only ever added.{each}"}
    return whole.json_schema(mode="serialization") | about
