"""Outlines in every language that has a grammar, and of what has none or goes wrong."""

import time

import pytest

from codex.documents import Document
from codex.languages import LANGUAGES, language_of, query_of
from codex.symbols import outline


def of(path: str, text: str) -> list[tuple[str, str, int, int]]:
    found = outline(Document(path, text, "", len(text)))
    return [(symbol.qualname, symbol.kind, symbol.start, symbol.end) for symbol in found.symbols]


SAMPLES = {
    "a.py": ("class A(B):\n    def m(self): pass\n", [("A", "class", 1, 2), ("A.m", "method", 2, 2)]),
    "a.js": (
        "class A { m() { return 1 } }\nconst f = () => 2\n",
        [("A", "class"), ("A.m", "method"), ("f", "function")],
    ),
    "a.ts": ("export interface I { x: string }\nfunction f(): I {}\n", [("I", "interface"), ("f", "function")]),
    "a.tsx": ("export const C = () => <div/>;\n", [("C", "function")]),
    "a.c": ("struct s { int x; };\nstatic int *f(void) { return 0; }\n", [("s", "struct"), ("f", "function")]),
    "a.cpp": (
        "namespace n {\nclass A { void m() {} };\n}\nvoid n::A::k() {}\n",
        [("n", "module"), ("n.A", "class"), ("n.A.m", "method"), ("n.A.k", "function")],
    ),
    "a.cs": (
        "namespace N { class A { int M() { return 1; } } }\n",
        [("N", "module"), ("N.A", "class"), ("N.A.M", "method")],
    ),
    "a.rs": (
        "struct S;\nimpl S { fn m(&self) {} }\ntrait T { fn r(&self); }\n",
        [("S", "struct"), ("S", "impl"), ("S.m", "method"), ("T", "interface"), ("T.r", "declaration")],
    ),
    "a.go": (
        "package p\ntype S struct{}\nfunc (s S) M() {}\nfunc F() {}\n",
        [("S", "struct"), ("M", "method"), ("F", "function")],
    ),
    "a.java": ("class A { void m() {} enum E { X } }\n", [("A", "class"), ("A.m", "method"), ("A.E", "enum")]),
    "a.rb": (
        "module M\n  class A\n    def m; end\n  end\nend\n",
        [("M", "module"), ("M.A", "class"), ("M.A.m", "method")],
    ),
    "a.php": (
        "<?php\nclass A { function m() {} }\nfunction f() {}\n",
        [("A", "class"), ("A.m", "method"), ("f", "function")],
    ),
    "a.sh": ("f() {\n  echo 1\n}\nX=1\n", [("f", "function"), ("X", "variable")]),
    "a.html": ('<div id="top"></div>\n', [("top", "element")]),
    "a.css": (".a { color: red }\n", [(".a", "rule")]),
    "a.json": ('{"a": {"b": 1}, "c": 2}\n', [("a", "key"), ("c", "key")]),
    "a.toml": ("[tool.x]\na = 1\n[[list]]\n", [("tool.x", "key"), ("list", "key")]),
    "a.yaml": ("a: 1\nb:\n  c: 2\n", [("a", "key"), ("b", "key")]),
    "a.md": ("# One\ntext\n## Two\nmore\n", [("One", "section"), ("Two", "section")]),
    "a.sql": ("CREATE TABLE t (id INT);\n", [("t", "table")]),
    "a.scala": ("object O { def f(x: Int) = x }\n", [("O", "object"), ("O.f", "method")]),
    "a.kt": ("class A { fun m() {} }\n", [("A", "class"), ("A.m", "method")]),
    "a.lua": ("function f() end\nlocal g = function() end\n", [("f", "function"), ("g", "function")]),
    "a.swift": (
        "class A { func m() {} }\nextension A { func n() {} }\n",
        [("A", "class"), ("A.m", "method"), ("A", "impl"), ("A.n", "method")],
    ),
    "a.hs": ("f :: Int -> Int\nf 0 = 1\nf n = n\ng x = x\n", [("f", "function", 1, 3), ("g", "function", 4, 4)]),
    "a.ex": (
        "defmodule A do\n  def f(0), do: 1\n  def f(n), do: n\n  defp g(x), do: x\nend\n",
        [("A", "module", 1, 5), ("A.f", "function", 2, 3), ("A.g", "function", 4, 4)],
    ),
    "a.zig": ("const S = struct {\n    fn m() void {}\n};\n", [("S", "struct"), ("S.m", "method")]),
}


