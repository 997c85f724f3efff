"""What a file is for, from its path alone."""

import pytest

from codex.trees.roles import Role, role_of


@pytest.mark.parametrize(
    ("path", "role"),
    [
        ("src/a.py", Role.SOURCE),
        ("tests/a.py", Role.TEST),
        ("pkg/a_test.go", Role.TEST),
        ("web/a.spec.ts", Role.TEST),
        ("third_party/tests/a.c", Role.VENDORED),
        ("api/a_pb2.py", Role.GENERATED),
        ("docs/a.md", Role.PROSE),
        ("dist/a.js", Role.BUILT),
        ("packages/x/build/a.js", Role.BUILT),
        ("src/build/a.py", Role.SOURCE),
        ("lib/Target/a.cpp", Role.SOURCE),
        ("doc/build/a.rst", Role.PROSE),
        ("build/lib/tests/a.py", Role.TEST),
        ("src/contest.py", Role.SOURCE),
    ],
)
def test_a_path_says_what_a_file_is_for(path: str, role: Role) -> None:
    assert role_of(path) is role
