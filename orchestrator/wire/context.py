"""What is told of a model's measured length."""

from typing import Literal

from pydantic import Field

from orchestrator.wire.base import ReplyShape


class LengthReport(ReplyShape):
    """What a model found in texts of one length: the share of right answers, null where not all were asked."""

    length: int = Field(description="tokens of the text")
    share: float | None = Field(description="of the kinds that count, or of all where none does")
    depths: tuple[float | None, ...] = Field(description="the same by depth")
    kinds: dict[str, float | None] = Field(description="by kind: single, several, chain")


class MeasureEstimate(ReplyShape):
    """What is left to do, at most: nothing is asked beyond the first length that is lost."""

    tokens: int = Field(description="of prompts, to be computed")
    answers: int = Field(description="to be asked for")
    seconds: float | None = Field(description="by what steps cost here; null before the engine has learned it")


class ContextReport(ReplyShape):
    """How long a text the loaded model follows."""

    model: str = Field(description="as the settings name it")
    kv: str = Field(description="its KV types, of keys and values")
    depths: tuple[float, ...] = Field(description="where needles stand, as shares of a length")
    lengths: tuple[LengthReport, ...] = Field(description="shortest first; none where the window is too short")
    counted: tuple[str, ...] = Field(description="kinds of questions that count: mastered in the shortest text")
    effective: int | None = Field(description="the longest length that is followed with all shorter ones, if known")
    limit: int | None = Field(description="where windows end because of it; null: it limits nothing")
    complete: bool = Field(description="whether nothing is left to measure")
    words: str = Field(description="the same in a sentence")
    left: MeasureEstimate = Field(description="what is left to measure")
    whole: MeasureEstimate = Field(description="what it would take to measure everything again")


class ContextReply(ReplyShape):
    """How long a text the loaded model follows, as far as it was measured."""

    context: ContextReport = Field(description="in full")


class MeasuredEvent(ContextReply):
    """The last event of a measurement."""

    event: Literal["measured"] = Field(description="what kind of event")
