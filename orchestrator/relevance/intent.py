"""What a question asks of the memories: its frame, its intent, and the plan of what is looked up. Pure: patterns and data.

    question ─▶ Frame   what kind of talk this is: budget, window, priorities of the kinds (frames.toml)
             ─▶ QuestionIntent greeting, question, how recent, which kinds it hints at, names and words in it
             ─▶ MemoryPlan  a limit for each kind, the weight of recency, the budget of each kind in tokens

A greeting plans nothing. Long texts are read at both ends alone. Knows no memory, no model and no clock.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from codex.words import identifiers
from formatters.plugins import MemoryKind
from orchestrator.errors import InvalidRequest, SettingsError, instead
from orchestrator.prompt.phrases import read_part

KINDS = ("decision", "fact", "procedure", "episode")  # in the order in which they take what others leave
BUDGETS = {"decision": 2_000, "fact": 1_500, "procedure": 1_500, "episode": 1_000}
CANDIDATES = {"decision": 20, "fact": 30, "procedure": 10, "episode": 10}  # before ranking
ALWAYS = 2_000  # tokens of a frame's total for identity, censors, frame and focus
FLEXIBLE = sum(BUDGETS.values())
DOMINANT, OTHERS, EACH = 8, 3, 5  # most memories of a kind: of the hinted one, of the others, of each where none is
GREETING_TOKENS = 6
SHORT, LONG = 8, 60  # words of a question: a shorter one needs less, a longer one more
OTHER_PRIORITY = 0.5

_KEYS = frozenset(
    ("description", "questions", "begins", "holds", "short", "total", "window", "priorities", "budgets")
)  # of a frame in the file
_LEAVES = f"{ALWAYS:,} tokens of the total are for identity, censors, frame and focus"
_ASKS = re.compile(  # "do it" and "have a look" are orders
    r"\s*(?:(?:who|what|when|where|which|why|how|is|are|was|were|does|did|can|could|should|would|will|has)\b"
    r"|(?:do|have)\s+(?:i|we|you|they)\b)"
)
_GREETS = re.compile(
    r"(?:(?:hey|hi|hello|sup|yo|good morning|good evening|what's up)\b|(?:how are you|how's it going)(?=\W*$))\W*"
)
_RECENT = (
    (1.0, r"today|just now|right now|currently"),
    (0.8, r"yesterday|recently|this week"),
    (0.5, r"last week|(?:a )?few days ago"),
    (0.3, r"last month|a while ago"),
)
_ANY_RECENT = re.compile(rf"\b(?:{'|'.join(words for _, words in _RECENT)})\b")
_HINTS = {
    "decision": r"\bdecid|\bdecision|\bchoice\b|\bchose\b|\bshould we\b|\brecommend",
    "fact": r"\bwhat is\b|\btell me about\b|\bfact\b|\bknow about\b|\bdefinition\b",
    "procedure": r"\bhow do\b|\bhow to\b|\bhow can\b|\bsteps\b|\bprocess\b|\bworkflow\b|\bguide\b",
    "episode": r"\blast time\b|\bwhen did\b|\bhistory\b|\bstory\b|\bwhat happened\b",
}
_PAST = re.compile(
    r"\b(?:before|previous(?:ly)?|former(?:ly)?|earlier|originally|used to|once|no longer|any ?more|back then"
    r"|in the past|history|replaced|changed|ago|yesterday|last (?:week|month|year)|until (?:now|then)|old (?:one|value))\b"
)
_ANY_HINT = re.compile("|".join(f"(?P<{kind}>{words})" for kind, words in _HINTS.items()))
# A name begins where no letter and no hyphen stands before it: with \b each part of `a-a-a-…` began one, and 20,000
# characters took 1.7 s.
_PATH = re.compile(r"(?<!\S)[\w.-]*/[\w./-]+|(?<![\w-])[\w-]+\.[a-z]{1,4}\b")
# What stands before the first character is looked at behind it: a pattern that begins with a set of characters is searched
# for in a half to a tenth of the time.
_DATE = re.compile(r"\d(?<!\w\d)\d{3}-\d{2}-\d{2}\b")
_NAME = re.compile(r"[A-Z](?<!\w[A-Z])(?<![.?!]\s[A-Z])(?<!^[A-Z])[\w-]{2,}\b")
_FOLDS = str.maketrans({"’": "'", "‘": "'"})


@dataclass(frozen=True)
class Frame:
    """`total`: tokens; `window`: turns; `budgets`: of kinds, in the place of the usual ones."""

    name: str
    description: str
    total: int
    window: int
    priorities: Mapping[str, float]
    budgets: Mapping[str, int]
    questions: tuple[str, ...] = ()

    def priority(self, kind: str) -> float:
        return self.priorities.get(kind, OTHER_PRIORITY)


@dataclass(frozen=True)
class QuestionIntent:
    """`recency`: how much newer memories are preferred, 0..1. `hints`: by kind, 0.5 for each match. `entities`: names,
    paths, dates and symbols as they were written. `past`: it asks for what was, too."""

    greeting: bool
    question: bool
    recency: float
    hints: Mapping[str, float]
    entities: tuple[str, ...]
    past: bool = False

    @property
    def dominant(self) -> str | None:
        """The kind that it hints at most."""
        return max(self.hints, key=lambda kind: self.hints[kind], default=None)


@dataclass(frozen=True)
class MemoryPlan:
    """`limits`: most memories of each kind, `budgets`: most tokens of each, `candidates`: looked at before ranking. Empty:
    no query at all."""

    limits: Mapping[str, int]
    budgets: Mapping[str, int]
    candidates: Mapping[str, int]
    recency: float = 0.0

    def without(self, kinds: Collection[str]) -> "MemoryPlan":
        """The same, with nothing of these kinds."""
        return replace(self, limits={kind: most for kind, most in self.limits.items() if kind not in kinds})

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(kind for kind in self.limits if self.limits[kind] and self.budgets.get(kind))


NOTHING = MemoryPlan({}, {}, {})


def frame_of(question: str, named: str | None = None) -> Frame:
    """The client's word counts. Raises InvalidRequest for a frame that there is not."""
    frames = _frames()
    if named:
        if named not in frames:
            raise InvalidRequest(f"there is no frame {named!r}", instead(named, list(frames), "", ""))
        return frames[named][0]
    text = _folded(read_part(question))
    return next((frame for frame, pattern in frames.values() if pattern.search(text)), frames["question"][0])


