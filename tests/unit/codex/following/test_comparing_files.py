"""What of a codex that nobody follows is otherwise on disk: asked about a few files, or about a revision."""

import subprocess

import pytest

from codex.following.comparing import differing, is_folders, moved
from codex.trees.sources import LoadSpec


def git(root, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    done = subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def code(tmp_path):
    root = tmp_path / "code"
    (root / "src").mkdir(parents=True)
    for name in ("same.py", "grown.py", "other.py", "gone.py", "odd\x07.py"):
        (root / "src" / name).write_text(f"# {name}\n")
    return root


NAMES = ["src/gone.py", "src/grown.py", "src/odd\\u0007.py", "src/other.py", "src/same.py"]


def change(code):
    (code / "src" / "grown.py").write_text("# grown.py and more\n")
    (code / "src" / "other.py").write_text("# OTHER.py\n")  # as long as before
    (code / "src" / "gone.py").unlink()


def test_files_that_differ_or_are_gone_are_told_of_those_that_are_asked_about(library, code):
    library.load(LoadSpec((str(code),)))
    assert differing(library, "code", NAMES) == ()
    change(code)
    assert differing(library, "code", NAMES) == ("src/gone.py", "src/grown.py", "src/other.py")
    assert differing(library, "code", ["src/same.py", "src/other.py", "never/was.py"]) == ("src/other.py",)


def test_of_several_roots_each_file_is_looked_for_in_its_own(library, code, tmp_path):
    note = tmp_path / "more" / "note.md"
    note.parent.mkdir()
    note.write_text("one\n")
    library.load(LoadSpec((str(code), str(note)), name="two"))
    paths = [entry.path for entry in library.catalog.generation("two").entries]
    assert differing(library, "two", paths) == ()
    note.write_text("two\n")
    (changed,) = differing(library, "two", paths)
    assert changed.endswith("note.md")


def test_what_the_log_tells_is_known(library, code):
    library.load(LoadSpec((str(code),)))
    change(code)
    library.follow("code", count=len, changed_definitions=lambda before, now: None)
    assert differing(library, "code", NAMES) == ()
    (code / "src" / "other.py").unlink()
    assert differing(library, "code", NAMES) == ("src/other.py",)


def test_no_list_of_all_files_is_read_for_a_few(library, code, monkeypatch):
    library.load(LoadSpec((str(code),)))
    monkeypatch.setattr(library.catalog, "generation", None)
    change(code)
    assert differing(library, "code", ["src/other.py"]) == ("src/other.py",)
    assert moved(library, "code") == ""


def test_a_codex_with_a_revision_does_not_lie_in_folders(library, code):
    git(code, "init", "-q", "-b", "main")
    git(code, "add", ".")
    git(code, "commit", "-q", "-m", "first")
    library.load(LoadSpec((str(code),)))
    library.load(LoadSpec((str(code),), name="main", revision="main"))
    assert (is_folders(library, "code"), is_folders(library, "main")) == (True, False)


def test_a_fifo_in_a_files_place_is_not_opened(library, code):
    library.load(LoadSpec((str(code),)))
    (code / "src" / "same.py").unlink()
    subprocess.run(["mkfifo", str(code / "src" / "same.py")], check=True)
    assert differing(library, "code", NAMES) == ("src/same.py",)


def test_a_branch_that_moved_is_told_with_both_commits(library, code):
    git(code, "init", "-q", "-b", "main")
    git(code, "add", ".")
    git(code, "commit", "-q", "-m", "first")
    first = git(code, "rev-parse", "--short=7", "HEAD")
    library.load(LoadSpec((str(code),), name="main", revision="main"))
    library.load(LoadSpec((str(code),), name="first", revision=git(code, "rev-parse", "HEAD")))
    assert moved(library, "main") == ""
    git(code, "commit", "-q", "--allow-empty", "-m", "second")
    assert moved(library, "main") == f"main has moved since ({first} → {git(code, 'rev-parse', '--short=7', 'HEAD')})"
    assert moved(library, "first") == ""
    assert differing(library, "main", NAMES) == ()
    git(code, "checkout", "-q", "-b", "other")
    git(code, "branch", "-q", "-D", "main")
    assert moved(library, "main") == "main is gone from its repository"


def test_a_folder_has_no_revision_that_could_move(library, code):
    library.load(LoadSpec((str(code),)))
    assert moved(library, "code") == ""
