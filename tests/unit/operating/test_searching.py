"""What a search reports of its hits."""

import anyio

from codex.archive.memory import MemoryArchive
from codex.documents import Document
from codex.searching.neighbourhood import Neighbourhoods
from codex.searching.search import Search
from orchestrator.operating.searching import ArchiveSearch

FILES = {
    "src/errors.py": 'raise ValueError("no such header here")\n',
    "src/header.py": "def header():\n    return no_such_header(here)\n",
}


def report(query):
    archive = MemoryArchive()
    archive.replace("c", [Document(path, text, path, len(text)) for path, text in FILES.items()])
    search = ArchiveSearch(Search(archive), Neighbourhoods(archive))
    hits = anyio.run(search.report, query, "c", 10)["hits"]
    return {hit["path"]: hit["exact"] for hit in hits}


def test_a_hit_that_holds_what_was_quoted_is_marked_and_one_with_its_words_is_not():
    assert report('"no such header here"') == {"src/errors.py": True, "src/header.py": False}


def test_where_nothing_was_quoted_no_hit_is_marked():
    assert set(report("which header is here").values()) == {False}