def intent_of(question: str) -> QuestionIntent:
    read = read_part(question)
    text = _folded(read)
    matches = Counter(match.lastgroup for match in _ANY_HINT.finditer(text))
    return QuestionIntent(
        greeting=is_greeting(text),
        question=is_question(text),
        recency=_recency(text),
        hints={kind: 0.5 * matches[kind] for kind in _HINTS if matches[kind]},
        entities=_entities(read),
        past=_PAST.search(text) is not None,
    )


def is_greeting(text: str) -> bool:
    """A greeting and nothing else: it begins as one, nothing is asked behind it, and it has fewer than six tokens, a word
    and a sign being one each."""
    folded = _folded(read_part(text)).strip()
    at = 0
    while greets := _GREETS.match(folded, at):
        at = greets.end()
    asks = _ASKS.match(folded, at) is not None
    return at > 0 and not asks and len(re.findall(r"\w+|[^\w\s]", folded)) < GREETING_TOKENS


def is_question(text: str) -> bool:
    """It ends with a question mark, or begins with a word that asks."""
    folded = _folded(text)
    return folded.rstrip().endswith("?") or _ASKS.match(folded) is not None


def memory_plan(
    intent: QuestionIntent,
    frame: Frame,
    question_words: int,
    factor: float = 1.0,
    further: Sequence[MemoryKind] = (),
) -> MemoryPlan:
    """`factor` multiplies the limits: memory in advance by how full the context is; 0 plans nothing. `further`: kinds of
    packages, which no words hint at."""
    if intent.greeting or factor <= 0:
        return NOTHING
    dominant = intent.dominant
    usual = {
        kind: EACH if dominant is None else DOMINANT if kind == dominant else OTHERS
        for kind in (*KINDS, *(one.name for one in further))
    }
    limits = {kind: max(1, int(limit * factor)) for kind, limit in usual.items()}
    candidates = CANDIDATES | {one.name: one.candidates for one in further}
    return MemoryPlan(limits, budgets_of(frame, question_words, further), candidates, intent.recency)


