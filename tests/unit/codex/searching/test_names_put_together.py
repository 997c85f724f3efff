"""Words of a question that are a name when they are put together."""

import pytest
from support.memory_archive import MemoryArchive

from codex.documents import Document
from codex.searching.search import ChunkHit, Search
from codex.words import asked


def hits(question: str, files: dict[str, str]) -> tuple[ChunkHit, ...]:
    archive = MemoryArchive()
    archive.replace("c", [Document(path, text, path, len(text)) for path, text in files.items()])
    return Search(archive).search(question, "c").hits


GZIP = {
    "middleware/gzip.py": "class GZipMiddleware:\n    def __init__(self, app):\n        self.app = app\n"
    + "\n" * 40
    + "def gzip_gzip_middleware_limit():\n    return gzip.middleware or gzip.middleware_gzip\n" * 12,
    "middleware/base.py": "class Middleware:\n    pass  # middleware, middleware\n",
    "docs.py": "text = 'gzip, gzip and middleware: gzip middleware'\n",
}


@pytest.mark.parametrize(
    "question",
    ["gzip middleware", "GZipMiddleware", "gzip_middleware", "gzipMiddleware", "where is the gzip middleware?"],
)
def test_a_definition_that_the_words_are_called_together_comes_first(question: str) -> None:
    first = hits(question, GZIP)[0]
    assert first.text.startswith("class GZipMiddleware")


@pytest.mark.parametrize("question", ["user name", "getUserName", "get the user name"])
def test_a_name_in_snake_case_is_found_by_its_words_and_as_others_write_it(question: str) -> None:
    files = {
        "a.py": "# the user, the name, to get the user: get a name\nuser = name = get\n",
        "b.py": "def get_user_name():\n    pass\n\n\ndef user_name():\n    pass\n",
    }
    assert hits(question, files)[0].path == "b.py"


def test_in_a_long_sentence_two_words_side_by_side_are_no_name() -> None:
    assert asked("gzip middleware").calls("GZipMiddleware")
    assert not asked("what does a gzip middleware do with large bodies of responses that were compressed twice").calls(
        "GZipMiddleware"
    )
