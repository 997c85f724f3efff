"""Which memories a turn makes: what the user states, decides or confirms, by rule (learning.toml). Pure.

    1  only the user's own words are read     no code, no quotes, no log, nothing that stands behind a line with a colon
    2  sentence by sentence                   a question, a wish, a condition states nothing
    3  the first form that fits               gives kind, subject and attribute
    4  unsure, or pointing elsewhere          makes a proposal, which no model is shown

What the model said is never kept as it stands: an answer that the user confirms or votes up is proposed. Knows no store
and no model.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from orchestrator.karma.learning_rules import WHY, LearningRule, LearningRules, shipped_rules
from orchestrator.karma.records import DecisionOutcome, Kind, MemoryState, NewMemory, Severity, WatchedText
from orchestrator.karma.sizes import in_line
from orchestrator.prompt.phrases import read_part
from orchestrator.relevance.intent import is_greeting, is_question

Learn = Literal["on", "proposed", "off"]

MOST_SENTENCE = 400  # characters: what is longer is a pasted paragraph
LONG = 1_500  # characters of own words: more was written elsewhere, as a rule
MOST = 4  # memories of a turn: of more that fit all are proposed
MOST_PROPOSED = 12  # more than that are a pasted document, of which nothing is kept
MOST_NAMED = 60  # characters of a subject or an attribute
UNSURE = 0.5  # confidence of what is proposed
MARK = "\ufffc"  # stands for an object in a text
MOST_OUTCOME = 200  # characters of a turn that tells an outcome
MOST_QUOTED = 200  # characters of a question and of an answer in a counter-memory
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
_STEP = re.compile(r"\s{0,3}(\d{1,3})[.)]\s+(\S.*)")
_BULLET = re.compile(r"\s{0,3}[-*•]\s+")
# The head of a line, up to a colon that is none of a time's; a nick or a name with a time may stand without one.
_HEAD = re.compile(
    r"(?:[^\n:.!?]|\d:(?=\d\d)){1,60}:(?=\s+\S)|<\w[^>\n]{0,40}>|[\w ]{1,40}?[\[(]?\d{1,2}:\d\d(?: ?[AP]M)?[\])]?\s*\Z"
)
_LABEL = re.compile(r"[A-Z][\w'-]*(?: [A-Z][\w'-]*)?:")
_SENTENCE = re.compile(r"(?<=[.!?…])[\"')]*\s+(?=\S)")
_CODE_LIKE = re.compile(r"[{};]\s*$|=>|==|:=|\w\(\)|</|\w\s=\s\S|\breturn\s")


_CONFIRMS = re.compile(
    r"(?:yes|yep|yeah|exactly|correct|right|confirmed|indeed|true|absolutely)"
    r"(?:[,.! ]+(?:that'?s|this is|that is|you are|you're|it is|it's)? ?(?:right|correct|true|exactly right|it|so))?"
    r"[.! ]*\Z"
    r"|(?:that'?s|that is|this is|you're|you are) (?:right|correct|true|exactly right)[.! ]*\Z",
    re.IGNORECASE,
)
_OF_THE_MODEL = re.compile(r"\b(?:i|i'm|i'll|i've|my|me|we|you|your)\b", re.IGNORECASE)
_CHOICES = ("yes", "yep", "yeah", "right", "true", "absolutely", "indeed")  # alone they answer a question, or nod


@dataclass(frozen=True)
class HeardTurn:
    """A turn as learning reads it. `text`: the question, without what was attached; `earlier`: the questions before it, the
    last one last, and `before` the last answer, '' at the beginning; `procedures`: those that its prompt had, by id, as
    they were shown; `source`: of the memories."""

    uid: int
    text: str
    codex: str | None = None
    before: str = ""
    earlier: tuple[str, ...] = ()
    procedures: Mapping[str, str] = field(default_factory=dict)
    sigil: str = ""
    source: str = "user"


@dataclass(frozen=True)
class VotedAnswer:
    """A person's word on an answer. `moved`: it is another vote than before; `memories`: ids of those in its prompt;
    `may_write`: whether a memory may be made of it."""

    uid: int
    trace: str
    question: str
    answer: str
    up: bool
    note: str = ""
    codex: str | None = None
    memories: tuple[str, ...] = ()
    sigil: str = ""
    moved: bool = True
    may_write: bool = True

    @property
    def source(self) -> str:
        return f"trace:{self.trace}"


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
    if len(said) > MOST_PROPOSED:
        return []
    sure = learn == "on" and len(said) <= MOST and len(turn.text) <= LONG
    return [_memory(turn, one if sure else replace(one, sure=False)) for one in said]


def statements(text: str) -> list[Statement]:
    """What the user states in these words, each once."""
    rules = shipped_rules()
    own = own_words(text)
    if rules.not_stated.match(_folded(own).lstrip()):
        return []
    procedures, rest = _procedures(list(_unspoken(own.split("\n"), rules)), rules)
    found = [_stated(sentence, rules) for sentence in _sentences(rest, rules)]
    return list(dict.fromkeys([*procedures, *(one for one in found if one is not None)]))


def agreed(text: str, before: str) -> list[Statement]:
    """The model's sentence that a turn of nothing but a yes confirms: never more than a proposal."""
    said = _folded(text).strip()
    if not _CONFIRMS.match(said) or said.rstrip(".! ").lower() in _CHOICES:
        return []
    stated = own_words(before).strip()
    sentences = [one for one in _SENTENCE.split(" ".join(stated.split())) if one]
    if len(sentences) != 1 or stated != before.strip() or not _says_something(sentences[0], shipped_rules()):
        return []
    return [Statement(Kind.FACT, _sentence(sentences[0]), sure=False)]