def budgets_of(frame: Frame, question_words: int, further: Sequence[MemoryKind] = ()) -> dict[str, int]:
    """Tokens of each kind: its share of what the frame leaves, or what the frame says. Together never more than that."""
    flexible = max(0, frame.total - ALWAYS)
    usual = BUDGETS | {one.name: one.budget for one in further}
    scaled = {kind: tokens * flexible // FLEXIBLE for kind, tokens in usual.items()} | dict(frame.budgets)
    if question_words < SHORT:
        scaled = {kind: tokens // 2 for kind, tokens in scaled.items()}
    elif question_words > LONG:
        more = {"decision": 5, "procedure": 5}  # quarters
        scaled = {kind: tokens * more.get(kind, 3) // 4 for kind, tokens in scaled.items()}
    over = sum(scaled.values())
    return {kind: tokens * flexible // over if over > flexible else tokens for kind, tokens in scaled.items()}


def _recency(text: str) -> float:
    """That of the most recent time that is named."""
    if _ANY_RECENT.search(text) is None:
        return 0.0
    return next(weight for weight, words in _RECENT if re.search(rf"\b(?:{words})\b", text))


def _entities(text: str) -> tuple[str, ...]:
    found = [*_PATH.findall(text), *_DATE.findall(text), *identifiers(text), *_NAME.findall(text)]
    return tuple(dict.fromkeys(one.strip("./-") for one in found if one.strip("./-")))


def _folded(text: str) -> str:
    return text.translate(_FOLDS).lower()


@cache
def _frames() -> Mapping[str, tuple[Frame, re.Pattern[str]]]:
    return read_frames(files(__package__).joinpath("frames.toml").read_text(encoding="utf-8"))


def read_frames(text: str) -> Mapping[str, tuple[Frame, re.Pattern[str]]]:
    """By name, in the order in which they are tried, each with the pattern that finds it; of `question`, which is what is
    left, it finds nothing. `text`: TOML as in frames.toml. Raises SettingsError that names the faulty key."""
    table = tomllib.loads(text)
    if "question" not in table:
        raise SettingsError("frames: question is missing", "it is the frame of what no other one takes")
    return {name: (_frame(name, row), _pattern(row)) for name, row in table.items()}


def _frame(name: str, row: Mapping[str, Any]) -> Frame:
    if unknown := sorted(set(row) - _KEYS):
        raise SettingsError(f"{name}.{unknown[0]}: there is no such key", instead(unknown[0], sorted(_KEYS), "", ""))
    total = _number(row, name, "total", ALWAYS)
    frame = Frame(
        name=name,
        description=row.get("description", ""),
        total=total,
        window=_number(row, name, "window", 1),
        priorities=_of_kinds(row, name, "priorities", 1),
        budgets=_of_kinds(row, name, "budgets", total),
        questions=tuple(_phrases(row, name, "questions")),
    )
    for key in ("begins", "holds"):
        _phrases(row, name, key)
    if sum(frame.budgets.values()) > frame.total - ALWAYS:
        raise SettingsError(f"{name}.budgets: more than the {frame.total - ALWAYS:,} tokens that total leaves", _LEAVES)
    return frame


def _number(row: Mapping[str, Any], name: str, key: str, least: int) -> int:
    value = row.get(key)
    if type(value) is not int or value < least:
        raise SettingsError(f"{name}.{key}: should be a whole number of at least {least:,}", f"it is {value!r}")
    return value


def _of_kinds(row: Mapping[str, Any], name: str, key: str, most: float) -> dict[str, Any]:
    values = row.get(key, {})
    for kind, value in values.items():
        if kind not in KINDS:
            raise SettingsError(f"{name}.{key}.{kind}: there is no such kind", instead(kind, KINDS, "", ""))
        if type(value) not in (int, float) or not 0 <= value <= most:
            raise SettingsError(f"{name}.{key}.{kind}: should be from 0 to {most:,g}", f"it is {value!r}")
    return dict(values)


def _phrases(row: Mapping[str, Any], name: str, key: str) -> list[str]:
    phrases = row.get(key, [])
    if not isinstance(phrases, list) or not all(isinstance(one, str) and one for one in phrases):
        raise SettingsError(f"{name}.{key}: should be a list of phrases", f"it is {phrases!r}")
    return phrases


def _pattern(row: Mapping[str, Any]) -> re.Pattern[str]:
    parts = []
    if begins := row.get("begins"):
        end = r"\b(?:\W+\w+){0,3}\W*$" if row.get("short") else r"\b"
        parts.append(rf"\A\s*(?:please )?(?:{_either(begins)}){end}")
    if holds := row.get("holds"):
        parts.append(rf"(?<!\w)(?:{_either(holds)})(?!\w)")
    return re.compile("|".join(parts) or r"(?!)")


def _either(phrases: Iterable[str]) -> str:
    return "|".join(map(re.escape, phrases))
