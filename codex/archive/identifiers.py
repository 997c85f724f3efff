"""Words of code: identifiers whole and in their parts, lower-cased.

`getUserName` gives getusername, get, user, name; `HTTP_PORT2` gives http_port2, http, port2, port. Knows no language.

`stem` is a light English stemmer: it removes one ending, so that `merges`, `merged` and `merging` are equal. It is less
exact than the index's own and sufficient to compare a question's words with names.
"""

import re
from collections.abc import Sequence
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
_splits: dict[str, tuple[str, ...]] = {}
_ENDINGS = (
    "ations",
    "ation",
    "ings",
    "ing",
    "ies",
    "ied",
    "ions",
    "ion",
    "ors",
    "or",
    "ers",
    "er",
    "es",
    "ed",
    "s",
    "e",
)
_SHORTEST = 3  # letters that must be left


def words(text: str) -> list[str]:
    """Identifiers and words in order, each compound followed by its parts; lower case."""
    found: list[str] = []
    for word in _WORD.findall(text):
        if len(word) <= _WORD_CHARS and word.strip("_"):
            found.extend(_cached_split(word))
    return found


def query_words(text: str, at_most: int = 64) -> list[str]:
    """Distinct words of a question without stop words, in order; all of them when nothing else is left.

    One letter alone is a word where it was written as code: in quotes, or as a part of a name. A digit always is.
    """
    distinct = list(dict.fromkeys(words(text)))
    letters = _letters_meant(text) if any(map(_is_letter, distinct)) else frozenset()
    telling = [word for word in distinct if word in letters or not (word in STOP_WORDS or _is_letter(word))]
    return (telling or distinct)[:at_most]


def in_a_row(wanted: Sequence[str], text: str) -> bool:
    """Whether a text has these words one behind the other, whatever stands between them but words."""
    return f" {' '.join(wanted)} " in f" {' '.join(words(text))} "


def _is_letter(word: str) -> bool:
    return len(word) == 1 and word.isascii() and word.isalpha()


def _letters_meant(text: str) -> frozenset[str]:
    """Letters in quotes, and those that names have as parts; a and I are in too many sentences to be told by a part."""
    quoted = {letter.lower() for letter in _QUOTED_LETTER.findall(text)}
    parts = {part for word in _WORD.findall(text) for part in _cached_split(word)[1:]} if "_" in text else set()
    return frozenset(quoted | {part for part in parts if _is_letter(part)} - STOP_WORDS)


def identifiers(text: str) -> list[str]:
    """What looks like a name in code rather than a word: it has an underscore, a dot, inner capitals or digits."""
    names = re.findall(r"[A-Za-z_][\w]*(?:\.[A-Za-z_]\w*)*", text)
    return list(dict.fromkeys(name for name in names if is_identifier(name)))


def is_identifier(word: str) -> bool:
    """Whether a word is written as only code is written (`get_name`, `getName`, `os.path`)."""
    return bool(_CODE_MARK.search(word))


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
        whole, *parts = _cached_split(word)
        pieces.extend(parts or [whole])
        runs.append(tuple(parts))
    if len(pieces) > at_most:
        return []
    runs.extend(tuple(pieces[at : at + length]) for length in (2, 3) for at in range(len(pieces) - length + 1))
    return list(dict.fromkeys(mark.join(run) for run in runs if len(run) > 1 for mark in ("", "_")))


def flat(name: str) -> str:
    """A name as one word, however its parts are parted: `GZipMiddleware` and `gzip_middleware` are gzipmiddleware."""
    return name.replace("_", "").lower()


def split(word: str) -> tuple[str, ...]:
    """One identifier: itself, then its parts when it has more than one."""
    whole = word.strip("_").lower()
    parts = _PART.findall(word)
    if len(parts) < 2:
        return (whole,)
    small = tuple(part.lower() for part in parts)
    return (whole, *(part for part in small if not part.isdigit()))


def _cached_split(word: str) -> tuple[str, ...]:
    """A codebase has few distinct words and many of each: remembering them makes indexing four times faster."""
    cached = _splits.get(word)
    if cached is None:
        if len(_splits) > 200_000:
            _splits.clear()
        cached = _splits[word] = split(word)
    return cached


@lru_cache(maxsize=100_000)
def stem(word: str) -> str:
    """The word without one ending."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST:
            return word[: -len(ending)]
    return word
