"""Questions about other packages, made from a checkout of SWE-QA-Bench by the rule that made the 141.

    git clone https://github.com/peng-weihan/SWE-QA-Bench      # Apache-2.0
    python -m benchmarks.code_questions --bench SWE-QA-Bench --part choosing

A question's files are those of the corpus that its reference answer cites: a path, or the end of one, that one file has. A
question whose answer cites none is left out. Its lines are the definitions in those files that the answer names as code:
functions whole, classes down to their first definition inside.

The packages are in two parts. `choosing` may be looked at when a ranking is changed; of `final` only the figures, before a
change and after it. Answers about reflex and streamlink cite hardly any file; those packages are left out.
"""

import ast
import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from codex.documents import Document

from .corpora import documents_in, unpacked, unpacked_wheel

_PATH = re.compile(r"[\w./-]*\w\.py\b")
_CODE = re.compile(r"`([A-Za-z_][\w.]*)(?:\(\))?`")
_NAMED_BY = 2  # definitions of one name in one file; of more, none is meant


@dataclass(frozen=True)
class Package:
    """A release that the answers fit. `wheel`: the source distribution has no metadata that pip can read without building
    it; the wheel has the same modules and their tests, below `inside` in the repository."""

    name: str
    version: str
    part: str
    wheel: bool = False
    inside: str = ""

    def documents(self) -> list[Document]:
        if self.wheel:
            return documents_in(unpacked_wheel(self.name, self.version, self.inside))
        return documents_in(unpacked(self.name, self.version))


PACKAGES = (
    Package("conan", "2.22.2", "choosing"),
    Package("django", "5.2.6", "choosing"),
    Package("pylint", "4.0.0", "choosing"),
    Package("sympy", "1.14.0", "choosing"),
    Package("xarray", "2025.7.1", "choosing"),
    Package("astropy", "7.1.0", "final"),
    Package("matplotlib", "3.10.5", "final", wheel=True, inside="lib"),
    Package("requests", "2.32.5", "final"),
    Package("scikit-learn", "1.7.1", "final", wheel=True),
    Package("sphinx", "8.2.3", "final"),
)


@dataclass(frozen=True)
class CitedQuestion:
    """`files` answer it, best of all these `lines` (path, number), which are none where the answer names no definition."""

    text: str
    files: tuple[str, ...]
    lines: frozenset[tuple[str, int]]


def questions(bench: Path, package: str, corpus: Sequence[Document]) -> list[CitedQuestion]:
    """Of the newest commit of a checkout. Raises CalledProcessError where it has no such package."""
    texts = {one.path: one.text for one in corpus}
    made = []
    for row in _rows(bench, package):
        if files := cited(row["answer"], texts):
            lines = frozenset(line for path in files for line in _named(row["answer"], path, texts[path]))
            made.append(CitedQuestion(row["question"], files, lines))
    return made


def cited(answer: str, paths: Mapping[str, str] | Sequence[str]) -> tuple[str, ...]:
    """The files that an answer names, so that no other file can be meant."""
    found: set[str] = set()
    for token in map(_plain, _PATH.findall(answer)):
        meant = [path for path in paths if path == token or path.endswith(f"/{token}")]
        if len(meant) == 1:
            found.update(meant)
    return tuple(sorted(found))


def _plain(token: str) -> str:
    return token.removeprefix("./").lstrip("/")


def _rows(bench: Path, package: str) -> Iterator[dict[str, str]]:
    command = ["git", "-C", str(bench), "show", f"HEAD:Benchmark/{package}.jsonl"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return map(json.loads, shown.splitlines())


def _named(answer: str, path: str, text: str) -> Iterator[tuple[str, int]]:
    """The lines of the definitions in a file that an answer names."""
    try:
        tree = ast.parse(text)
    except SyntaxError:  # a test of what is not Python
        return
    defined: dict[str, list[range]] = {}
    for name, lines in _definitions(tree, ""):
        for end in {name, name.rpartition(".")[2]}:
            defined.setdefault(end, []).append(lines)
    for name in set(_CODE.findall(answer)):
        meant = defined.get(name, []) or defined.get(".".join(name.split(".")[-2:]), [])
        if not name.startswith("__") and len(meant) <= _NAMED_BY:
            yield from ((path, line) for lines in meant for line in lines)


def _definitions(tree: ast.AST, holder: str) -> Iterator[tuple[str, range]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{holder}{node.name}", range(node.lineno, (node.end_lineno or node.lineno) + 1)
        elif isinstance(node, ast.ClassDef):
            inner = list(_definitions(node, f"{node.name}."))
            end = min((lines.start for _, lines in inner), default=(node.end_lineno or node.lineno) + 1)
            yield node.name, range(node.lineno, end)
            yield from inner
        else:
            yield from _definitions(node, holder)