def counter_memory(voted: VotedAnswer) -> NewMemory:
    """Why an answer was wrong, as a proposal that cites its trace."""
    asked, said = (in_line(text, MOST_QUOTED) for text in (voted.question, voted.answer))
    return _of_vote(voted, f'{_sentence(voted.note)} It was wrong to answer "{said}" to "{asked}".', "wrong")


def _of_vote(voted: VotedAnswer, text: str, attribute: str) -> NewMemory:
    return NewMemory(
        uid=voted.uid,
        kind=Kind.FACT,
        text=text,
        codex=voted.codex,
        subject=voted.source,
        attribute=attribute,
        source=voted.source,
        sigil=voted.sigil,
        state=MemoryState.PROPOSED,
    )


def verified_memory(voted: VotedAnswer) -> NewMemory | None:
    """What a person verified, as a proposal that cites its trace: a question that can be understood alone and its answer of
    one sentence. None of a longer, an unsure or a pasted answer, nor of one that speaks of itself or to the user."""
    rules = shipped_rules()
    asked, said = (" ".join(text.split()) for text in (voted.question, voted.answer))
    short = max(len(asked), len(said)) <= MOST_QUOTED and len(_SENTENCE.split(said)) == 1
    if not short or not is_question(asked) or is_greeting(asked):
        return None
    if own_words(voted.answer).strip() != _CODE.sub(r"\1", said):  # what stands in backticks within a line may stay
        return None
    if not _says_something(said, rules) or rules.unsure.search(_folded(said)) or _OF_THE_MODEL.search(_folded(said)):
        return None
    if not rules.pointers.isdisjoint(re.findall(r"[\w']+", _folded(asked).lower())):
        return None
    return _of_vote(voted, f'The right answer to "{asked}" is "{said}"', "right")


def outcome_told(text: str) -> DecisionOutcome | None:
    """What a short turn says of what was done before; None where it says nothing of that."""
    own = own_words(text).strip()
    first = next((one for one in _SENTENCE.split(own) if one.strip()), "")
    if len(own) > MOST_OUTCOME or not _says_something(first, rules := shipped_rules()):
        return None
    opened = rules.openers.match(first)
    if opened is not None and opened["hedge"] is not None:
        return None
    rest = first[opened.end() :] if opened else first
    found = rules.outcome.match(rest)
    return (
        None
        if found is None or rules.unsure.search(rest)
        else DecisionOutcome(str(found.lastgroup).rstrip("0123456789"))
    )


def last_decision(earlier: Sequence[str]) -> Statement | None:
    """The last decision that these questions state, which an outcome is about."""
    said = (one for text in reversed(earlier) for one in reversed(statements(text)) if one.kind is Kind.DECISION)
    return next(said, None)


def own_words(text: str) -> str:
    """Without code and pasted lines; names in backticks stay. In the place of a quote of more than two words stands a mark,
    because what is said with it cannot be understood alone."""
    without = _MAIL.sub("", _FENCED.sub("\n", read_part(text).translate(_APOSTROPHES)))
    lines = [line for line in without.split("\n") if not _PASTED.match(line)]
    return _QUOTED.sub(lambda one: MARK if len(one[0].split()) > 2 else one[0], _CODE.sub(r"\1", "\n".join(lines)))


# -- sentences


def _unspoken(lines: Sequence[str], rules: "LearningRules") -> Iterator[str]:
    """Without what others wrote: up to an empty line behind a head that says so, one line behind a mere label."""
    spoken = False
    for line in lines:
        head = _HEAD.match(line)
        if not line.strip():
            spoken = False
        elif head is not None and rules.openers.match(_folded(line)) is None:
            spoken = spoken or rules.others.match(head[0]) is not None
            if spoken or (_LABEL.fullmatch(head[0]) and _stated(_SENTENCE.split(line)[0], rules) is None):
                continue
        if not spoken:
            yield line


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
    if found is None:
        return None
    sure = found.sure or (asked and not _points(rest, rules))  # who says that it is to be kept is sure of it
    return replace(found, sure=sure and not hedged)


def _read(sentence: str, rules: "LearningRules", kind: Kind | None = None) -> Statement | None:
    """By the first form that fits; `kind`: of rules for this kind alone, else of all but procedures."""
    folded = _folded(sentence).strip().rstrip(".!")
    for rule in rules.rules:
        if (rule.kind is Kind.PROCEDURE) == (kind is Kind.PROCEDURE) and (match := rule.matched(folded)):
            return _of_rule(rule, match, sentence.strip(), rules)
    return None


def _of_rule(rule: "LearningRule", match: re.Match[str], sentence: str, rules: "LearningRules") -> Statement | None:
    """None where it says nothing that can be understood alone."""
    groups = {name: (value or "").strip(" ,") for name, value in match.groupdict().items()}
    core = groups.get("value") or groups.get("text") or "-"
    if any(_is_pointer(value, rules) for value in groups.values() if value):
        return None
    unsure = _points(core, rules) or rules.unsure.search(WHY.split(_folded(sentence))[0]) is not None
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
    words = re.findall(r"[\w']+", WHY.split(_folded(text))[0].lower())
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
