"""Search in an archive of 100,000 chunks: how long a question takes, an exact string, the way along the graph.

The codebase is what is installed beside Lorekeep, then again with its longer words changed, until it is large enough.
The questions are those of `code_questions`, about other code: most of their words are in it all the same.
"""

import json
import keyword
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from sysconfig import get_path

from cases_engine import Bench
from report import Row, at_most

from codex.archive.archive import Archive
from codex.archive.prepare import batches
from codex.documents import Document, digest_of
from codex.searching.neighbourhood import Neighbourhoods
from codex.searching.search import Search

CHUNKS, QUICK_CHUNKS = 100_000, 5_000
LARGEST = 200_000  # bytes of a file; larger ones are data
QUESTIONS = Path(__file__).parent / "code_questions" / "questions.jsonl"
STRINGS = ('"raise ValueError("', '"def __init__(self"', '"-> None:"', "__all__", '"no chunk holds this string"')
NOWHERE = ("no chunk holds this string", "ion of the tokens are", "fooBarBaz(", "std::nowhere->")
LONG_WORD = re.compile(r"\b[A-Za-z_]{7,}\b")
HITS = 10


def cases() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    return {"search in 100,000 chunks": search}


def search(bench: Bench) -> Iterator[Row]:
    """Times of whole calls, in one process and one after the other."""
    most = CHUNKS if max(bench.depths) > QUICK_CHUNKS else QUICK_CHUNKS
    with tempfile.TemporaryDirectory() as folder:
        stored(Archive(Path(folder)), most)
        archive = Archive(Path(folder))  # as a daemon meets it that has just started
        seconds = timed(lambda: archive.warm("large"))
        case = f"search in {archive.count('large'):,} chunks"
        yield Row(case, "warmed, once", seconds, unit="s", note="opens the tables, reads the definitions")
        searching, near = Search(archive), Neighbourhoods(archive)
        asked = questions()
        took = times(lambda question: searching.search(question, "large", HITS), asked * 2)
        yield at_most(case, "a question, p50", 1_000 * middle(took), 20, "ms")
        yield at_most(case, "a question, p99", 1_000 * took[len(took) * 99 // 100], 60, "ms")
        took = times(lambda string: searching.search(string, "large", HITS), STRINGS * 4)
        yield Row(case, "a string in quotes, p50", 1_000 * middle(took), unit="ms")
        yield Row(case, "a string in quotes, longest", 1_000 * took[-1], unit="ms")
        took = times(lambda string: archive.exact("large", string, HITS), NOWHERE * 10)
        yield at_most(case, "a string that nothing holds is ruled out, p50", 1_000 * middle(took), 30, "ms")
        seconds = timed(lambda: near.graph("large"))
        yield Row(case, "the graph, built once", seconds, unit="s")
        found = {question: searching.search(question, "large", HITS) for question in asked}
        took = times(lambda question: near.joined(question, "large", found[question], HITS), asked)
        yield at_most(case, "along the graph, p50", 1_000 * middle(took), 30, "ms")
        yield Row(case, "along the graph, p99", 1_000 * took[len(took) * 99 // 100], unit="ms")


def stored(archive: Archive, most: int) -> None:
    """At least `most` chunks under the name `large`, folded."""
    for batch in batches(codebase()):
        archive.replace("large", batch)
        if archive.count("large") >= most:
            break
    archive.optimize("large")


def codebase() -> Iterator[Document]:
    site = Path(get_path("purelib"))
    files = sorted(path for path in site.rglob("*.py") if 0 < path.stat().st_size <= LARGEST)
    for copy in range(100):
        for path in files:
            text = path.read_text("utf-8", errors="replace")
            name = path.relative_to(site).as_posix()
            yield document(f"copy{copy}/{name}", renamed(text, copy)) if copy else document(name, text)


def renamed(text: str, copy: int) -> str:
    """Other names, and the same words in them: `parse_header` becomes `parse_headerQ`."""
    return LONG_WORD.sub(lambda word: word[0] if keyword.iskeyword(word[0]) else word[0] + "Q" * copy, text)


def document(path: str, text: str) -> Document:
    raw = text.encode()
    return Document(path, text, digest_of(raw), len(raw))


def questions() -> list[str]:
    return [json.loads(line)["question"] for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]


def times(work: Callable[[str], object], given: Sequence[str]) -> list[float]:
    """Seconds of each call, in order of length."""
    return sorted(timed(partial(work, one)) for one in given)


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def middle(took: Sequence[float]) -> float:
    return took[len(took) // 2]
