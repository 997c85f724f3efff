"""What is kept of a conversation that is over, and what becomes of that with time. Pure.

    12 hours after its last turn   ACTIVE       the day, what was decided, gists, what was noted and asked
    30 days                        SUMMARIZED   the summary alone; the detail is the session, which stays as its user wants
    90 days                        ARCHIVED

It is made of the user's words by a template; what the model said is no part of it. A conversation that goes on later gets
an episode of what came after. Greetings and conversations of a single question make none.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.karma.learning import own_words, statements
from orchestrator.karma.records import DAY_S, Kind, MemoryRecord, MemoryState, NewMemory
from orchestrator.karma.sizes import in_line
from orchestrator.relevance.intent import is_greeting

QUIET_S = 12 * 3600.0  # a night: what is gone on with next morning is one conversation as a rule
SUMMARIZED_S, ARCHIVED_S = 30 * DAY_S, 90 * DAY_S  # of age
LEAST_QUESTIONS, LEAST_WORDS = 2, 4  # fewer questions, or questions of fewer words, are nothing to come back to
MOST_LINES, MOST_LINE, MOST_GIST = 16, 160, 400  # lines of an episode, and characters of one


@dataclass(frozen=True)
class PastConversation:
    """What an episode is made of. `session`: its number, beside its name; `asked`: the user's words of the turns that no
    episode tells of yet; `gists`: what the model wrote of them; `ended`: seconds since the epoch."""

    uid: int
    session: int
    name: str
    codex: str | None
    ended: float
    asked: Sequence[str]
    gists: Sequence[str] = ()


SESSION = "session:"  # the source of an episode begins so
ANY_SESSION = f"{SESSION}*"


def source_of(session: int) -> str:
    """The source of a session's episodes, whatever its name becomes."""
    return f"{SESSION}{session}"


def episode_of(past: PastConversation) -> NewMemory | None:
    """None of a conversation that is nothing to come back to."""
    asked = [one for one in map(_asked, past.asked) if one]
    if len(asked) < LEAST_QUESTIONS:
        return None
    day = time.strftime("%Y-%m-%d", time.localtime(past.ended))
    said = list(dict.fromkeys(one for text in past.asked for one in statements(text) if one.sure))
    told = {one.text.rstrip(".") for one in said}
    lines = [
        *(f"Decided: {in_line(one.text, MOST_LINE)}" for one in said if one.kind is Kind.DECISION),
        *(f"In short: {in_line(text, MOST_GIST)}" for text in past.gists),
        *(f"Noted: {in_line(one.text, MOST_LINE)}" for one in said if one.kind is not Kind.DECISION),
        *(f"Asked: {one}" for one in dict.fromkeys(asked[1:]) if one.rstrip(".") not in told),
    ]
    return NewMemory(
        uid=past.uid,
        kind=Kind.EPISODE,
        text="\n".join([f"{day}, conversation {past.name}: {asked[0]}", *lines[:MOST_LINES]]),
        codex=past.codex,
        created=past.ended,
        source=source_of(past.session),
    )


def _asked(text: str) -> str:
    """One line of it; '' of a greeting, of chatter, and of nothing but what was pasted."""
    line = in_line(own_words(text), MOST_LINE)
    return "" if is_greeting(line) or len(line.split()) < LEAST_WORDS else line


def aged(record: MemoryRecord, now: float) -> MemoryRecord:
    """An episode as it stands at this moment. One state at a time, as the table of states leads."""
    age = now - record.created
    if record.kind is not Kind.EPISODE:
        return record
    if record.state is MemoryState.ACTIVE and age >= SUMMARIZED_S:
        text = record.text if record.verbatim else record.summary
        record = replace(record, state=MemoryState.SUMMARIZED, text=text)
    if record.state is MemoryState.SUMMARIZED and age >= ARCHIVED_S:
        record = replace(record, state=MemoryState.ARCHIVED)
    return record
