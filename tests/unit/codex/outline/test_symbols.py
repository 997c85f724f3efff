"""Outlines in every language that has a grammar, and of what has none or goes wrong."""

import time

import pytest

from codex.documents import Document
from codex.outline.languages import LANGUAGES, language_of, query_of
from codex.outline.symbols import outline, without_class_macros

NOISE_S = 0.5


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


@pytest.mark.parametrize(
    ("path", "text", "doc"),
    [
        ("a.cs", '/// <summary>\n/// Opens <see cref="T:Door"/>.\n/// </summary>\nclass A {}\n', "Opens Door."),
        ("a.rs", "/// Of `Vec<u8>`.\n#[derive(Debug)]\n// for tests\n#[inline]\nfn f() {}\n", "Of `Vec<u8>`."),
        ("a.go", "package p\n// A is one.\ntype A struct {\n}\n", "A is one."),
        ("a.sh", "#!/bin/bash\nf() {\n:\n}\n", ""),
        ("a.sh", "#!/bin/bash\n# Opens.\nf() {\n:\n}\n", "Opens."),
        ("a.c", "int a; // about a\nint f(void) { return a; }\n", ""),
        ("a.c", "/* long\n   gone */\n\nint f(void) { return a; }\n", ""),
        ("a.c", "/** @brief Opens. */\nint f(void) { return a; }\n", "Opens."),
        ("a.ts", "/**\n * @param a what\n * to open\n */\nfunction f(a) {}\n", ""),
        ("a.js", "function f() {\n  'use strict'\n}\n", ""),
        ("a.py", "class A:\n    # Opens.\n    def f(self):\n        pass\n", "Opens."),
        ("a.hs", "{-| Opens. -}\nf :: Int\n", "Opens."),
        ("a.ex", 'defmodule A do\n  @doc "Opens."\n  @spec f(integer) :: any\n  def f(x), do: x\nend\n', "Opens."),
        ("a.ex", "defmodule A do\n  @doc false\n  def f(x), do: x\nend\n", ""),
    ],
)
def test_a_doc_line_is_what_is_said_about_the_definition_and_nothing_else(path: str, text: str, doc: str) -> None:
    assert outline(Document(path, text, "", 0)).symbols[-1].doc == doc


@pytest.mark.parametrize(
    ("path", "text", "signature"),
    [
        (
            "a.java",
            '@Get(\n  "/a")\npublic abstract int f(\n  int a,\n  int b\n);',
            "public abstract int f(int a, int b)",
        ),
        ("a.cs", "[A, B]\npublic class C : D\n{\n}\n", "public class C : D"),
        ("a.go", "package p\ntype (\n\tA struct {\n\t}\n)\n", "type A struct"),
        ("a.c", "typedef struct {\n  int a;\n} thing;\n", "typedef struct … thing"),
        ("a.ts", "export const f = (\n  a: A,\n): B => {\n}\n", "const f = (a: A): B =>"),
        ("a.cpp", "class CORE_EXPORT A : public B {\n};\n", "class CORE_EXPORT A : public B"),
        ("a.py", f"A = '{'x' * 100}'\n", f"A = '{'x' * 55}…"),
    ],
)
def test_a_signature_is_the_whole_head_without_annotations_and_body(path: str, text: str, signature: str) -> None:
    assert [one.signature for one in outline(Document(path, text, "", 0)).symbols] == [signature]


def test_fields_are_told_apart_from_definitions_and_private_ones_not_at_all() -> None:
    text = "class A:\n    _own = 1\n    b: int = 2\n\n    def f(self):\n        c = 3\n"
    found = outline(Document("a.py", text, "", 0))
    assert [(one.qualname, one.kind, one.start) for one in found.fields] == [("A.b", "field", 3)]
    assert [one.qualname for one in found.symbols] == ["A", "A.f"]


def test_a_class_macro_is_blanked_where_one_stands_and_nowhere_else() -> None:
    for text in (
        b"class A final : B {",
        b"enum class A : int {",
        b"struct ABC { int a; };",
        b"class ABC;",
        b"class A B",
    ):
        assert without_class_macros(text) == text
    assert without_class_macros(b"class ABC D\n{") == b"class     D\n{"


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
    ["(" * 30_000, "{[\n" * 10_000, "def f():\n" * 3_000, "x = 1;" * 30_000, "\x00\x01\n" * 15_000],
    ids=["parentheses", "brackets", "headers", "one line", "control characters"],
)
@pytest.mark.parametrize("path", ["a.py", "a.js", "a.cpp", "a.md", "a.sh", "a.swift", "a.ex", "a.hs"])
def test_four_times_the_hostile_text_takes_no_more_than_about_four_times_as_long(path: str, text: str) -> None:
    """The quicker of two counts, not what the heap does then. What takes less than the noise needs no comparison."""
    taken = seconds(path, text)
    if taken >= NOISE_S:
        quarter = min(seconds(path, text[: len(text) // 4]) for _ in range(2))
        assert min(taken, seconds(path, text)) < 10 * quarter + NOISE_S


def seconds(path: str, text: str) -> float:
    """Of this thread alone: other work on the machine does not count."""
    before = time.thread_time()
    outline(Document(path, text, "", len(text)))
    return time.thread_time() - before


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.sh", "# a\n" * 20_000 + "f() { :; }\n" * 600),
        ("a.js", "/*" + "a\n" * 30_000 + "*/\nconst " + ",\n".join(f"a{number} = 1" for number in range(2_000))),
        ("a.rs", "#[a]\n" * 20_000 + "fn f() {}\n"),
        ("a.cpp", "class AAAA \n" * 20_000),
        ("a.cpp", f"class {'A' * 19_000} "),
        ("a.c", "typedef int (*f)(\n" * 5_000),
        ("a.sql", "CREATE TABLE t (\n" + ",\n".join(f"c{number} INT" for number in range(5_000)) + ");\n"),
        ("a.go", "package p\ntype (\n" + "// a\nA struct{}\n" * 5_000 + ")\n"),
        ("a.py", "/*\n" * 500_000),
        ("a.ex", "end\n" * 100_000),
    ],
    ids=[
        "comments",
        "names under a comment",
        "attributes",
        "macros",
        "a long macro",
        "parentheses",
        "columns",
        "groups",
        "unfinished signs",
        "keywords",
    ],
)
def test_what_stands_around_definitions_is_read_in_time(path: str, text: str) -> None:
    before = time.thread_time()
    outline(Document(path, text, "", len(text)))
    assert time.thread_time() - before < 2


def test_what_is_too_large_to_parse_is_plain_text() -> None:
    assert outline(Document("a.py", "x = 1\n" * 400_000, "", 0)).symbols == ()


def test_definitions_beside_signs_that_mean_nothing_are_found() -> None:
    """The parser leaves such signs side by side in one node, which is not queried but around them."""
    signs = "{[\n" * 900
    assert of("a.ex", f"{signs}def f(x), do: x\n") == [("f", "function", 901, 901)]
    assert {name for name, *_ in of("a.ex", f"def f(x), do: x\n{signs}def g(x), do: x\n")} == {"f", "g"}
