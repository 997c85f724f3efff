"""Instructions in short: which sentences of an identity are rules, what a shorter text lost of it, and an extract. Pure.

    rules     sentences that order, forbid or permit something; the first sentence of all, which says who answers, and of
              each entry of a list; all that stands under a heading, or in a list behind a colon, that orders; blocks
              between fences
    lacking   what a shorter text has not: a rule to the letter, a name, path, number, quotation or negation; and what it
              orders that the longer one did not
    extract   the rules, and what else holds such a name: nothing else goes

Blanks and ends of lines do not count but between fences. A sentence that orders something is told by words: one that is
not recognised may be shortened.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.prompt.gist import lost, survivors

CONDENSE = (
    "Shorten the instructions below for the model that follows them. Keep each of these sentences to the letter:\n"
    "{rules}\n\n"
    "Shorten what else stands there: leave out reasons, repetitions and politeness. Order nothing new. Keep every name, "
    "path, number and quotation. Write the shortened instructions as Markdown and nothing else.\n\n"
    "The instructions:\n\n{text}"
)

_MARKED = re.compile(
    r"(?i)\b(?:never|always|must|shall|should|only|not|no|nor|none|neither|without|cannot|may|have to|has to|needs? to|"
    r"required?|forbidden|prohibited|unless|except|ensure|sure|instead of|rather than)\b|n['’]t\b"
)
_ORDERS = """
    add address admit aim answer apply ask assume avoid base be begin call change check cite clarify close combine
    compare confirm consider continue correct create decline default define delete describe disclose do end exclude
    explain express flag focus follow format generate give greet guide handle help highlight ignore include inform
    insert introduce keep let limit list load look maintain make mark match mention mind name note obey offer omit
    open output paste point prefer present preserve print prioritise prioritize produce promise propose provide put
    quote read recommend refer refuse reject remember remove repeat replace reply report request respect respond rest
    return reveal review run say search separate set share show skip speak spell start state stay stick stop suggest
    summarise summarize take talk tell test think translate treat trust try turn update use verify wait warn wrap
    write
