"""Which memories a turn makes: what the user states, decides or confirms, by rule (learning.toml). Pure.

    1  only the user's own words are read     no code, no quotes, no log, nothing that stands behind a line with a colon
    2  sentence by sentence                   a question, a wish, a condition states nothing
    3  the first form that fits               gives kind, subject and attribute
    4  unsure, or pointing elsewhere          makes a proposal, which no model is shown

What the model said is never kept as it stands: an answer that the user confirms is proposed. Knows no store and no model.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from orchestrator.errors import SettingsError, instead
from orchestrator.karma.records import Kind, MemoryState, NewMemory, Severity, WatchedText
from orchestrator.prompt.phrases import read_part
from orchestrator.relevance.intent import is_greeting

Learn = Literal["on", "proposed", "off"]

MOST_SENTENCE = 400  # characters: what is longer is a pasted paragraph
LONG = 1_500  # characters of own words: more was written elsewhere, as a rule
MOST = 4  # memories of a turn: more sentences that fit are a pasted document, and all of them are proposed
MOST_NAMED = 60  # characters of a subject or an attribute
UNSURE = 0.5  # confidence of what is proposed
MARK = "\ufffc"  # stands for an object in a text
STEPS = 2  # a procedure has so many at least
USER = "user"  # the subject of what is known of whoever asks

_APOSTROPHES = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"'})
_FENCED = re.compile(r"^ {0,3}(```|~~~).*?(?:^ {0,3}\1[^\n]*$|\Z)", re.DOTALL | re.MULTILINE)
# Lines that nobody types in a talk: indented or quoted ones, prompts, diffs, times, levels, frames of a stack.
_PASTED = re.compile(
    r"(?:\t| {4,}|>|\$ |#|\+\+\+|---|@@|diff |\|)"
    r"|\[?\d{4}-\d\d-\d\d|\[?\d\d:\d\d|[\[(]?(?:INFO|WARN|WARNING|ERROR|DEBUG|TRACE|FATAL|CRITICAL)\b"
    r"|Traceback |\s*File \"|\s*at \S+\("
)
_MAIL = re.compile(
    r"^(?:From|To|Subject|Date|Cc): .*\Z", re.DOTALL | re.MULTILINE
)  # and all that stands behind its head
_QUOTED = re.compile(r"\"[^\"\n]*\"|(?<!\w)'[^'\n]*'(?!\w)")
_CODE = re.compile(r"`([^`\n]*)`")
_STEP = re.compile(r"\s{0,3}(\d{1,2})[.)]\s+(\S.*)")
_BULLET = re.compile(r"\s{0,3}[-*•]\s+")
_SENTENCE = re.compile(r"(?<=[.!?…])[\"')]*\s+(?=\S)")
_CODE_LIKE = re.compile(r"[{};]\s*$|=>|==|:=|\w\(\)|</|\w\s=\s\S|\breturn\s")
_NAMED = re.compile(r"[\"']?[A-Z/~.]|[^\W\d]\S*[_/.\d]\S*")
_WHY = re.compile(r",?\s+(?:because|since|so that)\b")
_CONFIRMS = re.compile(
    r"(?:yes|yep|yeah|exactly|correct|right|confirmed|indeed|true|absolutely)"
    r"(?:[,.! ]+(?:that'?s|this is|that is|you are|you're|it is|it's)? ?(?:right|correct|true|exactly right|it|so))?"
    r"[.! ]*\Z"
    r"|(?:that'?s|that is|this is|you're|you are) (?:right|correct|true|exactly right)[.! ]*\Z",
    re.IGNORECASE,
)
_CHOICES = ("yes", "yep", "yeah", "right", "true", "absolutely", "indeed")  # alone they answer a question, or nod
_WORD = re.compile(r"\{(\w+)\}|\[([^\]]+)\]\s*|\(([^)]+)\)|(\s+)|([^\s{\[(]+)")
_KEYS = frozenset({"kind", "forms", "sure", "named", "except", "subject", "attribute"})
_LISTS = (
    *("openers", "remember", "hedges", "unsure", "points_elsewhere", "articles"),
    *("not_stated", "asks", "lists"),
)
_GROUPS = frozenset({"value", "text", "subject", "attribute"})


@dataclass(frozen=True)
class HeardTurn:
    """A turn as learning reads it. `text`: the question, without what was attached; `before`: the answer before it, '' at
    the beginning; `source`: of the memories."""

    uid: int
    text: str
    codex: str | None = None
    before: str = ""
    sigil: str = ""
    source: str = "user"


@dataclass(frozen=True)
class Statement:
    """A sentence that says something, read by a rule. `sure`: it may stand at once."""

    kind: Kind
    text: str
    subject: str = ""
    attribute: str = ""
    sure: bool = True
    trigger: str = ""


def learned(turn: HeardTurn, learn: Learn = "on") -> list[NewMemory]:
    """The memories that a turn makes, in the order in which they are said. `learn`: `proposed` lets none stand at once."""
    if learn == "off" or is_greeting(turn.text):
        return []
    said = statements(turn.text) or agreed(turn.text, turn.before)
    sure = learn == "on" and len(said) <= MOST and len(turn.text) <= LONG
    return [_memory(turn, one if sure else replace(one, sure=False)) for one in said]


def statements(text: str) -> list[Statement]:
    """What the user states in these words, each once."""
    rules = _rules()
    own = own_words(text)
    if rules.not_stated.match(_folded(own).lstrip()):
        return []
    procedures, rest = _procedures(own.split("\n"), rules)
    found = [_stated(sentence, rules) for sentence in _sentences(rest, rules)]
    return list(dict.fromkeys([*procedures, *(one for one in found if one is not None)]))


def agreed(text: str, before: str) -> list[Statement]:
    """The model's sentence that a turn of nothing but a yes confirms: never more than a proposal."""
    said = _folded(text).strip()
    if not _CONFIRMS.match(said) or said.rstrip(".! ").lower() in _CHOICES:
        return []
    stated = own_words(before).strip()
    sentences = [one for one in _SENTENCE.split(" ".join(stated.split())) if one]
    if len(sentences) != 1 or stated != before.strip() or not _says_something(sentences[0], _rules()):
        return []
    return [Statement(Kind.FACT, _sentence(sentences[0]), sure=False)]


