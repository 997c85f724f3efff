"""Law: what is read of a user's text or of a file takes time in proportion to it, whatever signs it consists of.

Everything here holds the interpreter's lock: what takes the square of its input stops the whole daemon. Measured is the
thread's own time, which other programs do not lengthen, and only how it grows: twice the input, about twice the time.
"""

import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from codex.asked import asked
from codex.cited import cited
from codex.codex_names import name_from
from codex.documents import decode, name_of
from codex.errors import SourceError
from codex.identifiers import identifiers, query_words, words
from codex.lore_file import parse_lore_file
from codex.modules import Modules
from codex.plain import first_lines, plain_symbols
from codex.roles import role_of
from codex.secrets import find_secret
from codex.signatures import _TAG, _bare
from governor.errors import GovernorError
from governor.settings import limit_bytes
from orchestrator.api.complaints import place_of
from orchestrator.context.answer_text import AnswerParser
from orchestrator.context.naming import named_documents
from orchestrator.context.phrases import shipped
from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.schema import check_pattern, grammar_of, nesting
from orchestrator.engine.text import TextStream
from orchestrator.errors import LoreError
from orchestrator.grounding import quotable
from orchestrator.pointing import lines_of
from orchestrator.sessions.names import checked
from orchestrator.settings.edit import comment_of, with_value
from orchestrator.settings.units import as_limit, in_seconds
from orchestrator.shelf.known_lines import EXCERPT, LISTED
from orchestrator.wire.places import is_url

SIZE = 10_000
NOISE_S = 0.04  # below this a machine's own unsteadiness is all that is measured
PATHS = tuple(f"src/part{number}/a{number % 7}.py" for number in range(300))
SECRETS = "PRIVATE KEY T3BlbkFJ ghp_ xox hooks.slack.com/services/ sk-ant- AIza AKIA npm_ SG. AccountKey= curl "

SIGNS = (
    "a",
    "A",
    "é",
    "7",
    "_",
    ".",
    "/",
    "\\",
    "-",
    ":",
    ",",
    "=",
    "#",
    "`",
    '"',
    "'",
    "“",
    "*",
    "<",
    "[",
    "(",
    "{",
    "!",
)
BLANKS = (" ", "\n", "\t", "\r", "\u2028", "\x00")
PAIRS = (
    "a.",
    "a ",
    "a/",
    "_a",
    "/.",
    "a\n",
    "\n ",
    ". ",
    "<a",
    "a=",
    '\\"',
    "\\n",
    "1-",
    "“a",
    "[a",
    "a:",
    "a@",
    "A1",
    "#\n",
)
WORDS = (
    *(
        "which of ",
        "sk-",
        "a.py:1 ",
        "x/y.py ",
        "Selected is ",
        "fact ",
        "how is tested ",
        "a://",
        "'a\n",
        "= \n",
        "L1",
        "curl -H ",
        "ghp_a",
        "eyJ.",
        "http://a:A1b",
    ),
    *("-----BEGIN PRIVATE KEY-----X: ", "-----BEGIN PRIVATE KEY-----\nA: b\n", "<tool_call>", "<think>", "lines 1 of "),
)
RUNS = (*SIGNS, *BLANKS, *PAIRS, *WORDS)


def _schema(text: str) -> None:
    nesting(text)
    with suppress(SchemaRefused):
        check_pattern(text)
    with suppress(SchemaRefused):
        grammar_of(text)


def _settings(text: str) -> None:
    for read in (as_limit, in_seconds):
        with suppress(ValueError):
            read("1" + text + "!")
    with suppress(GovernorError):
        limit_bytes("1" + text + "!", 1)
    with suppress(LoreError, ValueError):
        with_value(f"[model]\npath = 'a' # {text}", "model", "path", "b")
    comment_of(f'path = {text}"')
    comment_of(f"path = '{text}")


def _lore_file(text: str) -> None:
    for written in (text, f"tier = '{text}", f"a{text}"):
        with suppress(SourceError):
            parse_lore_file(written.encode(errors="replace"), "here")


def _answer(text: str) -> None:
    parser = AnswerParser()
    list(parser.feed(text))
    list(parser.end())
    for stop in (text[:200] + "x", "<" + text[:200]):
        stream = TextStream((stop,))
        stream.push(text.encode())
        stream.finish()


def _session(text: str) -> None:
    with suppress(LoreError):
        checked(text)


READERS: dict[str, Callable[[str], object]] = {
    "files that a question names": lambda text: named_documents(text, PATHS),
    "words": words,
    "words of a question": query_words,
    "identifiers": identifiers,
    "a question": asked,
    "places that an answer cites": lambda text: cited(text, lambda name: False),
    "places that name a file": lambda text: cited(text + " a.py:1", lambda name: name == "a.py"),
    "phrases": lambda text: [
        shipped(name).found_in(text) for name in ("rag_critical", "stuff_friendly", "hybrid", "memory")
    ],
    "a selection": lambda text: lines_of(text, text + "\n"),
    "quotes": lambda text: quotable(text, text),
    "lines of a map": lambda text: [list(LISTED.finditer(text)), list(EXCERPT.finditer(text))],
    "secrets": lambda text: find_secret((SECRETS + "-----BEGIN PRIVATE KEY-----" + text).encode()),
    "headings": plain_symbols,
    "first lines": lambda text: first_lines(text, 20),
    "comments of a definition": lambda text: [_TAG.sub("", _bare(text)), _TAG.sub("", _bare(f"a{text}a"))],
    "bytes of a file": lambda text: decode(text.encode() + b"\xff"),
    "a file's name": lambda text: [name_of(text), role_of(text), name_from(text)],
    "imports": lambda text: Modules(PATHS).of(text),
    "a schema": _schema,
    "an answer": _answer,
    "settings": _settings,
    "`.lore.toml`": _lore_file,
    "a session's name": _session,
    "a place": is_url,
    "a field's name": lambda text: place_of((text, "str" + text)),
}


@pytest.mark.parametrize("reader", READERS)
def test_twice_the_text_takes_at_most_about_three_times_the_time(reader: str) -> None:
    read = READERS[reader]
    read("warm")
    grew = [
        run for run in RUNS for whole in (run, f"x{run}") if not any(_in_proportion(read, run, whole) for _ in range(3))
    ]
    assert grew == []


def _in_proportion(read: Callable[[str], object], run: str, whole: str) -> bool:
    head = whole.removesuffix(run)
    once, twice = (head + run * (size // len(run)) for size in (SIZE, 2 * SIZE))
    return _took(read, twice) <= 3 * _took(read, once) + NOISE_S


def _took(read: Callable[[str], object], text: str) -> float:
    began = time.thread_time()
    read(text)
    return time.thread_time() - began
