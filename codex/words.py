"""Words of code and of questions about it.

A word of code is an identifier whole and in its parts, lower-cased: `getUserName` gives getusername, get, user, name;
`HTTP_PORT2` gives http_port2, http, port2, port. `stem` is a light English stemmer: it removes one ending, so that
`merges`, `merged` and `merging` are equal. It is less exact than the index's own and sufficient to compare a question's
words with names.

A question is read for names written as code, plain words, exact strings, whether it mentions tests, and whether it asks
for tests. It can mention tests without asking for them: "why does the test of x fail" is answered by source as well,
"which tests check x" by tests only. It asks for tests when a sentence asks for them by its first words ("run the tests"
does not) or ends in "tested", and when it is only "tests for x".

Exact strings are text in double quotes, text in backticks that is more than a name, and a question that is one piece of
code with punctuation (`__init__`, `foo->bar`, `std::move`, `--no-color`). Words alone would lose the punctuation.

Knows no language.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

_WORD = re.compile(r"\w+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+|\d+")
_CODE_MARK = re.compile(r"\w_\w|^_\w|\w\.\w|[a-z][A-Z]")
_QUOTED_LETTER = re.compile(r"""(?<!\w)[`"']([A-Za-z])[`"'](?!\w)""")
_WORD_CHARS = 64  # a longer one is data: base64, a hash, a minified line
# English function words: they say nothing about code, and every file has them.
_FUNCTION_WORDS = """
    a about above after again all also am an and any are as at be because been before being below between both but by
    can cannot could did do does doing done down during each either ever few for from further had has have having he her
    here hers him his how i if in into is it its itself just let me more most must my no nor not of off on once only or
    other our out over own per please same shall she should so some such than that the their them then there these they
    this those through thus to too under until up upon us very was we were what when where whether which while who whom
    whose why will with within without would you your
"""
STOP_WORDS = frozenset(_FUNCTION_WORDS.split())
_LONGEST_FIRST = "ations ation ings ing ies ied ions ion ors or ers er es ed s e"
_ENDINGS = _LONGEST_FIRST.split()
_SHORTEST = 3  # letters that must be left
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
    `alone`: the name, last part of a dotted one, that is all it says; where that is defined is what is asked.
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
    alone: str = ""

    @property
    def terms(self) -> tuple[str, ...]:
        """What the index is asked for: the words, and what they may be together."""
        return (*self.words, *sorted(self.compounds.difference(self.words)))

    def calls(self, name: str) -> bool:
        """Whether words of it are this name when they are put together."""
        return bool(self.compounds) and flat(name) in self.compounds

    def calls_one(self, names: Iterable[str]) -> bool:
        """Whether they are one of these names."""
        return bool(self.compounds) and not self.compounds.isdisjoint(map(flat, names))


def asked(question: str) -> Question:
    """Reads a question."""
    wanted = query_words(question)
    names = {name.rsplit(".", 1)[-1] for name in identifiers(question)} | set(_CAPITALISED.findall(question))
    quoted = _quoted(question)
    exact = quoted or _one_piece(question)
    return Question(
        words=tuple(wanted),
        stems=frozenset(map(stem, wanted)),
        names=frozenset(names),
        tests=bool(_TESTS.search(question)),
        tests_wanted=bool(_TESTS_WANTED.search(question)),
        exact=exact,
        quoted=bool(quoted),
        phrase=() if exact else _phrase(question),
        compounds=frozenset(compounds(question)),
        alone=question.strip().rsplit(".", 1)[-1] if _PLAIN_NAME.fullmatch(question.strip()) else "",
    )


def _phrase(question: str) -> tuple[str, ...]:
    if question.rstrip().endswith("?"):
        return ()
    found = words(question)
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


def words(text: str) -> list[str]:
    """Identifiers and words in order, each compound followed by its parts; lower case."""
    found: list[str] = []
    for word in _WORD.findall(text):
        if len(word) <= _WORD_CHARS and word.strip("_"):
            found.extend(split(word))
    return found


def query_words(text: str, at_most: int = 64) -> list[str]:
    """Distinct words of a question without stop words, in order; all of them when nothing else is left.

    One letter alone is a word where it was written as code: in quotes, or as a part of a name. A digit always is.
    """
    distinct = list(dict.fromkeys(words(text)))
    letters = _letters_meant(text) if any(map(_is_letter, distinct)) else frozenset()
    wanted = [word for word in distinct if word in letters or not (word in STOP_WORDS or _is_letter(word))]
    return (wanted or distinct)[:at_most]


def in_a_row(wanted: Sequence[str], text: str) -> bool:
    """Whether a text has these words one behind the other, with anything but words between them."""
    return f" {' '.join(wanted)} " in f" {' '.join(words(text))} "


def _is_letter(word: str) -> bool:
    return len(word) == 1 and word.isascii() and word.isalpha()


def _letters_meant(text: str) -> frozenset[str]:
    """Letters in quotes, and those that names have as parts; a and I are in too many sentences to be meant by a part."""
    quoted = {letter.lower() for letter in _QUOTED_LETTER.findall(text)}
    parts = {part for word in _WORD.findall(text) for part in split(word)[1:]} if "_" in text else set()
    return frozenset(quoted | {part for part in parts if _is_letter(part)} - STOP_WORDS)


def identifiers(text: str) -> list[str]:
    """What looks like a name in code rather than a word: it has an underscore, a dot, inner capitals or digits."""
    names = re.findall(r"[A-Za-z_][\w]*(?:\.[A-Za-z_]\w*)*", text)
    return list(dict.fromkeys(name for name in names if _CODE_MARK.search(name)))


def compounds(text: str, at_most: int = 6) -> list[str]:
    """What the words of a question may be called as one name, as `words` has names: `gzip middleware` gives gzipmiddleware
    and gzip_middleware. Two or three words in a row, stop words passed over, or a name with all of its parts; of a text of
    at most so many words: in a longer one too many stand side by side that are some variable's name.
    """
    pieces: list[str] = []
    runs: list[tuple[str, ...]] = []
    for word in _WORD.findall(text):
        if len(word) > _WORD_CHARS or word.lower() in STOP_WORDS:
            continue
        whole, *parts = split(word)
        pieces.extend(parts or [whole])
        runs.append(tuple(parts))
    if len(pieces) > at_most:
        return []
    runs.extend(tuple(pieces[at : at + length]) for length in (2, 3) for at in range(len(pieces) - length + 1))
    return list(dict.fromkeys(mark.join(run) for run in runs if len(run) > 1 for mark in ("", "_")))


@lru_cache(maxsize=200_000)
def flat(name: str) -> str:
    """A name as one word, however its parts are parted: `GZipMiddleware` and `gzip_middleware` are gzipmiddleware."""
    return name.replace("_", "").lower()


@lru_cache(maxsize=200_000)
def split(word: str) -> tuple[str, ...]:
    """One identifier: itself, then its parts when it has more than one.

    A codebase has few distinct words and many of each: the cache makes indexing four times faster.
    """
    whole = word.strip("_").lower()
    parts = _PART.findall(word)
    if len(parts) < 2:
        return (whole,)
    small = tuple(part.lower() for part in parts)
    return (whole, *(part for part in small if not part.isdigit()))


@lru_cache(maxsize=100_000)
def stem(word: str) -> str:
    """The word without one ending."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST:
            return word[: -len(ending)]
    return word
