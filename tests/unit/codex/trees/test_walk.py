import os
import subprocess
from pathlib import Path

import pytest

from codex.errors import LoadCancelled, SourceError
from codex.settings import SecretSettings, WalkSettings
from codex.trees.ignore import Selection, SkipReason
from codex.trees.port import Skipped
from codex.trees.walk import DiskTree


def tree(root: Path, *, max_files: int = 1000, clock_ns: int = 1 << 62) -> DiskTree:
    selection = Selection(WalkSettings(), SecretSettings())
    return DiskTree(root, selection, max_files=max_files, max_file_bytes=1 << 20, clock_ns=lambda: clock_ns)


def fill(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def names(root: Path) -> list[str]:
    return [one.path for one in tree(root).scan().candidates]


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True)


@pytest.mark.parametrize("by_git", [True, False])
@pytest.mark.parametrize("asked", [0, 3, 7])
def test_a_walk_ends_when_it_is_cancelled(tmp_path: Path, asked: int, by_git: bool) -> None:
    fill(tmp_path, **{f"{name}__x_dot_py": "x\n" for name in "abcdefgh"})
    (tmp_path / "empty" / "emptier").mkdir(parents=True)
    if by_git:
        committed(tmp_path)
    times = iter(range(100))
    with pytest.raises(LoadCancelled):
        tree(tmp_path).scan(lambda: next(times) >= asked)
    assert next(times) == asked + 1, "nothing is looked at once it was said"


def committed(root: Path) -> Path:
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "all")
    return root


@pytest.mark.parametrize("by_git", [True, False])
def test_a_folder_that_is_moved_away_while_it_is_listed_is_not_one_whose_files_were_deleted(
    tmp_path: Path, by_git: bool
) -> None:
    root = fill(tmp_path / "root", a_dot_py="x\n", b_dot_py="x\n", c_dot_py="x\n")
    if by_git:
        committed(root)
    away = iter([lambda: root.rename(tmp_path / "away")])
    with pytest.raises(SourceError, match="is not there"):
        tree(root).scan(found=lambda: next(away, lambda: None)())


def test_a_file_of_a_folder_that_was_moved_away_since_it_was_listed_is_not_a_deleted_one(tmp_path: Path) -> None:
    root = fill(tmp_path / "root", a_dot_py="x\n", b_dot_py="x\n")
    listed = tree(root).scan().candidates
    (root / "b.py").unlink()
    with pytest.raises(FileNotFoundError):
        tree(root).read(listed[1])
    root.rename(tmp_path / "away")
    with pytest.raises(SourceError, match="is not there"):
        tree(root).read(listed[0])


def test_the_order_depends_on_names_alone(tmp_path: Path) -> None:
    for name in ["b.py", "a.py", "B.py"]:
        (tmp_path / name).write_text("x")
    assert names(tmp_path) == ["B.py", "a.py", "b.py"]


def test_names_that_differ_in_case_only_are_two_files(tmp_path: Path) -> None:
    assert names(fill(tmp_path, Readme="1", README="2")) == ["README", "Readme"]


def test_a_name_that_is_not_utf8_is_read_under_its_safe_name(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9\n.py")).write_text("x = 1\n")
    walked = tree(tmp_path)
    (only,) = walked.scan().candidates
    assert only.path == r"caf\xe9\u000a.py"
    assert walked.read(only).raw == b"x = 1\n"


def test_the_same_name_is_listed_by_git_too(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9\n.py")).write_text("x = 1\n")
    assert names(committed(tmp_path)) == [r"caf\xe9\u000a.py"]


def test_links_are_never_followed_and_loops_do_no_harm(tmp_path: Path) -> None:
    root = fill(tmp_path / "root", a_dot_py="a")
    fill(tmp_path, outside_dot_py="secret")
    (root / "loop").symlink_to(root)
    (root / "self").symlink_to("self")
    (root / "out.py").symlink_to(tmp_path / "outside.py")
    scan = tree(root).scan()
    assert [one.path for one in scan.candidates] == ["a.py"]
    assert scan.skipped == tuple(Skipped(name, SkipReason.LINK) for name in ["loop", "out.py", "self"])


def test_a_folder_that_became_a_link_after_the_scan_is_not_read_through(tmp_path: Path) -> None:
    root = fill(tmp_path / "root", sub__a_dot_py="inside")
    fill(tmp_path / "elsewhere", a_dot_py="outside")
    walked = tree(root)
    (only,) = walked.scan().candidates
    (root / "sub" / "a.py").unlink()
    (root / "sub").rmdir()
    (root / "sub").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError):
        walked.read(only)


def test_a_root_that_is_itself_a_link_is_walked(tmp_path: Path) -> None:
    fill(tmp_path / "real", a_dot_py="a")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert names(tmp_path / "link") == ["a.py"]


def test_pipes_and_sockets_are_left_out_without_being_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert tree(tmp_path).scan().skipped == (Skipped("pipe", SkipReason.SPECIAL),)


def test_a_gigabyte_is_left_out_by_its_size(tmp_path: Path) -> None:
    with (tmp_path / "huge.txt").open("wb") as file:
        file.truncate(1 << 30)
    assert tree(tmp_path).scan().skipped == (Skipped("huge.txt", SkipReason.TOO_LARGE),)


def test_a_missing_root_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="is not there"):
        tree(tmp_path / "nowhere").scan()