@pytest.mark.parametrize("path", SAMPLES)
def test_definitions_are_found_in(path: str) -> None:
    text, expected = SAMPLES[path]
    assert [found[: len(expected[0])] for found in of(path, text)] == expected


def test_every_language_has_a_query_that_its_grammar_accepts() -> None:
    assert {language.name for language in LANGUAGES if query_of(language).pattern_count} == {
        language.name for language in LANGUAGES
    }
    assert {language_of(path) for path in SAMPLES} >= set(LANGUAGES)


def test_a_symbol_has_its_signature_and_first_doc_line() -> None:
    text = '@cached\ndef f(\n    a: int,\n    b: str = "x",\n) -> int:\n    """Adds.\n\n    More."""\n    return a\n'
    symbol = outline(Document("a.py", text, "", 0)).symbols[0]
    assert symbol.signature == 'def f(a: int, b: str = "x") -> int'
    assert (symbol.doc, symbol.start, symbol.end) == ("Adds.", 1, 9)


def test_a_comment_above_is_the_doc_of_a_language_without_docstrings() -> None:
    text = "// Opens the door.\n// Twice.\nfunc Open() {}\n"
    assert outline(Document("a.go", "package p\n" + text, "", 0)).symbols[0].doc == "Opens the door."
    text = "/**\n * Closes it.\n */\nvoid close_it(void) {}\n"
    assert outline(Document("a.c", text, "", 0)).symbols[0].doc == "Closes it."


def test_references_and_imports_are_told_with_their_lines() -> None:
    text = "from a.b import c\nimport os\nclass D(Base):\n    def m(self, x: Thing):\n        return c(x).run()\n"
    found = outline(Document("a.py", text, "", 0))
    assert {(one.name, one.kind, one.line) for one in found.references} == {
        ("c", "import", 1),
        ("Base", "base", 3),
        ("Thing", "type", 4),
        ("c", "call", 5),
        ("run", "call", 5),
    }
    assert found.imports == ("a.b", "os")


def test_parse_errors_cost_what_they_cover_and_nothing_else() -> None:
    text = "def good():\n    pass\n\ndef bad(:\n    !!\n\ndef also():\n    pass\n"
    assert {"good", "also"} <= {name for name, *_ in of("a.py", text)}


def test_plain_text_has_its_headings() -> None:
    text = "Title\n=====\n\nIntro.\n\n# Part\ntext\n\n[section]\n"
    assert of("README", text) == [("Title", "section", 1, 5), ("Part", "section", 6, 8), ("section", "section", 9, 9)]


def test_a_script_without_extension_is_known_by_its_first_line() -> None:
    for first, name in (("#!/usr/bin/env python3", "python"), ("#!/bin/sh", "bash"), ("#!/usr/bin/node", "javascript")):
        language = language_of("bin/run", f"{first}\n")
        assert language is not None
        assert language.name == name
    assert language_of("bin/run", "text") is None


@pytest.mark.parametrize(
    "text",
    ["(" * 30_000, "{[\n" * 10_000, "def f():\n" * 6_000, "x = 1;" * 30_000, "\x00\x01\n" * 15_000],
    ids=["parentheses", "brackets", "headers", "one line", "control characters"],
)
@pytest.mark.parametrize("path", ["a.py", "a.js", "a.cpp", "a.md", "a.sh"])
def test_hostile_text_takes_a_second_or_two_at_most(path: str, text: str) -> None:
    before = time.thread_time()  # of this thread alone: other work on the machine does not count
    outline(Document(path, text, "", len(text)))
    assert time.thread_time() - before < 2


def test_what_is_too_large_to_parse_is_plain_text() -> None:
    assert outline(Document("a.py", "x = 1\n" * 400_000, "", 0)).language == ""
