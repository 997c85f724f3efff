"""Which files of a codex a question names: by path, by the end of a path, or by a name that only one file has.

Pure; knows paths, not files.
"""

import re
from collections import Counter
from collections.abc import Sequence

_PATHLIKE = re.compile(r"[\w./\\-]*[\w-]\.\w+|[\w.-]+(?:/[\w.-]+)+")
_MOST = 8  # a question that names more is about the whole


def named_documents(question: str, paths: Sequence[str]) -> tuple[str, ...]:
    """The paths that the question names, in the order of `paths`, at most a few."""
    words = {_clean(word) for word in _PATHLIKE.findall(question)} - {""}
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
    return any("/" in word and (path == word or path.endswith(f"/{word}")) for word in words) or path in words
