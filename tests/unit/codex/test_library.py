import os
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from codex.amendments import Told
from codex.documents import Document
from codex.errors import BadName, GitError, LoadCancelled, LoadRunning, NameTaken, SourceError, UnknownCodex
from codex.ignore import Globs
from codex.library import Library
from codex.locks import in_turn, load_lock
from codex.progress import Progress, never
from codex.sources import LoadRequest, resolve


class MemoryIndex:
    """An index that remembers what it was told."""

    def __init__(self) -> None:
        self.digests: dict[str, dict[str, str]] = {}
        self.told: list[str] = []

    def held(self, codex: str) -> Mapping[str, str]:
        return dict(self.digests.get(codex, {}))

    def index(
        self, codex: str, documents: Iterable[Document], removed: Sequence[str], progress: Callable[[int], None]
    ) -> None:
        index = self.digests.setdefault(codex, {})
        for path in removed:
            del index[path]
        for document in documents:
            index[document.path] = document.digest
            self.told.append(document.path)
            progress(1)

    def drop(self, codex: str) -> None:
        self.digests.pop(codex, None)


@pytest.fixture
def index() -> MemoryIndex:
    return MemoryIndex()


@pytest.fixture
def library(tmp_path: Path, index: MemoryIndex) -> Iterator[Library]:
    opened = Library(
        tmp_path / "data", indexer=index, count=lambda documents: sum(len(one.text.split()) for one in documents)
    )
    yield opened
    opened.close()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return fill(tmp_path / "project", {"src/a.py": "a = 1\n", "src/b.py": "b = 2\n", "logo.png": "x", ".env": "K=1\n"})


def fill(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1_000_000_000, 1_000_000_000))  # long ago: stamps can be trusted, order is by path
    return root


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True)


def request(*sources: Path | str, **more: object) -> LoadRequest:
    return LoadRequest(tuple(map(str, sources)), **more)  # type: ignore[arg-type]


def texts(library: Library, name: str, number: int | None = None) -> dict[str, str]:
    return {one.path: one.text for one in library.documents(library.generation(name, number))}


def test_a_folder_becomes_a_codex_named_after_it(library: Library, project: Path, index: MemoryIndex) -> None:
    loaded = library.load(request(project))
    assert (loaded.codex.name, loaded.codex.roots, loaded.codex.newest) == ("project", (str(project),), 1)
    assert (loaded.files, loaded.read, loaded.tokens, loaded.is_new) == (2, 2, 6, True)
    assert loaded.generation.skipped == {"binary": 1, "secret by name": 1}
    assert texts(library, "project") == {"src/a.py": "a = 1\n", "src/b.py": "b = 2\n"}
    assert index.told == ["src/a.py", "src/b.py"]


def test_loading_again_reads_and_indexes_only_what_changed(library: Library, project: Path, index: MemoryIndex) -> None:
    library.load(request(project))
    again = library.load(request(project))
    assert (again.read, again.is_new, again.generation.number) == (0, False, 1)
    fill(project, {"src/a.py": "a = 10\n"})
    (project / "src" / "b.py").unlink()
    changed = library.load(request(project))
    assert (changed.read, changed.is_new, changed.generation.number) == (1, True, 2)
    assert index.told == ["src/a.py", "src/b.py", "src/a.py"]
    assert set(index.held("project")) == {"src/a.py"}


def test_an_older_generation_is_told_as_it_was(library: Library, project: Path) -> None:
    library.load(request(project))
    fill(project, {"src/a.py": "a = 10\n"})
    library.load(request(project))
    assert texts(library, "project", 1)["src/a.py"] == "a = 1\n"
    library.release("project")
    assert library.generations("project") == (2,)
    assert texts(library, "project")["src/a.py"] == "a = 10\n"


def test_the_order_of_a_generation_is_kept_by_the_next(library: Library, project: Path) -> None:
    fill(project, {"src/c.py": "c\n"})
    library.load(request(project))
    fill(project, {"src/a.py": "a = 10\n"})
    assert [one.path for one in library.load(request(project)).generation.entries] == [
        *("src/b.py", "src/c.py", "src/a.py")
    ]


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
    assert (before.generation.state.revision, after.generation.number, after.is_new) == (None, 1, False)
    assert after.generation.state.revision is not None
    assert library.generation("project") == after.generation