def own_words(text: str) -> str:
    """Without code and pasted lines; names in backticks stay. In the place of a quote of more than two words stands a mark,
    because what is said with it cannot be understood alone."""
    without = _MAIL.sub("", _FENCED.sub("\n", read_part(text).translate(_APOSTROPHES)))
    lines = [line for line in without.split("\n") if not _PASTED.match(line)]
    return _QUOTED.sub(lambda one: MARK if len(one[0].split()) > 2 else one[0], _CODE.sub(r"\1", "\n".join(lines)))


# -- sentences


def _procedures(lines: Sequence[str], rules: "LearningRules") -> tuple[list[Statement], list[str]]:
    """Numbered steps behind a line that introduces them, and the lines that are left. What stands behind any other line
    with a colon is somebody's text, and numbered lines are no sentences."""
    found, rest, at = list[Statement](), list[str](), 0
    while at < len(lines):
        line = lines[at].strip()
        at += 1
        if not line.endswith(":"):
            rest += [] if _STEP.match(line) else [line]
            continue
        steps, end = _steps(lines, at)
        head = _headed(line, rules)
        if len(steps) >= STEPS and head is not None:
            found.append(Statement(Kind.PROCEDURE, "\n".join([_sentence(line), *steps]), sure=head))
            at = end
        elif not rules.lists.match(_folded(line)):
            break
    return found, rest