"""
_ORDER = re.compile(
    rf"(?i)\W*(?:(?:please|then|also|and|so|first|finally|instead|otherwise|if [^,]*,|when [^,]*,|where [^,]*,)\W*)*"
    rf"(?:{'|'.join(_ORDERS.split())})\b"
)
_HEADING = re.compile(r" {0,3}#{1,6}\s+")
_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)(?<!vs\.)(?<!cf\.)\s+(?=[^\W\d_a-z]|[^\w\s]|\d)")


class KeptRule(NamedTuple):
    """A sentence that must stay to the letter; `under` the heading, or the words before the colon, that make it a rule:
    without them it would say something else."""

    text: str
    under: str = ""


def rules(text: str) -> tuple[KeptRule, ...]:
    """Each once, in their order, with single blanks."""
    return tuple(dict.fromkeys(rule for unit in _units(text) for rule in unit.rules))


def lacking(text: str, shorter: str) -> tuple[str, ...]:
    """What `shorter` has not of `text`, and what it orders beyond it, in words; empty where it may take its place."""
    had, has = dict.fromkeys(rules(text)), dict.fromkeys(rules(shorter))
    gone = (f"the rule {rule.text!r} is missing" for rule in had if rule not in has)
    names = (f"{name!r} is missing" for name in lost(survivors(text), shorter))
    new = (f"{rule.text!r} is ordered, and was not" for rule in has if rule not in had)
    return (*gone, *names, *new)


def extract(text: str) -> str:
    """Without what is no rule and names nothing; the text itself where nothing can go."""
    kept: list[_Unit] = []
    above: list[_Unit] = []  # headings of what may be kept
    for unit in _units(text):
        if unit.heading:
            above = [*(one for one in above if one.level < unit.level), unit]
            left = unit.whole if unit.rules else ""
        else:
            left = unit.shortened()
        if left:
            kept += [*(one for one in above if one is not unit), _Unit(unit.lead, left[len(unit.lead) :])]
            above = []
    made = _joined(kept)
    return text if lacking(text, made) or len(_spaced(made)) >= len(_spaced(text)) else made


def _joined(units: list["_Unit"]) -> str:
    """An empty line stands between two units that are not entries of a list."""
    made = ""
    for before, unit in zip([None, *units], units, strict=False):
        entries = before is not None and before.is_entry and unit.is_entry
        made += ("" if before is None else "\n" if entries else "\n\n") + unit.whole
    return made + "\n"


@dataclass(frozen=True)
class _Unit:
    """A heading, an entry of a list, a paragraph or a fenced block: `lead` is what stands before its words. `under`: what
    stands above and makes a rule of all of it; '' where nothing does. `begins`: its first sentence says who answers."""

    lead: str
    text: str
    heading: bool = False
    fenced: bool = False
    under: str = ""
    begins: bool = False

    @property
    def whole(self) -> str:
        return self.lead + self.text

    @property
    def level(self) -> int:
        """Of a heading, from 1."""
        return self.lead.count("#")

    @property
    def is_entry(self) -> bool:
        return bool(_ITEM.match(self.lead))

    @property
    def sentences(self) -> list[str]:
        return [one for one in _SENTENCE_END.split(self.text.strip()) if one]

    @property
    def rules(self) -> tuple[KeptRule, ...]:
        if self.fenced:
            return (KeptRule(self.text, _spaced(self.under)),)  # blanks mean something there
        if self.under:
            return (KeptRule(_spaced(self.text), _spaced(self.under)),)
        return tuple(KeptRule(_spaced(one)) for place, one in enumerate(self.sentences) if self._stays(place, one))

    def _stays(self, place: int, sentence: str) -> bool:
        return (place == 0 and (self.is_entry or self.begins)) or _is_rule(sentence)

    def shortened(self) -> str:
        if self.fenced or self.under:
            return self.whole
        kept = [one for place, one in enumerate(self.sentences) if self._stays(place, one) or survivors(one).texts]
        if lost(survivors(self.text), " ".join(kept)):  # a quotation of several sentences
            return self.whole
        return self.lead + " ".join(kept) if kept else ""


def _is_rule(sentence: str) -> bool:
    return bool(_MARKED.search(sentence) or _ORDER.match(sentence))


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _units(text: str) -> Iterator[_Unit]:
    """A heading binds what stands under it until the next heading, a colon the list behind it."""
    under = behind = ""
    begins = True
    for unit in _split(text):
        if unit.heading:
            under, behind = unit.text if _is_rule(unit.text) else "", ""
            yield unit
            continue
        yield _Unit(
            unit.lead, unit.text, fenced=unit.fenced, under=under or (behind if unit.is_entry else ""), begins=begins
        )
        begins = False
        if not unit.is_entry and not unit.fenced:
            last = unit.sentences[-1]
            behind = last if last.endswith(":") and _is_rule(last) else ""


def _split(text: str) -> Iterator[_Unit]:
    """Units as they stand, with their ends of lines."""
    lines, at = text.splitlines(), 0
    while at < len(lines):
        line, end = lines[at], at + 1
        if fence := _FENCE.match(line):
            while end < len(lines) and not lines[end].lstrip().startswith(fence[1]):
                end += 1
            end = min(end + 1, len(lines))
            yield _Unit("", "\n".join(lines[at:end]), fenced=True)
        elif heading := _HEADING.match(line):
            yield _Unit(heading[0], line[heading.end() :], heading=True)
        elif line.strip():
            while end < len(lines) and _goes_on(lines[end]):
                end += 1
            item = _ITEM.match(line)
            lead = item[0] if item and line[item.end() :].strip() else ""
            yield _Unit(lead, "\n".join(lines[at:end])[len(lead) :])
        at = end


def _goes_on(line: str) -> bool:
    """Whether a line belongs to the paragraph above it."""
    begins = _HEADING.match(line) or _ITEM.match(line) or _FENCE.match(line) or line.lstrip().startswith("|")
    return bool(line.strip()) and not begins
