"""What pyproject.toml and the locks promise: imports are declared, versions are bounded, private names have one place."""

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[3]
ABOUT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNTIME = [Requirement(line) for line in ABOUT["project"]["dependencies"]]
EXTRA = [Requirement(line) for lines in ABOUT["project"]["optional-dependencies"].values() for line in lines]
TOOLS = [Requirement(line) for line in ABOUT["dependency-groups"]["dev"]]
OURS = ("formatters", "governor", "codex", "orchestrator")

# Where a module's name is not that of the distribution which brings it.
BROUGHT_BY = {
    "kingfisher_sdk": "kingfisher-secret-scanner",
    "llama_cpp": "llama-cpp-python",
    "markdown_it": "markdown-it-py",
    "pydantic_ai": "pydantic-ai-slim",
    "pynvml": "nvidia-ml-py",
}
BY_NAME = re.compile(r"tree-sitter-")  # grammars are imported by names that a table holds

# Private and undocumented names of other libraries, each behind one module, and the next minor version that may take them
# away.
PRIVATE = {
    "dulwich": ("codex/trees/ignore.py", "1.3"),
    "lancedb": ("codex/archive/queries.py", "0.41"),
    "llama_cpp": ("orchestrator/engine/llama/native.py", "0.4"),
    "uvicorn": ("orchestrator/api/server.py", "0.55"),
    "watchdog": ("codex/following/inotify.py", "7.2"),
}
# What no import with an underscore shows, as it is spelled in the sources.
SPELLED = {
    "dulwich": r"\b_name_re\b",
    "lancedb": r"\btable\._table\b",
    "llama_cpp": r"\bllama_cpp\._\w+",
    "uvicorn": r"\buvicorn\.protocols\b",
    "watchdog": r"\bwatchdog\.observers\.inotify_c\b",
}


def imported() -> dict[str, set[str]]:
    """Every module of others that the product imports, with the files that do."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in product():
        for name in modules(ast.parse(file.read_text())):
            top = name.partition(".")[0]
            if top not in sys.stdlib_module_names and top not in OURS:
                found[name].add(str(file.relative_to(ROOT)))
    return found


def product() -> Iterator[Path]:
    for package in OURS:
        yield from sorted((ROOT / package).rglob("*.py"))


def modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def distribution(module: str) -> str:
    top = module.partition(".")[0]
    return BROUGHT_BY.get(top, top.replace("_", "-"))


def pinned(lock: str) -> dict[str, Version]:
    lines = re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / lock).read_text(), re.MULTILINE)
    return {name: Version(version) for name, version in lines}


def test_every_import_of_the_product_is_declared_and_nothing_else_is():
    used = {distribution(name) for name in imported()}
    declared = {one.name for one in (*RUNTIME, *EXTRA)}
    spoken_to = {"uvicorn", "httptools"}  # uvicorn's parser is httptools, which it does not bring by itself
    assert used - declared == set()
    assert {name for name in declared - used - spoken_to if not BY_NAME.match(name)} == set()


def test_private_names_of_another_library_stand_behind_one_module():
    private = {
        (name.partition(".")[0], file)
        for name, files in imported().items()
        if any(part.startswith("_") and not part.startswith("__") for part in name.split("."))
        for file in files
    }
    for file in product():
        text = file.read_text()
        private |= {(lib, str(file.relative_to(ROOT))) for lib, pattern in SPELLED.items() if re.search(pattern, text)}
    assert private == {(library, file) for library, (file, _) in PRIVATE.items()}


@pytest.mark.parametrize("library", PRIVATE)
def test_a_library_whose_private_names_are_used_is_bounded_by_the_minor_version_that_was_tested(library):
    required = next(one for one in RUNTIME if one.name == distribution(library))
    ends = [Version(bound.version) for bound in required.specifier if bound.operator == "<"]
    assert ends == [Version(PRIVATE[library][1])]


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_a_lock_has_a_hash_for_every_file_of_every_distribution(lock):
    text = (ROOT / lock).read_text()
    entries = re.split(r"\n(?=[a-z0-9])", text)
    assert [entry.partition(" ")[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_the_locks_hold_what_is_required_within_its_bounds():
    runs, tools = pinned("requirements.lock"), pinned("requirements-dev.lock")
    assert [str(one) for one in RUNTIME if not one.specifier.contains(str(runs.get(one.name)))] == []
    assert [str(one) for one in TOOLS if not one.specifier.contains(str(tools.get(one.name)))] == []
    assert {name for name in runs.keys() & tools.keys() if runs[name] != tools[name]} == set()


def test_extras_are_among_the_tools_so_that_their_tests_run():
    assert {str(one) for one in EXTRA} <= {str(one) for one in TOOLS}


def test_the_version_is_written_once():
    from orchestrator.wire.places import VERSION

    assert ABOUT["project"]["dynamic"] == ["version"]
    found = re.search(
        ABOUT["tool"]["hatch"]["version"]["pattern"], (ROOT / ABOUT["tool"]["hatch"]["version"]["path"]).read_text()
    )
    assert found is not None
    assert found["version"] == VERSION
