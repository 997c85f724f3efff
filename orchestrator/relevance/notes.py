"""What a question's State says beside the codebase and the memories: notes for the model, each a node of the gate. Pure.

    identity_modulation   the frame and what to consider in it
    onboarding_nudge      no codebase is loaded, and how one is
    warm_return_hint      the user was away, and what was asked last
    focus                 after an absence: the files that the conversation is about

A note is told when it changes, and what was told stays where it stands.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from formatters.context import NoteView, TurnView
from orchestrator.relevance.intent import Frame

FILES = 5
QUOTED = 120  # characters of the last question
ONBOARDING = "No codebase is loaded. Where the answer needs one, say that `lore load PATH` loads it."


@dataclass(frozen=True)
class NoteFacts:
    """`away`: seconds since the last turn of a user who returns, None for one who does not. `last`: that turn's question;
    `files`: paths that the conversation is about, the most named first; `loaded`: there is a codebase,
    or the user wants none; `calibration`: what belongs to the frame beside it."""

    frame: Frame
    away: float | None
    last: str
    files: Sequence[str]
    loaded: bool
    calibration: str = ""


def notes_of(facts: NoteFacts, turns: Sequence[TurnView], wants: Callable[[str], bool]) -> tuple[NoteView, ...]:
    """The notes that come with the question: those that are wanted and that the conversation does not say already."""
    told = {one.node: one.text for turn in turns for one in turn.notes}
    standing = ((node, text) for node, text in _standing(facts) if told.get(node) != text)
    return tuple(NoteView(node=node, text=text) for node, text in (*standing, *_of_return(facts)) if wants(node))


def _standing(facts: NoteFacts) -> Iterator[tuple[str, str]]:
    if facts.frame.questions:
        told = f"{facts.frame.description} Consider first: {' '.join(facts.frame.questions)}"
        yield "identity_modulation", f"{told} {facts.calibration}".rstrip()
    if not facts.loaded:
        yield "onboarding_nudge", ONBOARDING


def _of_return(facts: NoteFacts) -> Iterator[tuple[str, str]]:
    if facts.away is None:
        return
    yield "warm_return_hint", f"The user returns after {in_words(facts.away)}. Asked last: {_quoted(facts.last)}"
    if facts.files:
        yield "focus", f"This conversation is about {', '.join(facts.files[:FILES])}"


def in_words(seconds: float) -> str:
    """A time in its largest whole unit."""
    units = (("day", timedelta(days=1)), ("hour", timedelta(hours=1)), ("minute", timedelta(minutes=1)))
    passed = timedelta(seconds=seconds)
    name, number = next(((name, passed // unit) for name, unit in units if passed >= 2 * unit), ("minute", 1))
    return f"{number} {name}{'s' if number > 1 else ''}"


def _quoted(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= QUOTED else line[: QUOTED - 1] + "…"
