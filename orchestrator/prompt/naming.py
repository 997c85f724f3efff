"""Which files of a codex a question names: by path, by the end of a path, or by a name that only one file has.

Pure; knows paths, not files.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

_RUN = re.compile(r"[\w./\\-]+")
_PATHLIKE = re.compile(r"[\w./\\-]*[\w-]\.\w+|[\w.-]+(?:/[\w.-]+)+")  # takes the square of what it is given
_RUN_CHARS = 300  # a longer one is data; a name has at most 255
_MOST = 8  # a question that names more is about the whole


def named_documents(question: str, paths: Sequence[str]) -> tuple[str, ...]:
    """The paths that the question names, in the order of `paths`, at most a few."""
    runs = (run for run in set(_RUN.findall(question)) if len(run) <= _RUN_CHARS)
    words = {_clean(word) for run in runs for word in _PATHLIKE.findall(run)} - {""}
    if not words:
        return ()
    names = Counter(path.rpartition("/")[2] for path in paths)
    return tuple(path for path in paths if _is_named(path, words, names))[:_MOST]


def _clean(word: str) -> str:
    return word.replace("\\", "/").removeprefix("./").strip(".")


def _is_named(path: str, words: set[str], names: Counter[str]) -> bool:
    name = path.rpartition("/")[2]
    if name in words and names[name] == 1:
        return True
    return path in words or any(end in words for end in _ends(path))


def _ends(path: str) -> Iterator[str]:
    """What a path ends in, from folders on: by these, and not by the words, as a question may have 100,000 of them."""
    at = path.find("/")
    while at >= 0:
        end = path[at + 1 :]
        if "/" in end:
            yield end
        at = path.find("/", at + 1)
