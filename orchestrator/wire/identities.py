"""What crosses the socket about identities."""

from typing import Annotated, Literal

from pydantic import Field

from orchestrator.wire.base import Plain, ReplyShape, StrictRequest


class FloorCost(ReplyShape):
    """What a change of an identity costs one codex: all of its floor stands behind the identity and is computed anew."""

    name: str = Field(description="the codex")
    tokens: int | None = Field(description="in the new floor; null while the model is not loaded")
    seconds: float | None = Field(
        description="that computing it takes, as predicted; null where nothing is measured yet"
    )


class IdentityRow(ReplyShape):
    """An identity."""

    name: str = Field(description="its name")
    default: bool = Field(description="whether questions that name none are asked under it")
    file: str | None = Field(description="its file; null: the one that ships")
    bytes: int | None = Field(description="of text; null where it cannot be read")
    codices: tuple[str, ...] = Field(description="resident codices that are asked under it")
    fault: str = Field(description="why it cannot be used; empty where it can")


class IdentityRows(ReplyShape):
    """All identities."""

    identities: tuple[IdentityRow, ...] = Field(description="by name")


class IdentityReport(ReplyShape):
    """An identity in full."""

    name: str = Field(description="its name")
    default: bool = Field(description="whether questions that name none are asked under it")
    file: str | None = Field(description="its file; null: the one that ships")
    text: str = Field(description="what the model is told")
    tokens: int | None = Field(description="of the text; null while the model is not loaded")
    codices: tuple[str, ...] = Field(description="resident codices that are asked under it")
    cost: tuple[FloorCost, ...] = Field(description="what this text costs each of them when it comes anew")


class IdentityReply(ReplyShape):
    """One identity."""

    identity: IdentityReport = Field(description="in full")


class IdentityBody(StrictRequest):
    """An identity's new text."""

    text: str = Field(description="Markdown, at most 256 KiB")
    dry_run: bool = Field(False, description="tells what it costs and writes nothing")
    keep: bool = Field(False, description="keeps the text before, in NAME.md.before beside it")


class IdentityChange(IdentityReply):
    """What came of a change."""

    before: int | None = Field(description="tokens of the text before; null where there was none, or none was counted")
    changed: bool = Field(description="false: it said the same before, and nothing is computed")
    saved: bool = Field(description="whether the file was written")


class DefaultIdentityBody(StrictRequest):
    """The identity of questions that name none."""

    name: Annotated[Plain, Field(min_length=1)] = Field(description="of one that there is")
    dry_run: bool = Field(False, description="tells what it costs and changes nothing")


class DefaultIdentity(IdentityReply):
    """What came of a change of the default identity. `cost` names the codices that were not asked under it yet."""

    before: str = Field(description="the default identity before")
    changed: bool = Field(description="false: it was the default before, and nothing is computed")


class ShortIdentity(IdentityReply):
    """An identity and a shorter text for it, which is not written."""

    short: str = Field(description="the shorter text; the same where nothing can go")
    short_tokens: int | None = Field(description="of it; null while the model is not loaded")
    by: Literal["model", "extract"] = Field(description="who wrote it")
    why: str = Field(description="why the model's text was not taken; empty where it was")
