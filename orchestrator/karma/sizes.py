"""The three sizes of a memory's text, made when it is written and when its outcome changes. Pure, by rule.

    micro    one line of about 20 tokens, with outcome and confidence in brackets
    summary  50 to 100 tokens: the first sentences that fit
    full     as recorded

A token is counted as four characters, the usual mean of English text: the sizes are goals, and the prompt's budget counts
exactly. A verbatim text has one size.
"""

import re

from orchestrator.karma.records import DecisionOutcome

CHARACTERS = 4  # of a token
MICRO, SUMMARY = 20 * CHARACTERS, 100 * CHARACTERS
# The number of a step ends no sentence: "How to release: 1. Tag it."
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!\s\d\.)(?<!\s\d\d\.)\s+|\n+")


def micro_of(text: str, confidence: float, outcome: DecisionOutcome | None, *, verbatim: bool = False) -> str:
    """One line. Brackets hold what qualifies it: the outcome, and a confidence below 1."""
    notes = [outcome.value] if outcome is not None else []
    notes += [f"{confidence:.0%} sure"] if confidence < 1 else []
    line = in_line(text) if verbatim else in_line((*sentences(text), text)[0], MICRO)
    return f"{line} [{', '.join(notes)}]" if notes else line


def summary_of(text: str, *, verbatim: bool = False) -> str:
    """As many whole sentences from the beginning as fit; of a longer first one its beginning."""
    if verbatim:
        return text.strip()
    taken = ""
    for sentence in sentences(text):
        longer = f"{taken} {in_line(sentence)}".strip()
        if len(longer) > SUMMARY:
            break
        taken = longer
    return taken or in_line(text, SUMMARY)


def sentences(text: str) -> list[str]:
    return [one for one in _SENTENCE_END.split(text.strip()) if one.strip()]


def in_line(text: str, most: int | None = None) -> str:
    """In one line of at most so many characters, which ends at the last word that fits."""
    line = " ".join(text.split())
    if most is None or len(line) <= most:
        return line
    return (line[:most].rpartition(" ")[0] or line[: most - 1]) + "…"


def tokens_of(text: str) -> int:
    """Estimated."""
    return -(-len(text) // CHARACTERS)
