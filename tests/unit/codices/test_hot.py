"""How often files change, for how much of them is in the floor."""

from pathlib import Path

import pytest
from support.libraries import fill, git

from codex.library import Library
from codex.trees.sources import LoadSpec
from orchestrator.codices.coverages import churn_of


@pytest.fixture
def library(tmp_path):
    opened = Library(tmp_path / "library")
    yield opened
    opened.close()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """`src/a.py` in three commits, `b.py` in one."""
    folder = fill(tmp_path / "project", {"src/a.py": "a = 0\n", "b.py": "b = 0\n"})
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    for number in (1, 2):
        fill(folder, {"src/a.py": f"a = {10**number}\n"})
        git(folder, "commit", "-qam", "more")
    return folder


def churn(library: Library, source: object, revision: str | None = None, *more: object) -> dict[str, int]:
    loaded = library.load(LoadSpec((str(source), *map(str, more)), "it", revision=revision))
    return churn_of(library.histories(loaded.codex.name))


def test_commits_of_a_working_tree_count_by_file_and_below_the_root_that_was_loaded(library, project):
    assert churn(library, project) == {"src/a.py": 3, "b.py": 1}
    assert churn_of(library.histories("it"), iter([0.0, *[9.0] * 99]).__next__) == {}
    library.load(LoadSpec((str(project / "src"),), "below"))
    assert churn_of(library.histories("below")) == {"a.py": 3}


def test_a_revision_a_bare_repository_and_a_clone_count_too(library, project, tmp_path):
    git(tmp_path, "clone", "-q", "--bare", str(project), "bare.git")
    for number, (source, revision, counted) in enumerate(
        [(project, "HEAD~1", 2), (tmp_path / "bare.git", None, 3), (f"file://{project}", None, 3)]
    ):
        library.load(LoadSpec((str(source),), f"c{number}", revision=revision))
        assert churn_of(library.histories(f"c{number}")) == {"src/a.py": counted, "b.py": 1}


def test_what_was_cloned_is_not_fetched_again_for_it(library, project):
    library.load(LoadSpec((f"file://{project}",), "it"))
    project.rename(project.with_name("gone"))
    assert churn_of(library.histories("it")) == {"src/a.py": 3, "b.py": 1}


def test_a_submodule_counts_by_its_own_commits_under_its_place(library, project, tmp_path):
    whole = fill(tmp_path / "whole", {"main.py": "import lib\n"})
    git(whole, "init", "-q", "-b", "main")
    git(whole, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(project), "lib")
    git(whole, "add", ".")
    git(whole, "commit", "-qm", "one")
    counted = churn(library, whole)
    assert {path: counted[path] for path in ("main.py", "lib/src/a.py", "lib/b.py")} == {
        "main.py": 1,
        "lib/src/a.py": 3,
        "lib/b.py": 1,
    }


def test_of_several_roots_each_is_counted_under_its_label_and_what_git_does_not_keep_not_at_all(
    library, project, tmp_path
):
    plain = fill(tmp_path / "plain", {"x.py": "x\n"})
    assert churn(library, project, None, plain) == {"project/src/a.py": 3, "project/b.py": 1}
