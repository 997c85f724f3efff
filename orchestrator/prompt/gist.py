"""Earlier turns in short: what of a question's words must survive, and an extract where no model writes a gist. Pure.

    survivors   names in code, paths, numbers, quoted texts and negations of what the user said
    lost        those that a gist has not: such a gist is thrown away
    extracts    ever shorter ones: who asks takes the first that fits

What the user said is a question without what stands between fences in it: pasted output is no instruction. A negation
survives where a clause of the gist denies the same word: "must not use threads" as "threads are not used".
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from formatters.blocks import Role
from formatters.context import TurnView

SUMMARISE = (
    "Summarise this conversation up to here in at most {words} words, for yourself: only the summary will be left of it. "
    "Say what was asked, what was found and what was decided. Keep every name, path, number, quotation and negation of "
    "the questions to the letter. Write plain sentences, without a heading and without a greeting."
)
READ_CHARS = 20_000  # of a message: what is longer is data
WHOLE_CHARS, SENTENCE_CHARS = 300, 160  # of an extract: a question that is kept whole, and a sentence of an answer

_FENCED = re.compile(r"^ {0,3}(`{3,}|~{3,}).*?(?:^ {0,3}\1|\Z)", re.MULTILINE | re.DOTALL)
# Bounded: what is longer is data, and would take the square of its length.
_QUOTED = re.compile(
    r"\"([^\"\n]{1,300})\"|`([^`\n]{1,300})`|“([^”\n]{1,300})”|«([^»\n]{1,300})»|(?<!\w)'([^'\n]{1,300})'(?!\w)"
)
_WORD = re.compile(r"[\w./~:+-]{0,300}\w(?:\(\))?")
_NAME = re.compile(r"\d|[/_]|::|\(\)|\w\.\w|[a-z][A-Z]|[A-Z]{3}")
_ABBREVIATIONS = frozenset({"e.g", "i.e"})
_NEGATION = re.compile(r"(?i)\b(?:not|no|never|none|nor|neither|without|cannot)\b|n['’]t\b")
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|\n+")
_CONTENT = re.compile(r"[^\W\d_]\w{2,}")
_STEM = 4  # letters by which a denied word is known again: use, using


class Exchange(NamedTuple):
    """What the user said, and what was answered last."""

    asked: str
    answered: str


@dataclass(frozen=True)
class Survivors:
    """`texts` must be there to the letter; of `denied` words each in a clause with a negation."""

    texts: tuple[str, ...]
    denied: tuple[str, ...]


def exchanges(turns: Sequence[TurnView]) -> list[Exchange]:
    """One for each question, with the words between fences left out."""
    found: list[Exchange] = []
    for turn in turns:
        if turn.role is Role.USER or not found:
            words = turn.text[:READ_CHARS] if turn.role is Role.USER else ""
            found.append(Exchange(_FENCED.sub("", words).strip(), ""))
        if turn.role is Role.ASSISTANT:
            found[-1] = found[-1]._replace(answered=turn.text[:READ_CHARS])
    return found


def survivors(words: str) -> Survivors:
    quoted = [next(filter(None, found.groups())) for found in _QUOTED.finditer(words)]
    names = [name for name in map(_bare, _WORD.findall(words)) if _NAME.search(name) and name not in _ABBREVIATIONS]
    denied = [word for clause in _clauses(words) for word in _denied(clause)]
    return Survivors(tuple(dict.fromkeys((*quoted, *names))), tuple(dict.fromkeys(denied)))


def lost(wanted: Survivors, gist: str) -> tuple[str, ...]:
    """What did not survive, in words."""
    negated = [clause.lower() for clause in _clauses(gist) if _NEGATION.search(clause)]
    denied = (word for word in wanted.denied if not any(word[:_STEM].lower() in clause for clause in negated))
    return (*(text for text in wanted.texts if not _has(gist, text)), *(f"not {word}" for word in denied))


def extracts(said: Sequence[Exchange], first: int) -> Iterator[str]:
    """Extracts of the turns from number `first` on. The first three keep all that must survive; the others say so."""
    numbered = list(enumerate(said, start=first))
    yield "\n".join(f"{number}. {_whole(one)}" for number, one in numbered)
    yield "\n".join(f"{number}. {_kept_sentences(one.asked)}" for number, one in numbered)
    lines = [f"{number}. {_names(one.asked)}" for number, one in numbered]
    yield "\n".join(lines)
    while len(lines) > 1:
        lines = lines[(len(lines) + 1) // 2 :]
        yield "\n".join(("(the turns before are in the session alone)", *lines))
    yield "(these turns are in the session alone)"


# -- what must survive


def _bare(word: str) -> str:
    return word.strip(".:+-")


def _clauses(text: str) -> list[str]:
    return _SENTENCE_END.split(text)


def _denied(clause: str) -> Iterator[str]:
    """The word behind each negation; where none follows, the one before it."""
    for negation in _NEGATION.finditer(clause):
        after, before = _CONTENT.search(clause, negation.end()), _CONTENT.findall(clause[: negation.start()])
        if after or before:
            yield after[0] if after else before[-1]


def _has(gist: str, text: str) -> bool:
    """Whether it is there, and not as a part of a longer name."""
    at = gist.find(text)
    while at >= 0:
        around = gist[max(0, at - 1) : at] + " " + gist[at + len(text) : at + len(text) + 1]
        if not re.search(r"\w", around):
            return True
        at = gist.find(text, at + 1)
    return False


# -- extracts


def _whole(one: Exchange) -> str:
    asked = one.asked if len(one.asked) <= WHOLE_CHARS else _kept_sentences(one.asked)
    answer = _first_sentence(one.answered)
    return f"asked: {asked}\n   answered: {answer}" if answer else f"asked: {asked}"


def _kept_sentences(asked: str) -> str:
    """The sentences that hold what must survive, else the beginning of the first."""
    kept = " ".join(clause for clause in _clauses(asked) if survivors(clause) != Survivors((), ()))
    missing = lost(survivors(asked), kept)  # a quotation of several sentences
    return "; ".join(filter(None, (kept, *missing))) or _first_sentence(asked)


def _names(asked: str) -> str:
    wanted = survivors(asked)
    return "; ".join((*wanted.texts, *(f"not {word}" for word in wanted.denied))) or _first_sentence(asked)[:40]


def _first_sentence(text: str) -> str:
    return next(filter(None, _clauses(text.strip())), "")[:SENTENCE_CHARS]