def test_a_taken_name_is_refused_and_another_one_proposed(library: Library, project: Path, tmp_path: Path) -> None:
    library.load(request(project))
    other = fill(tmp_path / "elsewhere" / "project", {"x.py": "x\n"})
    with pytest.raises(NameTaken, match="--name project-2") as refused:
        library.load(request(other))
    assert library.load(request(other, name=refused.value.proposal)).codex.name == "project-2"
    assert library.load(request(other)).codex.name == "project-2"
    assert set(texts(library, "project")) == {"src/a.py", "src/b.py"}


def test_a_name_can_be_taken_over_on_purpose(library: Library, project: Path, tmp_path: Path) -> None:
    library.load(request(project))
    other = fill(tmp_path / "other", {"x.py": "x\n"})
    loaded = library.load(request(other, name="project", take_name=True))
    assert (loaded.codex.roots, set(texts(library, "project"))) == ((str(other),), {"x.py"})


@pytest.mark.parametrize("name", ["none", "", "a/b", "-x", "ü", "x" * 65])
def test_a_name_that_cannot_be_typed_is_refused(library: Library, project: Path, name: str) -> None:
    with pytest.raises(BadName, match="cannot name a codex"):
        library.load(request(project, name=name))


def test_several_roots_and_files_share_one_name(library: Library, tmp_path: Path) -> None:
    fill(tmp_path, {"one/lib/a.py": "a\n", "two/lib/a.py": "b\n", "notes/todo.md": "c\n", "notes/other.md": "d\n"})
    loaded = library.load(request(tmp_path / "one/lib", tmp_path / "two/lib", tmp_path / "notes/todo.md", name="all"))
    assert texts(library, "all") == {"lib/a.py": "a\n", "lib-2/a.py": "b\n", "notes/todo.md": "c\n"}
    assert library.reload("all").generation == loaded.generation


def test_a_single_file_is_loaded_even_when_its_name_is_a_secret(library: Library, project: Path) -> None:
    loaded = library.load(request(project / ".env", name="settings"))
    assert texts(library, "settings") == {".env": "K=1\n"}
    assert loaded.generation.skipped == {}


def test_globs_choose_and_are_remembered_for_a_reload(library: Library, project: Path) -> None:
    library.load(request(project, globs=Globs(include=("*.py",), exclude=("b*",))))
    assert set(texts(library, "project")) == {"src/a.py"}
    assert library.reload("project").is_new is False
    assert library.request("project").globs == Globs(("*.py",), ("b*",))


def test_a_secret_in_a_file_leaves_it_out_with_a_notice_unless_asked_for(library: Library, project: Path) -> None:
    fill(project, {"src/key.py": "k = '" + "-----BEGIN " + "PRIVATE KEY-----\\n" + "MIIEvQIBADANBg" * 6 + "'\n"})
    loaded = library.load(request(project))
    assert loaded.generation.skipped["secret found in it"] == 1
    assert loaded.generation.notices == ("src/key.py:1: left out, it holds what looks like a private key",)
    asked = library.load(request(project, load_secrets=True))
    assert {".env", "src/key.py"} <= set(texts(library, asked.codex.name))


def test_a_survey_tells_what_a_load_would_take_and_loads_nothing(library: Library, project: Path) -> None:
    survey = library.survey(request(project))
    assert (survey.name, survey.files, survey.bytes) == ("project", 2, 12)
    assert survey.skipped == {"binary": 1, "secret by name": 1}
    assert library.codices() == ()


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
    assert library.reload("project").read == 1
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
    assert library.codices() == ()


def test_progress_is_told_by_phase_and_ends_complete(library: Library, project: Path) -> None:
    told: list[Progress] = []
    library.load(request(project), report=told.append)
    last = {one.phase: (one.done, one.total) for one in told}
    assert last == {"walk": (2, 2), "read": (2, 2), "count": (2, 2), "index": (2, 2)}


def test_a_cancelled_load_keeps_what_it_stored_and_the_next_one_goes_on(library: Library, tmp_path: Path) -> None:
    root = fill(tmp_path / "many", {f"{number:04}.py": f"x = {number}\n" for number in range(600)})
    seen: list[Progress] = []
    with pytest.raises(LoadCancelled, match="continues"):
        library.load(request(root), seen.append, lambda: sum(one.phase == "read" for one in seen) > 0)
    assert library.codex("many").newest is None
    assert library.load(request(root)).generation.number == 1


def test_a_missing_source_is_refused(library: Library, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="is not there"):
        library.load(request(tmp_path / "nowhere"))


