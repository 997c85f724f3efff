"""What may be loaded under which name, and what is left out of it."""

import os
import re
import resource
import tempfile
from pathlib import Path

import pytest
from support.libraries import fill, request, texts

from codex.errors import BadName, NameTaken, SourceError
from codex.library import Library
from codex.trees.ignore import Globs
from codex.trees.sources import LoadSpec, resolve

NOBODY = 65534


def test_a_taken_name_is_refused_and_another_one_proposed(library: Library, project: Path, tmp_path: Path) -> None:
    library.load(request(project))
    other = fill(tmp_path / "elsewhere" / "project", {"x.py": "x\n"})
    with pytest.raises(NameTaken, match="--name project-2") as refused:
        library.load(request(other))
    assert "or take the name with --replace" in str(refused.value)
    assert library.load(request(other, name=refused.value.proposal)).codex.name == "project-2"
    assert library.load(request(other)).codex.name == "project-2"
    assert set(texts(library, "project")) == {"src/a.py", "src/b.py"}


def test_a_name_can_be_taken_over_on_purpose(library: Library, project: Path, tmp_path: Path) -> None:
    library.load(request(project))
    other = fill(tmp_path / "other", {"x.py": "x\n"})
    loaded = library.load(request(other, name="project", take_name=True))
    assert (loaded.codex.roots, set(texts(library, "project"))) == ((str(other),), {"x.py"})


@pytest.mark.parametrize("mode", [0o000, 0o111, 0o444])
def test_a_folder_that_may_not_be_read_is_refused_in_words(mode: int) -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are below a folder that only its owner may enter
        Path(folder).chmod(mode)
        try:
            os.seteuid(os.getuid() or NOBODY)  # root may read everything
            with pytest.raises(SourceError, match=f"{folder} cannot be read .Permission denied.;"):
                resolve(LoadSpec((folder,)), Path("/"))
        finally:
            os.seteuid(os.getuid())


@pytest.mark.parametrize("name", ["none", "", "a/b", "-x", "ü", "x" * 65])
def test_a_name_that_cannot_be_typed_is_refused(library: Library, project: Path, name: str) -> None:
    with pytest.raises(BadName, match="cannot name a codex"):
        library.load(request(project, name=name))


def test_several_roots_and_files_share_one_name(library: Library, tmp_path: Path) -> None:
    fill(tmp_path, {"one/lib/a.py": "a\n", "two/lib/a.py": "b\n", "notes/todo.md": "c\n", "notes/other.md": "d\n"})
    loaded = library.load(request(tmp_path / "one/lib", tmp_path / "two/lib", tmp_path / "notes/todo.md", name="all"))
    assert texts(library, "all") == {"lib/a.py": "a\n", "lib-2/a.py": "b\n", "notes/todo.md": "c\n"}
    assert library.load(library.request("all")).generation == loaded.generation


def test_a_single_file_is_loaded_even_when_its_name_is_a_secret(library: Library, project: Path) -> None:
    loaded = library.load(request(project / ".env", name="settings"))
    assert texts(library, "settings") == {".env": "K=1\n"}
    assert loaded.generation.skipped == {}


def test_the_root_of_a_single_file_is_the_file(library: Library, project: Path) -> None:
    loaded = library.load(request(project / "src/a.py", name="one"))
    assert loaded.codex.roots == (str(project / "src/a.py"),)
    both = library.load(request(project / "src/a.py", project / "src/b.py", name="two"))
    assert both.codex.roots == (str(project / "src/a.py"), str(project / "src/b.py"))
    assert library.load(library.request("one")).generation.number == 1


def test_globs_choose_and_are_remembered_for_a_reload(library: Library, project: Path) -> None:
    library.load(request(project, globs=Globs(include=("*.py",), exclude=("b*",))))
    assert set(texts(library, "project")) == {"src/a.py"}
    assert library.load(library.request("project")).generation.number == 1
    assert library.request("project").globs == Globs(("*.py",), ("b*",))


def test_a_secret_in_a_file_leaves_it_out_with_a_notice_unless_asked_for(library: Library, project: Path) -> None:
    fill(project, {"src/key.py": "k = '" + "-----BEGIN " + "PRIVATE KEY-----\\n" + "MIIEvQIBADANBg" * 6 + "'\n"})
    loaded = library.load(request(project))
    assert loaded.generation.skipped["secret found in it"] == 1
    assert loaded.generation.notices == (
        ".env: left out, by the name it may hold secrets",
        "src/key.py:1: left out, it holds what looks like a private key",
    )
    asked = library.load(request(project, load_secrets=True))
    assert {".env", "src/key.py"} <= set(texts(library, asked.codex.name))
    assert asked.generation.notices == ("src/key.py:1: loaded as asked, but it holds what looks like a private key",)
    named = library.load(request(project / "src/key.py", name="key"))
    assert named.generation.notices == ("key.py:1: loaded as asked, but it holds what looks like a private key",)


@pytest.mark.parametrize("globs", [Globs(include=("[",)), Globs(exclude=("src/[a-",))])
def test_a_glob_that_cannot_be_read_is_refused_by_name(library: Library, project: Path, globs: Globs) -> None:
    with pytest.raises(
        SourceError, match=re.escape(f"{(globs.include + globs.exclude)[0]!r} is no pattern: a [ needs")
    ):
        library.load(request(project, globs=globs))
    assert library.catalog.codices() == ()


def test_a_home_folder_is_loaded_only_where_globs_say_what_of_it(
    library: Library, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(project))
    for folder in (project, project.parent, Path("/")):
        with pytest.raises(SourceError, match="is your home folder, or holds it; name a folder of code"):
            library.load(request(folder))
    assert library.load(request(project / "src")).files == 2
    assert library.load(request(project, globs=Globs(include=("*.py",)))).files == 2


def test_a_survey_tells_what_a_load_would_take_and_loads_nothing(library: Library, project: Path) -> None:
    survey = library.survey(request(project))
    assert (survey.name, survey.files, survey.bytes) == ("project", 2, 12)
    assert survey.skipped == {"binary": 1, "secret by name": 1}
    assert library.catalog.codices() == ()


def test_a_missing_source_is_refused(library: Library, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="is not there"):
        library.load(request(tmp_path / "nowhere"))


def test_where_no_more_files_may_be_open_a_folder_is_refused_with_the_limit_to_raise(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(SourceError, match="raise the limit of open files"):
            resolve(LoadSpec((str(tmp_path),)), Path("/"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_an_empty_folder_is_refused_and_leaves_no_codex(library: Library, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="holds no files"):
        library.load(request(tmp_path / "empty"))
    assert library.catalog.codices() == ()


def test_a_folder_with_nothing_to_load_says_why(library: Library, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"left out \(1 binary, 1 secret by name\)"):
        library.load(request(fill(tmp_path / "x", {"a.png": "x", ".env": "x"})))
