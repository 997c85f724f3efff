"""The replay of a repository's history: its truth knows nothing of the product's digests."""

import subprocess
from pathlib import Path

import pytest
from cases_staleness import Seen, first_parents, is_changed, rows, tree_of, walked

TWO = "def one():\n    return 1\n\n\nclass Box:\n    def two(self):\n        return 2\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    for files in (
        {"a.py": TWO},
        {"a.py": "import os\n\n\n" + TWO},
        {"a.py": "def one():\n    return 1\n", "b.py": "def two(self):\n    return 2\n"},
        {"a.py": "def one():\n    return 3\n", "b.py": "def two(self):\n    return 2\n", "c.py": "def ("},
    ):
        for old in tmp_path.glob("*.py"):
            old.unlink()
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        git(tmp_path, "add", "-A")
        git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "step")
    return tmp_path


def git(folder: Path, *command: str) -> None:
    subprocess.run(["git", "-C", str(folder), *command], check=True)


def changed(repository: Path, step: int) -> set[str]:
    commits = first_parents(repository)
    first, now = tree_of(repository, commits[0]), tree_of(repository, commits[step])
    return {one.name for one in first.symbols.values() if is_changed(one, first, now)}


@pytest.mark.parametrize(("step", "names"), [(0, set()), (1, set()), (2, {"Box"}), (3, {"Box", "one"})])
def test_what_moved_is_unchanged_and_what_is_gone_or_another_is_changed(repository: Path, step: int, names) -> None:
    assert changed(repository, step) == names


def test_the_product_says_what_the_truth_says(repository: Path) -> None:
    seen = list(walked(repository, first_parents(repository)))
    assert [(one.suspect, one.changed) for one in seen if one.changed or one.suspect] == [(True, True)] * 3
    assert len(seen) == 9


def test_precision_and_recall_are_shares_of_what_is_suspect_and_of_what_changed() -> None:
    seen = [Seen(True, True, False), Seen(True, False, True), Seen(False, True, False), Seen(False, True, False)]
    found = {row.figure: row.ours for row in rows("case", seen)}
    assert (found["precision"], found["recall"]) == (1 / 2, 1 / 3)
    assert found["moved unchanged, called suspect"] == 1.0
