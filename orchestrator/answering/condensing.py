"""An identity in short: the loaded model writes it, and that is taken only where every rule is there to the letter.

text ─▶ rules, to be kept ─▶ the model writes ─▶ lacks nothing, orders nothing new, has fewer characters ─▶ the model's
                                             └─ no, or no model, or too late: the extract
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Literal, NamedTuple

from orchestrator.errors import LoreError
from orchestrator.prompt.gist import READ_CHARS
from orchestrator.prompt.instructions import CONDENSE, extract, lacking, rules
from orchestrator.service import Ask, AskEvent, Message, Principal, SamplingOptions, Text
from orchestrator.wire.answers import BARE

MOST_SECONDS = 120.0
NAMED = 3  # of what a text lacks


class ShortText(NamedTuple):
    """`why`: what the model's text was refused for, where `by` is not the model."""

    text: str
    by: Literal["model", "extract"]
    why: str = ""


async def shortened(
    ask: Callable[[Ask], AsyncIterator[AskEvent]], principal: Principal, text: str, tokens: int | None
) -> ShortText:
    """`tokens` of the text; None while no model runs. Never longer than the text; a text of more than READ_CHARS stays."""
    if len(text) > READ_CHARS:
        return ShortText(text, "extract", f"it has {len(text):,} characters, and up to {READ_CHARS:,} are read")
    if tokens is None:
        return await asyncio.to_thread(_extracted, text, "no model runs")
    try:
        written = await _written(ask, principal, text, tokens)
    except LoreError as fault:
        return await asyncio.to_thread(_extracted, text, fault.message)
    return await asyncio.to_thread(_checked, text, written)


def _extracted(text: str, why: str) -> ShortText:
    return ShortText(extract(text), "extract", why)


def _checked(text: str, written: str) -> ShortText:
    """The model's text, or the extract. A sentence of 20,000 characters takes seconds: `lacking` is quadratic in it."""
    if missing := lacking(text, written):
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        return _extracted(text, f"the model's text is refused: {', '.join(missing[:NAMED])}{more}")
    if len(written) >= len(text):
        return _extracted(text, "the model's text is no shorter")
    return ShortText(written, "model")


async def _written(ask: Callable[[Ask], AsyncIterator[AskEvent]], principal: Principal, text: str, tokens: int) -> str:
    """What the model says, without thoughts. Raises LoreError."""
    asked = CONDENSE.format(rules="\n".join(f"* {rule.text}" for rule in rules(text)), text=text)
    question = Ask(
        replace(principal, scopes=frozenset({"query"})),  # without memories: they are no part of an identity
        (Message("user", asked),),
        codex=BARE,
        max_tokens=tokens + 16,
        sampling=SamplingOptions(temperature=0.0),
        timeout_s=MOST_SECONDS,
        think=False,
        private=True,
    )
    parts = [event.delta async for event in ask(question) if isinstance(event, Text)]
    return "".join(parts).strip() + "\n"
