"""What is known of a turn before anything is fetched for it: its mode, its urgency, how warm the conversation is.

Patterns and times decide, or the client does; never a model. What a greeting and a question are, `intent` says.
The caller reads the clock and hands over seconds.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from orchestrator.relevance.intent import is_greeting, is_question

Signal = float | int | bool | str
Signals = Mapping[str, Signal]

WARM_AT_TURNS: Final = 4
"""So many earlier turns make a conversation as warm as it gets."""
HALF_LIFE: Final = 3600.0
"""Seconds of silence that halve the warmth."""
SILENCE: Final = 1800.0
"""Seconds after which a user returns from silence."""
SHORT: Final = 12
"""A question that clarifies has at most so many tokens."""
WARM: Final = 0.3
"""A question clarifies only where the conversation is at least this warm."""

THANKS: Final = re.compile(
    r"\s*(?:thanks?(?:\s+you)?(?:\s+(?:a lot|very much|so much))?|ok(?:ay)?|got\s+it|great|perfect|danke)\s*[!.,]*\s*",
    re.IGNORECASE,
)
REFERS_BACK: Final = re.compile(r"\b(?:you\s+mean|which\s+one|what\s+do\s+you\s+mean|that\s+one)\b", re.IGNORECASE)
ORDER: Final = re.compile(r"\s*(?:please\s+)?(?:do|change|run|write\b.*\bto)\b", re.IGNORECASE)
ACKNOWLEDGE: Final = "ACKNOWLEDGE"
"""The mode of a turn that asks nothing."""
URGENT: Final = re.compile(r"\b(?:urgent(?:ly)?|asap|immediately|right\s+now|emergency)\b", re.IGNORECASE)

SIGNALS: Final[Mapping[str, type]] = {
    "mode": str,
    "urgency": str,
    "context_warmth": float,
    "working_memory_turns": float,
    "prompt_token_count": float,
    "greeting_pattern": bool,
    "returning_from_silence": bool,
    "is_question": bool,
    "context_pressure": float,
    "vram_level": str,
}
"""Every signal that a rule may name, with the type of its value. A float stands for any number."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What the signals are computed from. `silence` is in seconds since the last turn; `tokens` are the question's.

    `mode` and `urgency` are what the client gave, or empty. `pressure` is the share of the window in use (0..1), None
    where nobody knows; `vram_level` is empty where nobody knows.
    """

    question: str
    tokens: int
    turns: int = 0
    silence: float = 0.0
    mode: str = ""
    urgency: str = ""
    pressure: float | None = None
    vram_level: str = ""
    given: Signals = field(default_factory=dict)


def signals_of(turn: Turn) -> dict[str, Signal]:
    """The signals of one turn. What is not known is left out: a missing signal makes its predicate false."""
    warmth = warmth_of(turn.turns, turn.silence)
    found: dict[str, Signal] = {
        "mode": turn.mode or mode_of(turn.question, turn.tokens, warmth),
        "urgency": turn.urgency or ("high" if URGENT.search(turn.question) else "normal"),
        "context_warmth": warmth,
        "working_memory_turns": turn.turns,
        "prompt_token_count": turn.tokens,
        "greeting_pattern": is_greeting(turn.question),
        "returning_from_silence": turn.turns > 0 and turn.silence >= SILENCE,
        "is_question": is_question(turn.question),
    }
    if turn.pressure is not None:
        found["context_pressure"] = turn.pressure
    if turn.vram_level:
        found["vram_level"] = turn.vram_level
    return {**found, **turn.given}


def warmth_of(turns: int, silence: float) -> float:
    """0..1: full after four earlier turns, halved for each hour of silence (seconds)."""
    return float(min(1.0, turns / WARM_AT_TURNS) * 0.5 ** (max(0.0, silence) / HALF_LIFE))


def mode_of(question: str, tokens: int, warmth: float) -> str:
    """ACKNOWLEDGE, CLARIFY, ACT or RESPOND: the first that matches, in this order."""
    if is_greeting(question) or THANKS.fullmatch(question):
        return ACKNOWLEDGE
    if warmth >= WARM and tokens <= SHORT and REFERS_BACK.search(question):
        return "CLARIFY"
    if ORDER.match(question) and not is_question(question):
        return "ACT"
    return "RESPOND"
