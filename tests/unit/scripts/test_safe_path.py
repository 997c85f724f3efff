"""Every Python that is started with a program or a module takes nothing from the folder that it is started in."""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("orchestrator", "codex", "governor", "formatters", "scripts", "benchmarks", "tests")
PYTHON = re.compile(r"sys\.executable|python", re.IGNORECASE)
OPTION = re.compile(r"""(["'])-[cm]\1""")


def unsafe_starts(text: str) -> Iterator[int]:
    """Lines where an argument list names a Python and then `-c` or `-m` without `-P` before it."""
    if not OPTION.search(text):  # most files: to parse them all takes two seconds
        return
    for node in ast.walk(ast.parse(text)):
        words = node.elts if isinstance(node, ast.List | ast.Tuple) else node.args if isinstance(node, ast.Call) else []
        for program, option in pairwise(words):
            given = option.value if isinstance(option, ast.Constant) else None
            if given in ("-c", "-m") and PYTHON.search(ast.unparse(program)):
                yield program.lineno


def test_no_python_is_started_that_would_import_from_the_folder_it_is_started_in():
    files = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
    found = [f"{file.relative_to(ROOT)}:{line}" for file in files for line in unsafe_starts(file.read_text())]
    assert found == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("run([sys.executable, '-c', code])", [1]),
        ("run([*sandbox, str(PYTHON),\n'-m', 'pip'])", [1]),
        ("await create_subprocess_exec(sys.executable, '-m', 'x')", [1]),
        ("run([sys.executable, '-P', '-c', code])", []),
        ("run(['lore', 'ask', '-c', 'demo'])", []),
    ],
)
def test_unsafe_starts_are_found(text, lines):
    assert list(unsafe_starts(text)) == lines
