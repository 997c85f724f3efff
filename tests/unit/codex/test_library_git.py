"""What git says of a codex: branches, revisions, clones, and what git keeps for itself."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.libraries import MemoryIndex, fill, git, request, texts

from codex.errors import GitError, LoadCancelled, SourceError
from codex.library import Library
from codex.locks import in_turn
from codex.progress import never
from codex.trees.ignore import Globs
from codex.trees.sources import LoadSpec


def test_a_switch_of_branch_and_back_stores_and_indexes_what_it_saw_already(
    library: Library, project: Path, index: MemoryIndex
) -> None:
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "src")
    git(project, "commit", "-qm", "one")
    first = library.load(request(project))
    git(project, "checkout", "-qb", "other")
    fill(project, {"src/a.py": "a = 10\n"})
    git(project, "commit", "-qam", "two")
    other = library.load(request(project))
    git(project, "checkout", "-q", "main")
    back = library.load(request(project))
    assert [one.generation.state.branch for one in (first, other, back)] == ["main", "other", "main"]
    assert back.generation.digests() == first.generation.digests()
    assert back.generation.label().startswith("main@")


def test_a_commit_without_a_change_of_files_keeps_the_generation_and_tells_the_revision(
    library: Library, project: Path
) -> None:
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "src")
    before = library.load(request(project))
    git(project, "commit", "-qm", "one")
    after = library.load(request(project))
    assert (before.generation.state.revision, after.generation.number) == (None, 1)
    assert after.generation.state.revision is not None
    assert library.catalog.generation("project") == after.generation


def test_a_commit_that_was_followed_is_told_after_a_restart_too(library: Library, project: Path) -> None:
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "src")
    library.load(request(project))
    git(project, "commit", "-qm", "one")
    followed = library.follow("project", count=len, changed_definitions=lambda old, new: None)
    assert (followed.new, followed.state.revision is None) == (0, False)
    assert library.catalog.generation("project").state == followed.state


def test_a_git_url_is_loaded_at_a_revision(library: Library, project: Path) -> None:
    fill(project, {"docs/x.md": "x\n"})
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "src", "docs")
    git(project, "commit", "-qm", "one")
    git(project, "tag", "v1")
    fill(project, {"src/a.py": "a = 10\n"})
    git(project, "commit", "-qam", "two")
    old = library.load(request(f"file://{project}#v1", name="old", globs=Globs(exclude=("docs/",))))
    assert texts(library, "old") == {"src/a.py": "a = 1\n", "src/b.py": "b = 2\n"}
    assert old.generation.state.branch == "v1"
    new = library.load(request(f"file://{project}"))
    assert (new.codex.name, texts(library, "project")["src/a.py"]) == ("project", "a = 10\n")
    fill(project, {"src/a.py": "a = 1100\n"})
    git(project, "commit", "-qam", "three")
    assert library.load(library.request("project")).read == 1
    assert texts(library, "project")["src/a.py"] == "a = 1100\n"


def test_a_bare_repository_and_a_revision_of_a_local_one_are_read_without_a_checkout(
    library: Library, project: Path, tmp_path: Path
) -> None:
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "src")
    git(project, "commit", "-qm", "one")
    fill(project, {"src/a.py": "not committed\n"})
    git(tmp_path, "clone", "-q", "--bare", str(project), "bare.git")
    library.load(request(tmp_path / "bare.git"))
    library.load(request(project, revision="HEAD", name="at-head"))
    assert texts(library, "bare") == texts(library, "at-head") == {"src/a.py": "a = 1\n", "src/b.py": "b = 2\n"}


@pytest.mark.parametrize("bad", ["#no-such-tag", "-missing"])
def test_a_repository_or_revision_that_is_not_there_is_refused(library: Library, project: Path, bad: str) -> None:
    git(project, "init", "-q")
    git(project, "add", "src")
    git(project, "commit", "-qm", "one")
    with pytest.raises(GitError):
        library.load(request(f"file://{project}{bad}"))
    assert library.catalog.codices() == ()


def test_two_revisions_of_one_url_can_be_loaded_at_once(library: Library, project: Path) -> None:
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "src")
    git(project, "commit", "-qm", "one")
    git(project, "tag", "v1")
    with ThreadPoolExecutor(2) as both:
        loads = [
            both.submit(library.load, request(f"file://{project}#{revision}", name=revision))
            for revision in ["v1", "main"]
        ]
    assert [one.result().files for one in loads] == [2, 2]
    assert [one.suffix for one in (library.folder / "clones").iterdir() if one.is_dir()] == [".git"]
    library.drop("v1")
    assert library.load(library.request("main")).files == 2
    library.drop("main")
    assert not list((library.folder / "clones").glob("*.git"))


def test_a_clone_that_waits_for_another_one_can_be_cancelled(library: Library, project: Path) -> None:
    lock = library.folder / "clones" / "x.lock"
    with (
        in_turn(lock, never),
        pytest.raises(LoadCancelled, match="cloning"),
        in_turn(lock, lambda: True),
    ):
        pass


@pytest.mark.parametrize("inside", [".git", ".git/hooks", "apart.git"])
def test_what_git_keeps_for_itself_is_refused_with_the_way_out(library: Library, project: Path, inside: str) -> None:
    git(project, "init", "-q", *(["--separate-git-dir", str(project / "apart.git")] if "apart" in inside else []))
    (project / inside).mkdir(exist_ok=True)
    with pytest.raises(SourceError, match="name the working tree it belongs to"):
        library.load(request(project / inside))
    assert library.catalog.codices() == ()


def test_a_state_of_a_repository_may_be_named_by_its_git_folder(library: Library, project: Path) -> None:
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "src")
    git(project, "commit", "-qm", "one")
    library.load(request(project / ".git", revision="main", name="it"))
    assert set(texts(library, "it")) == {"src/a.py", "src/b.py"}


def test_submodules_of_a_revision_are_counted_as_left_out(library: Library, project: Path, tmp_path: Path) -> None:
    part = fill(tmp_path / "part", {"c.py": "c\n"})
    for root in (part, project):
        git(root, "init", "-q", "-b", "main")
        git(root, "add", "*.py")
        git(root, "commit", "-qm", "one")
    git(project, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(part), "part")
    git(project, "commit", "-qm", "two")
    loaded = library.load(request(project, revision="HEAD", name="it"))
    assert loaded.generation.skipped == {"submodule without files": 1}
    assert set(texts(library, "it")) == {".gitmodules", "src/a.py", "src/b.py"}
    assert set(texts(library, library.load(request(project, name="disk")).codex.name)) >= {"part/c.py"}


def test_a_repository_that_cannot_be_read_is_told_in_one_line_with_what_to_try(
    library: Library, tmp_path: Path
) -> None:
    url = f"file://{tmp_path}/nowhere.git"
    with pytest.raises(GitError) as caught:
        library.load(LoadSpec((url,)))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{url} cannot be read: ")
    assert str(caught.value).endswith(f"git ls-remote {url}")