def _steps(lines: Sequence[str], at: int) -> tuple[list[str], int]:
    """Lines numbered from 1 in order, blank ones between them left out, and where they end."""
    steps = list[str]()
    while at < len(lines):
        found = _STEP.match(lines[at])
        if found is None and lines[at].strip():
            break
        if found is not None:
            if int(found[1]) != len(steps) + 1:
                break
            steps.append(f"{found[1]}. {found[2].strip()}")
        at += 1
    return steps, at


def _headed(line: str, rules: "LearningRules") -> bool | None:
    """Whether the steps behind this line are surely how something is done; None where it is not about that."""
    last = _SENTENCE.split(line)[-1].rstrip(": ")
    found = _read(last, rules, Kind.PROCEDURE)
    return None if found is None else found.sure


def _sentences(lines: Iterable[str], rules: "LearningRules") -> Iterator[str]:
    for line in lines:
        for one in _SENTENCE.split(_BULLET.sub("", line, count=1)):
            if one and _says_something(one, rules):
                yield one.strip()


def _says_something(sentence: str, rules: "LearningRules") -> bool:
    """A sentence of a usual length that is no question, no code, and quotes nobody."""
    folded = _folded(sentence).strip()
    if len(folded) > MOST_SENTENCE or folded.endswith(("?", ":", "…")) or "?" in folded:
        return False
    if _CODE_LIKE.search(sentence) or MARK in sentence:
        return False
    return rules.asks.search(folded) is None


def _stated(sentence: str, rules: "LearningRules") -> Statement | None:
    opened = rules.openers.match(_folded(sentence))
    rest = sentence[opened.end() :] if opened else sentence
    asked = opened is not None and opened["remember"] is not None
    hedged = opened is not None and opened["hedge"] is not None
    if not rest.strip(" .!,"):
        return None
    found = _read(rest, rules)
    if found is None and asked and len(rest.split()) > 2:
        found = Statement(Kind.FACT, _sentence(rest), sure=not _points(rest, rules))
    return None if found is None else replace(found, sure=found.sure and not hedged)


def _read(sentence: str, rules: "LearningRules", kind: Kind | None = None) -> Statement | None:
    """By the first form that fits; `kind`: of rules for this kind alone, else of all but procedures."""
    folded = _folded(sentence).strip().rstrip(".!")
    for rule in rules.rules:
        if (rule.kind is Kind.PROCEDURE) == (kind is Kind.PROCEDURE) and (match := rule.pattern(folded)):
            return _of_rule(rule, match, sentence.strip(), rules)
    return None


def _of_rule(rule: "LearningRule", match: re.Match[str], sentence: str, rules: "LearningRules") -> Statement | None:
    """None where it says nothing that can be understood alone."""
    groups = {name: (value or "").strip(" ,") for name, value in match.groupdict().items()}
    core = groups.get("value") or groups.get("text") or "-"
    if any(_is_pointer(value, rules) for value in groups.values() if value):
        return None
    unsure = _points(core, rules) or rules.unsure.search(_WHY.split(_folded(sentence))[0]) is not None
    unsure = unsure or ("value" in groups and core.split()[0] in rules.articles and not rule.named)
    return Statement(
        rule.kind,
        _sentence(sentence),
        _named(rule.subject, groups, rules),
        _named(rule.attribute, groups, rules),
        sure=rule.sure and not unsure,
        trigger=core if rule.kind is Kind.CENSOR else "",
    )


def _is_pointer(value: str, rules: "LearningRules") -> bool:
    """Nothing but words that stand for what another sentence says."""
    words = re.findall(r"[\w']+", value.lower())
    return bool(words) and all(one in rules.pointers or one in rules.articles for one in words)


def _points(text: str, rules: "LearningRules") -> bool:
    """Begins or ends with a word that stands for what another sentence says."""
    words = re.findall(r"[\w']+", _WHY.split(_folded(text))[0].lower())
    return bool(words) and (words[0] in rules.pointers or words[-1] in rules.pointers)


