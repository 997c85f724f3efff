"""What of a conversation says nothing new: filler. Stubs of results that were superseded, and texts that were cut. Pure
functions of text.

Filler is what a reader would skip: blanks at the end of a line, runs of blanks and of empty lines, rules (lines of one
repeated sign), a line that is repeated, as logs do, and a tool's result that comes again further below.

Stays to the letter: what stands between fences (``` or ~~~), indentation, and runs of blanks in lines that are indented as
code is or hold a quote. A time at the beginning of a line does not make it another line; of repeated ones the first stays.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from formatters.blocks import Role
from formatters.context import AttachmentView, StateView, TurnView

AGAIN = "(the same result comes again below)"
RULES = frozenset("=-_*#+.─━═")
SHORTEST_RULE = 4  # signs; three begin a list of metadata, or are an ellipsis
CALL_CHARS, LINE_CHARS = 200, 80  # of a stub: the call whole as a rule, and the beginning of the first line

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_BLANKS = re.compile(r"(?<=\S)[ \t]{2,}(?=\S)")
_TO_THE_LETTER = re.compile(r"    |\t|.*[\"'`]")
_TIME = re.compile(r"[\[(]?(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?[])]?[ \t]*")


def without_filler(text: str) -> str:
    """The text with every word that it says once; never longer."""
    return "\n".join(line for fenced, lines in _stretches(text) for line in (lines if fenced else _thinned(lines)))


def lean(state: StateView) -> StateView:
    """The state without filler in what was said, in results of tools and in files of the user. Verbatim texts and passages
    of the codex stay, and so do the words of the question, which are no part of a state."""
    last = {one.text: at for at, one in enumerate(state.turns) if one.role is Role.TOOL}
    turns = [_lean_turn(one, comes_again=last.get(one.text, at) > at) for at, one in enumerate(state.turns)]
    return state.model_copy(update={"turns": tuple(turns), "attachments": _lean_files(state.attachments)})


def calls_of(turns: Iterable[TurnView]) -> list[str]:
    """For each message the call whose result it is, as `tool {arguments}`; '' for others and unknown ones."""
    calls, named = list[str](), dict[str, str]()
    for turn in turns:
        made = {one.id: f"{one.name} {one.arguments}" for one in turn.calls}
        named |= made
        of_client, of_ours = named.get(turn.answers, ""), next(iter(made.values()), "")
        calls.append((of_ours or of_client) if turn.role is Role.TOOL else "")
    return calls


def result_stub(call: str, text: str) -> str:
    """A tool's result as what was called, its size and its first line."""
    first = next((line.strip() for line in text.split("\n") if line.strip()), "")
    size = f"{text.count(chr(10)) + (not text.endswith(chr(10))):,} lines, {len(text):,} characters"
    named = call[:CALL_CHARS] or "tool result"
    return f"[{named}: {size}, first line: {first[:LINE_CHARS]}; left out to save room, re-fetchable]"


def cut_text(text: str, most: int) -> str:
    """Its first characters, and behind them that it was cut; the same where it has no more."""
    return text if len(text) <= most else f"{text[:most]}\n… cut after {most:,} of {len(text):,} characters"


# -- texts


def _stretches(text: str) -> Iterator[tuple[bool, list[str]]]:
    """Lines between fences, the fences included, and lines outside them. A fence that is never closed goes to the end."""
    lines, fence = list[str](), ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        sign = found[1] if found else ""
        if not fence and sign:
            yield False, lines
            lines, fence = [line], sign
        elif fence and sign.startswith(fence) and not line.strip().strip(fence[0]):
            yield True, [*lines, line]
            lines, fence = [], ""
        else:
            lines.append(line)
    yield bool(fence), lines


def _thinned(lines: Sequence[str]) -> Iterator[str]:
    kept = list[str]()
    for line in map(_without_blanks, lines):
        if not _is_rule(line) and (line or not kept or kept[-1]):
            kept.append(line)
    for _, group in groupby(kept, key=_without_time):
        first, *more = group
        folded = f"… (the line above {len(more):,} times more)"
        yield from [first, folded] if sum(map(len, more)) > len(folded) else [first, *more]


def _without_blanks(line: str) -> str:
    line = line.rstrip()
    return line if _TO_THE_LETTER.match(line) else _BLANKS.sub(" ", line)


def _is_rule(line: str) -> bool:
    sign = line.strip()
    return len(sign) >= SHORTEST_RULE and sign[0] in RULES and sign == sign[0] * len(sign)


def _without_time(line: str) -> str:
    """What is the same in repeated lines of a log."""
    found = _TIME.match(line)
    return line[found.end() :] or line if found else line


# -- turns


def _lean_turn(turn: TurnView, *, comes_again: bool) -> TurnView:
    again = turn.role is Role.TOOL and comes_again and len(turn.text) > len(AGAIN)
    text = AGAIN if again else without_filler(turn.text)
    return turn.model_copy(update={"text": text, "attachments": _lean_files(turn.attachments)})


def _lean_files(files: Sequence[AttachmentView]) -> tuple[AttachmentView, ...]:
    return tuple(one if one.verbatim else one.model_copy(update={"text": without_filler(one.text)}) for one in files)
