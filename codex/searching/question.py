"""What a question asks for, by its words: names written as code, plain words, exact strings, whether it mentions tests,
and whether it asks for tests.

A question can mention tests without asking for them: "why does the test of x fail" is answered by source as well, "which
tests check x" by tests only. A question asks for tests when a sentence asks for them by its first words ("run the tests"
does not) or ends in "tested", and when it is only "tests for x".

Exact strings are text in double quotes, text in backticks that is more than a name, and a question that is one piece of
code with punctuation (`__init__`, `foo->bar`, `std::move`, `--no-color`). Words alone would lose the punctuation.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from codex.archive.identifiers import compounds, flat, identifiers, query_words, split, stem
from codex.archive.identifiers import words as all_words

_TESTS = re.compile(r"\b(?i:test)|_test\b|\bTest[A-Z]|\b(?i:fixture)|\b(?i:spec)s?\b")
_TEST_NAMED = r"(?:tests\b|test (?:case|class|file|function|method|module|suite|checks|covers|fails|verifies))"
_OF_ANY_KIND = r"(?:(?:of|the|all|any|our|existing|unit|integration|regression|functional|end-to-end) )*"
_NO_CLAUSE = r"(?:(?!that\b|which\b|who\b|how\b|why\b|what\b|where\b|when\b|of\b|in\b|to\b)[\w.'-]+ ){0,3}"
_TESTS_WANTED = re.compile(
    r"(?i)(?:^|[.?!:]\s+)(?:please )?(?:(?:can|could|would) you )?"
    rf"(?:(?:which|what) {_OF_ANY_KIND}{_TEST_NAMED}"
    rf"|(?:where (?:are|is)|are there|is there|list|show|show me|find|give me) {_NO_CLAUSE}{_TEST_NAMED}"
    r"|(?:where|how) (?:are|is) [^.?!:]* tested\W*$)"
    rf"|\A{_OF_ANY_KIND}tests? (?:for|of|covering) (?!.*\bfail)[\w.'` -]+\??\Z"  # and nothing else is said
)
_CAPITALISED = re.compile(r"(?<![.?!]\s)(?<!^)\b[A-Z][A-Za-z]{3,}\b")  # a class named in a sentence
_QUOTED = re.compile(r"\"([^\"\n]{2,})\"|“([^“”\n]{2,})”")
_TICKED = re.compile(r"`([^`\n]{2,})`")
_PLAIN_NAME = re.compile(r"(?:[^\W_][\w]*\.)*[^\W_]\w*")  # the index finds it as it is
_EXACT_AT_MOST = 3
_PHRASE_WORDS = (5, 80)  # fewer are anywhere by chance; more are a page, and rarely copied without a gap


@dataclass(frozen=True)
class Question:
    """A question as search sees it. `names` are identifiers that it writes out, last part of a dotted one.

    `tests`: it mentions tests; `tests_wanted`: it asks for tests.
    `exact`: strings to be found unchanged; `quoted`: they were written in quotes.
    `phrase`: all words of a text that is no question and may have been copied from a file.
    `compounds`: names that its words may be together, as the index has names.
    """

    words: tuple[str, ...]
    stems: frozenset[str]
    names: frozenset[str]
    tests: bool
    tests_wanted: bool = False
    exact: tuple[str, ...] = ()
    quoted: bool = False
    phrase: tuple[str, ...] = ()
    compounds: frozenset[str] = frozenset()

    @property
    def terms(self) -> tuple[str, ...]:
        """What the index is asked for: the words, and what they may be together."""
        return (*self.words, *sorted(self.compounds.difference(self.words)))

    def calls(self, name: str) -> bool:
        """Whether words of it are this name when they are put together."""
        return flat(name) in self.compounds


def asked(question: str) -> Question:
    """Reads a question."""
    words = query_words(question)
    names = {name.rsplit(".", 1)[-1] for name in identifiers(question)} | set(_CAPITALISED.findall(question))
    quoted = _quoted(question)
    exact = quoted or _one_piece(question)
    tests, wanted = bool(_TESTS.search(question)), bool(_TESTS_WANTED.search(question))
    phrase = () if exact else _phrase(question)
    together = frozenset(compounds(question))
    return Question(
        *(tuple(words), frozenset(map(stem, words)), frozenset(names), tests, wanted, exact, bool(quoted), phrase),
        together,
    )


def _phrase(question: str) -> tuple[str, ...]:
    if question.rstrip().endswith("?"):
        return ()
    found = all_words(question)
    return tuple(found) if _PHRASE_WORDS[0] <= len(found) <= _PHRASE_WORDS[1] else ()


def _quoted(question: str) -> tuple[str, ...]:
    """The strings in quotes, each once."""
    marked = [first or second for first, second in _QUOTED.findall(question)]
    ticked = [text for text in _TICKED.findall(question) if not _is_name(text)]
    strings = (text.strip() for text in [*marked, *ticked])
    return tuple(dict.fromkeys(text for text in strings if text))[:_EXACT_AT_MOST]


def _one_piece(question: str) -> tuple[str, ...]:
    piece = question.strip().rstrip("?!,;")
    if not piece or any(letter.isspace() for letter in piece) or _PLAIN_NAME.fullmatch(piece):
        return ()
    return (piece,)


def _is_name(text: str) -> bool:
    """A name, dotted, called or private: its words are searched beside the question's other words."""
    return bool(_PLAIN_NAME.fullmatch(text.removesuffix("()").lstrip("._")))


@lru_cache(maxsize=200_000)
def name_stems(name: str) -> frozenset[str]:
    """Stems of a name's parts; of the whole when it has one."""
    parts = split(name)
    return frozenset(map(stem, parts[1:] or parts))


def overlap(question: Question, name: str) -> float:
    """Share of a name's parts that the question speaks of, 0 to 1."""
    parts = name_stems(name)
    return 0.0 if parts.isdisjoint(question.stems) else len(parts & question.stems) / len(parts)
