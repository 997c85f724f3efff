"""Which language a file is in, and its grammar: one row a language, loaded when first needed.

The queries in `codex/queries/*.scm` name definitions, references and imports with the same captures in every language:
`@definition.KIND` the whole, `@name` its name, `@reference.KIND` a name that is used, `@import` a module that is named.
Knows nothing of documents and of what is done with the symbols.
"""

import importlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import PurePosixPath

from tree_sitter import Language as Grammar
from tree_sitter import Parser, Query


@dataclass(frozen=True)
class Language:
    """A language: `name`, the wheel's module, its entry function, its query file, extensions and whole file names."""

    name: str
    module: str
    query: str
    extensions: tuple[str, ...]
    entry: str = "language"
    filenames: tuple[str, ...] = ()
    prose: bool = False  # text with headings rather than code
    class_macros: bool = False  # `class EXPORT Name` is written in it


LANGUAGES = (
    Language("python", "tree_sitter_python", "python", (".py", ".pyi", ".pyw"), filenames=("SConstruct",)),
    Language("javascript", "tree_sitter_javascript", "javascript", (".js", ".jsx", ".mjs", ".cjs")),
    Language("typescript", "tree_sitter_typescript", "typescript", (".ts", ".mts", ".cts"), "language_typescript"),
    Language("tsx", "tree_sitter_typescript", "typescript", (".tsx",), "language_tsx"),
    Language("c", "tree_sitter_c", "c", (".c",), class_macros=True),
    Language(
        "cpp",
        "tree_sitter_cpp",
        "cpp",
        (".cpp", ".cc", ".cxx", ".c++", ".hpp", ".hh", ".hxx", ".h", ".ipp", ".cu", ".cuh", ".metal"),
        class_macros=True,
    ),
    Language("c_sharp", "tree_sitter_c_sharp", "c_sharp", (".cs",)),
    Language("rust", "tree_sitter_rust", "rust", (".rs",)),
    Language("go", "tree_sitter_go", "go", (".go",)),
    Language("java", "tree_sitter_java", "java", (".java",)),
    Language("ruby", "tree_sitter_ruby", "ruby", (".rb", ".rake", ".gemspec"), filenames=("Rakefile", "Gemfile")),
    Language("php", "tree_sitter_php", "php", (".php",), "language_php"),
    Language("bash", "tree_sitter_bash", "bash", (".sh", ".bash", ".zsh")),
    Language("html", "tree_sitter_html", "html", (".html", ".htm")),
    Language("css", "tree_sitter_css", "css", (".css",)),
    Language("json", "tree_sitter_json", "json", (".json",)),
    Language("toml", "tree_sitter_toml", "toml", (".toml",)),
    Language("yaml", "tree_sitter_yaml", "yaml", (".yaml", ".yml")),
    Language("markdown", "tree_sitter_markdown", "markdown", (".md", ".markdown"), prose=True),
    Language("sql", "tree_sitter_sql", "sql", (".sql",)),
    Language("scala", "tree_sitter_scala", "scala", (".scala", ".sc")),
    Language("kotlin", "tree_sitter_kotlin", "kotlin", (".kt", ".kts")),
    Language("lua", "tree_sitter_lua", "lua", (".lua",)),
    Language("swift", "tree_sitter_swift", "swift", (".swift",)),
    Language("haskell", "tree_sitter_haskell", "haskell", (".hs",)),
    Language("elixir", "tree_sitter_elixir", "elixir", (".ex", ".exs")),
    Language("zig", "tree_sitter_zig", "zig", (".zig",)),
)
_BY_EXTENSION = {extension: language for language in LANGUAGES for extension in language.extensions}
_BY_FILENAME = {name: language for language in LANGUAGES for name in language.filenames}
_BY_INTERPRETER = {"python": "python", "node": "javascript", "sh": "bash", "bash": "bash", "ruby": "ruby", "lua": "lua"}
_BY_NAME = {language.name: language for language in LANGUAGES}


def language_of(path: str, text: str = "") -> Language | None:
    """The language of a file by its name, else by its first line (`#!`); None for plain text."""
    name = PurePosixPath(path)
    found = _BY_FILENAME.get(name.name) or _BY_EXTENSION.get(name.suffix.lower())
    if found is not None or not text.startswith("#!"):
        return found
    program = text[2:200].split("\n", 1)[0].replace("/", " ").split()
    for word in program:
        language = _BY_INTERPRETER.get(word.rstrip("0123456789."))
        if language is not None:
            return _BY_NAME[language]
    return None


@cache
def parser_of(language: Language) -> Parser:
    """The parser, loaded once. Parsing is not re-entrant: callers hold a lock or a thread of their own."""
    return Parser(_grammar(language))


@cache
def query_of(language: Language) -> Query:
    """The compiled query that names definitions, references and imports."""
    source = files("codex").joinpath("queries", f"{language.query}.scm").read_text(encoding="utf-8")
    return Query(_grammar(language), source)


@cache
def uses_query_of(language: Language) -> Query | None:
    """The compiled query that tells what a name that is used may mean; None where nobody has written it."""
    source = files("codex").joinpath("queries", f"{language.query}.uses.scm")
    return Query(_grammar(language), source.read_text(encoding="utf-8")) if source.is_file() else None


@cache
def _grammar(language: Language) -> Grammar:
    return Grammar(getattr(importlib.import_module(language.module), language.entry)())