def _named(template: str, groups: Mapping[str, str], rules: "LearningRules") -> str:
    """A subject or an attribute in small letters without an article; '' for one that is no name."""
    filled = " ".join(template.format(**groups).lower().split())
    words = filled.split(" ")
    short = " ".join(words[1:] if words[0] in (*rules.articles, "our", "my", "all") else words)
    return short if len(short) <= MOST_NAMED else ""


def _sentence(text: str) -> str:
    """One line that begins with a large letter, as a name in small ones does not, and ends as a sentence."""
    line = " ".join(text.split()).strip(" ,")
    line = line if re.match(r"[a-z]+[A-Z_./]", line) else line[:1].upper() + line[1:]
    return line if line.endswith((".", "!", ":")) else f"{line}."


def _memory(turn: HeardTurn, said: Statement) -> NewMemory:
    """Of whoever asks it says so: the sentence stands without its conversation."""
    of_user = said.subject == USER
    censor = said.kind is Kind.CENSOR
    return NewMemory(
        uid=turn.uid,
        kind=said.kind,
        text=f"The user said: {said.text}" if of_user else said.text,
        codex=None if of_user else turn.codex,
        subject=said.subject if said.attribute or of_user else "",
        attribute=said.attribute if said.subject else "",
        source=turn.source,
        sigil=turn.sigil,
        confidence=1.0 if said.sure else UNSURE,
        trigger=said.trigger,
        watches=WatchedText.ANSWER if censor else None,
        severity=Severity.WARN if censor else None,
        state=None if said.sure else MemoryState.PROPOSED,
    )


def _folded(text: str) -> str:
    return text.translate(_APOSTROPHES)


# -- the rules


@dataclass(frozen=True)
class LearningRule:
    """One table of the file: forms that give a kind."""

    kind: Kind
    forms: tuple[re.Pattern[str], ...]
    excluded: re.Pattern[str]
    sure: bool = True
    named: bool = False
    subject: str = ""
    attribute: str = ""

    def pattern(self, sentence: str) -> re.Match[str] | None:
        found = (match for form in self.forms if (match := form.match(sentence)))
        return next(filter(self._may_be, found), None)

    def _may_be(self, match: re.Match[str]) -> bool:
        groups = match.groupdict()
        said = groups.get("text") or groups.get("value") or ""
        return not self.excluded.match(said) and not (self.named and not _NAMED.match(said))


@dataclass(frozen=True)
class LearningRules:
    """The whole file."""

    rules: tuple[LearningRule, ...]
    openers: re.Pattern[str]
    unsure: re.Pattern[str]
    not_stated: re.Pattern[str]
    asks: re.Pattern[str]
    lists: re.Pattern[str]
    pointers: frozenset[str]
    articles: frozenset[str]


@cache
def _rules() -> LearningRules:
    return read_rules(files(__package__).joinpath("learning.toml").read_text(encoding="utf-8"))