def test_too_many_files_are_refused_with_the_way_out(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.py").write_text("x")
    with pytest.raises(SourceError, match=r"more than 3 files.*--exclude"):
        tree(tmp_path, max_files=3).scan()


def test_a_file_that_git_knows_but_the_disk_does_not_is_not_there(tmp_path: Path) -> None:
    committed(fill(tmp_path, a_dot_py="a", b_dot_py="b"))
    (tmp_path / "a.py").unlink()
    scan = tree(tmp_path).scan()
    assert ([one.path for one in scan.candidates], scan.skipped) == (["b.py"], ())


def test_a_subfolder_of_a_repository_obeys_the_rules_above_it(tmp_path: Path) -> None:
    committed(fill(tmp_path, _dot_gitignore="*.log\n", sub__a_dot_py="a", sub__noise_dot_log="x"))
    assert names(tmp_path / "sub") == ["a.py"]


def test_an_ignored_folder_that_is_itself_asked_for_is_walked(tmp_path: Path) -> None:
    committed(fill(tmp_path, _dot_gitignore="env/\n", a_dot_py="a"))
    fill(tmp_path, env__lib__b_dot_py="b")
    assert names(tmp_path / "env" / "lib") == ["b.py"]


def test_submodules_and_nested_repositories_are_part_of_the_codex(tmp_path: Path) -> None:
    library = committed(fill(tmp_path / "library", lib_dot_py="x", _dot_gitignore="*.tmp\n"))
    root = committed(fill(tmp_path / "root", a_dot_py="a"))
    git(root, "submodule", "add", "-q", str(library), "module")
    nested = committed(fill(root / "nested", c_dot_py="c", _dot_gitignore="hidden/\n"))
    fill(nested, hidden__d_dot_py="d")
    fill(root / "module", e_dot_tmp="e")
    assert names(root) == [
        *(".gitmodules", "a.py", "module/.gitignore", "module/lib.py", "nested/.gitignore", "nested/c.py"),
    ]


def test_repositories_below_a_plain_folder_obey_their_own_rules(tmp_path: Path) -> None:
    one = committed(fill(tmp_path / "one", a_dot_py="a", _dot_gitignore="build/\n"))
    fill(one, build__x_dot_py="x")
    fill(tmp_path / "two", build__y_dot_py="y")
    assert names(tmp_path) == ["one/.gitignore", "one/a.py", "two/build/y.py"]


def test_a_linked_worktree_inside_the_tree_is_not_loaded_a_second_time(tmp_path: Path) -> None:
    committed(fill(tmp_path, a_dot_py="a"))
    git(tmp_path, "worktree", "add", "-q", "-b", "other", "wt")
    scan = tree(tmp_path).scan()
    assert [one.path for one in scan.candidates] == ["a.py"]
    assert scan.skipped == (Skipped("wt/", SkipReason.WORKTREE),)


def test_a_linked_worktree_can_be_loaded_itself(tmp_path: Path) -> None:
    committed(fill(tmp_path / "main", a_dot_py="a"))
    git(tmp_path / "main", "worktree", "add", "-q", "-b", "other", str(tmp_path / "wt"))
    assert names(tmp_path / "wt") == ["a.py"]
    assert tree(tmp_path / "wt").state().branch == "other"


def test_the_state_names_branch_revision_and_changed_files(tmp_path: Path) -> None:
    committed(fill(tmp_path, a_dot_py="a", b_dot_py="b"))
    fill(tmp_path, b_dot_py="changed", c_dot_py="new")
    state = tree(tmp_path).state()
    assert (state.branch, len(state.revision or ""), state.dirty) == ("main", 40, 2)


def test_a_repository_without_a_commit_has_a_branch_and_no_revision(tmp_path: Path) -> None:
    fill(tmp_path, a_dot_py="a")
    git(tmp_path, "init", "-q", "-b", "main")
    walked = tree(tmp_path)
    assert (walked.state().branch, walked.state().revision) == ("main", None)
    assert walked.volatility(walked.scan().candidates)["a.py"] == 99


def test_files_that_change_often_are_more_volatile(tmp_path: Path) -> None:
    committed(fill(tmp_path, calm_dot_py="a", busy_dot_py="b"))
    for number in range(5):
        fill(tmp_path, busy_dot_py=str(number))
        git(tmp_path, "commit", "-qam", "busy")
    walked = tree(tmp_path)
    assert dict(walked.volatility(walked.scan().candidates)) == {"calm.py": 1, "busy.py": 3}


def test_the_stamp_of_a_file_just_written_is_not_trusted(tmp_path: Path) -> None:
    fill(tmp_path, a_dot_py="a")
    written = (tmp_path / "a.py").stat().st_mtime_ns
    for later_s, trusted in [(1, False), (3, True)]:
        walked = tree(tmp_path, clock_ns=written + later_s * 10**9)
        (only,) = walked.scan().candidates
        assert bool(walked.read(only).stamp) is trusted


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a repository away")
def test_a_repository_that_git_refuses_is_walked_without_it_and_a_notice_says_so(tmp_path: Path) -> None:
    committed(fill(tmp_path, _dot_gitignore="*.log\n", a_dot_py="a", noise_dot_log="x"))
    for path in [tmp_path, *tmp_path.rglob("*")]:
        os.chown(path, 12345, 12345)
    scan = tree(tmp_path).scan()
    assert [one.path for one in scan.candidates] == [".gitignore", "a.py"]
    assert "git refuses" in scan.notices[0]


def test_without_git_installed_ignore_files_still_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committed(fill(tmp_path, _dot_gitignore="build/\n", a_dot_py="a", build__x_dot_py="x"))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert names(tmp_path) == [".gitignore", "a.py"]
    assert tree(tmp_path).state().revision is None


def test_a_repository_in_the_environment_does_not_lead_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = committed(fill(tmp_path / "here", a_dot_py="a"))
    other = committed(fill(tmp_path / "other", b_dot_py="b"))
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert names(here) == ["a.py"]


def test_no_program_that_a_repository_names_is_run(tmp_path: Path) -> None:
    committed(fill(tmp_path, a_dot_py="a"))
    trap = tmp_path.parent / "trapped"
    git(tmp_path, "config", "core.fsmonitor", f"touch {trap}; false")
    walked = tree(tmp_path)
    walked.volatility(walked.scan().candidates)
    walked.state()
    assert not trap.exists()


def test_a_submodule_that_is_not_checked_out_is_counted_as_left_out(tmp_path: Path) -> None:
    library = committed(fill(tmp_path / "library", lib_dot_py="x"))
    root = committed(fill(tmp_path / "root", a_dot_py="a"))
    git(root, "submodule", "add", "-q", str(library), "module")
    git(root, "commit", "-qm", "module")
    git(tmp_path, "clone", "-q", str(root), "clone")
    scan = tree(tmp_path / "clone").scan()
    assert [one.path for one in scan.candidates] == [".gitmodules", "a.py"]
    assert scan.skipped == (Skipped("module/", SkipReason.SUBMODULE),)


def test_a_submodule_is_loaded_by_itself_too(tmp_path: Path) -> None:
    library = committed(fill(tmp_path / "library", lib_dot_py="x"))
    root = committed(fill(tmp_path / "root", a_dot_py="a"))
    git(root, "submodule", "add", "-q", str(library), "module")
    assert names(root / "module") == ["lib.py"]
