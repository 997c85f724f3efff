"""What a file is for, from its path alone."""

import pytest

from codex.trees.roles import FileRole, role_of


@pytest.mark.parametrize(
    ("path", "role"),
    [
        ("src/a.py", FileRole.SOURCE),
        ("tests/a.py", FileRole.TEST),
        ("pkg/a_test.go", FileRole.TEST),
        ("web/a.spec.ts", FileRole.TEST),
        ("third_party/tests/a.c", FileRole.VENDORED),
        ("api/a_pb2.py", FileRole.GENERATED),
        ("docs/a.md", FileRole.PROSE),
        ("dist/a.js", FileRole.BUILT),
        ("packages/x/build/a.js", FileRole.BUILT),
        ("src/build/a.py", FileRole.SOURCE),
        ("lib/Target/a.cpp", FileRole.SOURCE),
        ("doc/build/a.rst", FileRole.PROSE),
        ("build/lib/tests/a.py", FileRole.TEST),
        ("src/contest.py", FileRole.SOURCE),
    ],
)
def test_a_path_says_what_a_file_is_for(path: str, role: FileRole) -> None:
    assert role_of(path) is role