def read_rules(text: str) -> LearningRules:
    """`text`: TOML as in learning.toml. Raises SettingsError that names the faulty key."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise SettingsError(f"learning: {fault}", "write it as the shipped file is written") from fault
    if unknown := sorted(set(table) - {"rule", *_LISTS}):
        raise SettingsError(f"{unknown[0]}: there is no such key", instead(unknown[0], ["rule", *_LISTS], "", ""))
    words = {name: _phrases(table, "", name) for name in _LISTS}
    return LearningRules(
        rules=tuple(_rule(row, f"rule {number}") for number, row in enumerate(table.get("rule", []), 1)),
        openers=_openers(words),
        unsure=re.compile(rf"(?<!\w)(?:{_either(words['unsure'])})(?!\w)", re.IGNORECASE),
        not_stated=re.compile(
            rf"(?:please |now |then |can you |could you )*(?:{_either(words['not_stated'])})\b", re.I
        ),
        asks=re.compile(rf",\s*(?:{_either(words['asks'])})[.!]*\Z", re.IGNORECASE),
        lists=re.compile(rf"\s*(?:{_either(words['lists'])})\s*:\Z", re.IGNORECASE),
        pointers=frozenset(words["points_elsewhere"]),
        articles=frozenset(words["articles"]),
    )


def _rule(row: Mapping[str, Any], name: str) -> LearningRule:
    if unknown := sorted(set(row) - _KEYS):
        raise SettingsError(f"{name}.{unknown[0]}: there is no such key", instead(unknown[0], sorted(_KEYS), "", ""))
    if row.get("kind") not in list(Kind):
        raise SettingsError(f"{name}.kind: should be a kind of memories", f"there are: {', '.join(Kind)}")
    for key in ("sure", "named"):
        if not isinstance(row.get(key, True), bool):
            raise SettingsError(f"{name}.{key}: should be true or false", f"it is {row[key]!r}")
    for key in ("subject", "attribute"):
        given = row.get(key, "")
        if not isinstance(given, str) or set(re.findall(r"\{(.*?)\}", given)) - _GROUPS:
            raise SettingsError(f"{name}.{key}: should be words, or {{subject}} or {{attribute}}", f"it is {given!r}")
    forms = _phrases(row, f"{name}.", "forms")
    if not forms:
        raise SettingsError(f"{name}.forms: is missing", "a rule has forms of sentences")
    return LearningRule(
        kind=Kind(row["kind"]),
        forms=tuple(_form(one, f"{name}.forms") for one in forms),
        excluded=_excluded(_phrases(row, f"{name}.", "except")),
        sure=row.get("sure", True),
        named=row.get("named", False),
        subject=row.get("subject", ""),
        attribute=row.get("attribute", ""),
    )


def _form(form: str, name: str) -> re.Pattern[str]:
    """A form as a pattern of a whole sentence. Reasons may follow it."""
    parts = list[str]()
    for group, optional, chosen, blank, word in _WORD.findall(form):
        if group and group not in _GROUPS:
            raise SettingsError(f"{name}: {{{group}}} is no part of a form", f"there are: {', '.join(sorted(_GROUPS))}")
        some = _either((optional or chosen).split("|"))
        made = rf"(?P<{group}>\S.*?)" if group else rf"(?:(?:{some})(?:\s+|(?=[,:])))?" if optional else ""
        parts.append(made or (rf"(?:{some})" if chosen else r"\s+" if blank else re.escape(word)))
    try:
        return re.compile("".join(parts) + rf"(?:{_WHY.pattern}.*)?\Z", re.IGNORECASE)
    except re.error as fault:
        raise SettingsError(f"{name}: {form!r} is no form: {fault}", "each of its parts may come once") from fault


def _openers(words: Mapping[str, list[str]]) -> re.Pattern[str]:
    kept, hedge = _either(words["remember"]), _either(words["hedges"])
    return re.compile(
        rf"(?:(?:{_either(words['openers'])}|(?P<remember>{kept})|(?P<hedge>{hedge}))(?:\s*[,:;.!]\s*|\s+))+", re.I
    )


def _excluded(words: Sequence[str]) -> re.Pattern[str]:
    return re.compile(rf"(?:{_either(words)})(?![\w-])" if words else r"(?!)", re.IGNORECASE)


def _phrases(row: Mapping[str, Any], name: str, key: str) -> list[str]:
    phrases = row.get(key, [])
    if not isinstance(phrases, list) or not all(isinstance(one, str) and one for one in phrases):
        raise SettingsError(f"{name}{key}: should be a list of phrases", f"it is {phrases!r}")
    return phrases


def _either(phrases: Iterable[str]) -> str:
    """The longest first: `remember that` before `remember`."""
    return "|".join(re.escape(one) for one in sorted(phrases, key=lambda one: -len(one)))