def test_an_empty_folder_is_refused_and_leaves_no_codex(library: Library, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="holds no files"):
        library.load(request(tmp_path / "empty"))
    assert library.codices() == ()


def test_a_folder_with_nothing_to_load_says_why(library: Library, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"left out \(1 binary, 1 secret by name\)"):
        library.load(request(fill(tmp_path / "x", {"a.png": "x", ".env": "x"})))


def test_a_codex_whose_files_are_gone_keeps_its_last_generation(library: Library, project: Path) -> None:
    library.load(request(project))
    for path in project.rglob("*.py"):
        path.unlink()
    with pytest.raises(SourceError):
        library.reload("project")
    assert set(texts(library, "project")) == {"src/a.py", "src/b.py"}


def test_a_second_load_of_the_same_path_at_once_is_refused(library: Library, project: Path) -> None:
    source = resolve(request(project), Path.cwd())
    with (
        load_lock(library.folder / "locks", "another-name", source.key, source.title),
        pytest.raises(LoadRunning, match="is running"),
    ):
        library.load(request(project))
    assert library.load(request(project)).is_new


def test_changes_are_found_without_making_a_generation(library: Library, project: Path) -> None:
    library.load(request(project))
    assert not library.changes("project")
    fill(project, {"src/a.py": "a = 10\n", "src/c.py": "c\n"})
    (project / "src" / "b.py").unlink()
    changes = library.changes("project")
    assert [one.path for one in changes.changed] == ["src/a.py"]
    assert [one.path for one in changes.added] == ["src/c.py"]
    assert changes.removed == ("src/b.py",)
    assert library.document(changes.changed[0]).text == "a = 10\n"
    assert library.generations("project") == (1,)


def test_following_appends_to_the_log_and_brings_the_index_along(
    library: Library, project: Path, index: MemoryIndex
) -> None:
    def follow() -> list[tuple[int, str, Told]]:
        followed = library.follow("project", count=len, changed_definitions=lambda old, new: None)
        return [(one.number, one.path, one.told) for one in followed.log[len(followed.log) - followed.new :]]

    library.load(request(project))
    fill(project, {"src/a.py": "a = 10\n"})
    assert follow() == [(1, "src/a.py", Told.CHANGED)]
    assert follow() == []
    fill(project, {"src/a.py": "a = 100\n", "src/c.py": "c\n"})
    assert follow() == [(2, "src/a.py", Told.CHANGED), (3, "src/c.py", Told.ADDED)]
    assert set(index.held("project")) == {"src/a.py", "src/b.py", "src/c.py"}
    assert [one.text for one in library.amendments("project")] == ["a = 10\n", "a = 100\n", "c\n"]
    assert texts(library, "project")["src/a.py"] == "a = 1\n"
    assert library.reload("project").generation.number == 2
    assert library.amendments("project") == ()
    assert len(library.amendments("project", 1)) == 3


def test_a_dropped_codex_is_gone_here_and_in_the_index(library: Library, project: Path, index: MemoryIndex) -> None:
    library.load(request(project))
    library.drop("project")
    assert (library.codices(), index.held("project")) == ((), {})
    with pytest.raises(UnknownCodex):
        library.generation("project")
    assert library.load(request(project)).generation.number == 1


def test_an_index_that_was_lost_is_completed_by_the_next_load(
    library: Library, project: Path, index: MemoryIndex
) -> None:
    library.load(request(project))
    index.digests.clear()
    index.told.clear()
    assert library.load(request(project)).read == 0
    assert index.told == ["src/a.py", "src/b.py"]


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
    assert library.reload("main").files == 2
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
    assert library.codices() == ()


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


def test_a_file_whose_permission_was_taken_away_is_gone_and_told_until_it_can_be_read_again(
    library: Library, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.load(request(project))
    opened, shut = os.open, {str(project / "src/a.py")}

    def guarded(path: str | Path, flags: int, mode: int = 0o777) -> int:
        if str(path) in shut:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags, mode)

    monkeypatch.setattr("codex.walk.os.open", guarded)  # a test may run as root, whom no permission stops
    (project / "src/a.py").chmod(0o200)
    loaded = library.load(request(project))
    assert loaded.generation.skipped == {"binary": 1, "secret by name": 1, "unreadable": 1}
    assert loaded.generation.notices == ("src/a.py: Permission denied",)
    assert set(texts(library, "project")) == {"src/b.py"}
    shut.clear()
    assert set(library.load(request(project)).generation.digests()) == {"src/a.py", "src/b.py"}
