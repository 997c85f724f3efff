"""What a file is for, from its path: source, test, prose, vendored, generated, or a build's output.

What its first lines say of it is `codex.trees.origins`' to read.
"""

import re
from enum import StrEnum
from functools import lru_cache
from pathlib import PurePosixPath


class FileRole(StrEnum):
    """What a file is for."""

    SOURCE = "source"
    TEST = "test"
    PROSE = "prose"
    VENDORED = "vendored"
    GENERATED = "generated"
    BUILT = "built"


# What a file counts beside a source file of equal merit. Tests repeat the words of what they test; copies and generated
# code repeat those of everything.
ROLE_SHARES = {
    FileRole.SOURCE: 1.0,
    FileRole.PROSE: 0.9,
    FileRole.TEST: 0.8,
    FileRole.BUILT: 0.6,  # by the name of a folder alone: a weaker sign than what a file says itself
    FileRole.GENERATED: 0.4,
    FileRole.VENDORED: 0.3,
}
_TEST_FOLDERS = frozenset({"test", "tests", "testing", "spec", "specs", "__tests__", "testdata", "fixtures", "e2e"})
_TEST_NAME = re.compile(r"^(?:test_|conftest\.)|(?:_test|_spec|\.test|\.spec|Test|Tests|Spec)\.[A-Za-z0-9]+$")
_VENDORED = frozenset(
    {"vendor", "vendored", "_vendor", "third_party", "third-party", "node_modules", "extern", "external"}
)
_BUILT = frozenset({"dist", "build", "out", "target", "gen", "_build"})
_WRITTEN = frozenset({"src", "lib", "source", "sources", "doc", "docs"})  # below them people name folders so themselves
_PROSE = frozenset({".md", ".markdown", ".rst", ".txt", ".adoc", ".org"})
_GENERATED_NAME = re.compile(
    r"(?:_pb2(?:_grpc)?\.pyi?|\.pb\.\w+|\.min\.\w+|\.g\.\w+|_generated\.\w+|\.generated\.\w+)$"
)


def share_of(path: str, *, generated: bool = False) -> float:
    """What a file counts beside a source file of equal merit; `generated`: it says so itself, whatever its path."""
    share = ROLE_SHARES[role_of(path)]
    return min(share, ROLE_SHARES[FileRole.GENERATED]) if generated else share


@lru_cache(maxsize=100_000)
def role_of(path: str) -> FileRole:
    """The role of a file by its path."""
    pure = PurePosixPath(path)
    folders = {part.lower() for part in pure.parts[:-1]}
    if folders & _VENDORED:
        return FileRole.VENDORED
    if _GENERATED_NAME.search(pure.name) or "generated" in folders:
        return FileRole.GENERATED
    if folders & _TEST_FOLDERS or _TEST_NAME.search(pure.name):
        return FileRole.TEST
    if _is_built(pure.parts[:-1]):
        return FileRole.BUILT
    return FileRole.PROSE if pure.suffix.lower() in _PROSE else FileRole.SOURCE


def _is_built(folders: tuple[str, ...]) -> bool:
    """In the output of a build: at the top, or in a package of a repository of packages."""
    for folder in map(str.lower, folders):
        if folder in _BUILT:
            return True
        if folder in _WRITTEN:
            return False
    return False
