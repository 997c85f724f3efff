"""When the code that a memory is about is another one."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from orchestrator.errors import InvalidRequest, LoreError, NotFound
from orchestrator.karma.memories import Memories
from orchestrator.karma.records import CodeCitation, Kind, MemoryRecord, NewMemory
from orchestrator.karma.staleness import Staleness, candidates, digest_of, places_of
from orchestrator.karma.store import MemoryStore
from orchestrator.wire.memories import MemoryChange

ME = 1000
TEXT = "def one():\n    return 1\n\n\ndef two():\n    return 2\n"
TWO = CodeCitation("a.py", 5, 6)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryStore]:
    with closing(MemoryStore(tmp_path / "memories.sqlite3")) as opened:
        yield opened


COMMITS = {"1a2b": "1a2b" * 10, "3c4d": "3c4d" * 10}


def staleness(store: MemoryStore, files: Mapping[str, str]) -> Staleness:
    return Staleness(
        store, lambda codex, path: files.get(path), lambda codex: files, lambda codex, named: COMMITS.get(named)
    )


def checked(store: MemoryStore, citation: CodeCitation, files: Mapping[str, str]) -> MemoryRecord:
    """A memory that cited it in TEXT, after a look at these files."""
    cited = staleness(store, {"a.py": TEXT}).cited("demo", [citation])
    made = store.add(NewMemory(ME, Kind.DECISION, "two is two", codex="demo", evidence=cited))
    staleness(store, files).check("demo", [made])
    return store.get(ME, made.id)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        "import os\n\n" + TEXT,
        "def two():  \n    return 2\n\n",
        "class Two:\n    def two():\n        return 2\n",
    ],
)
def test_lines_that_stand_moved_or_are_indented_otherwise_are_no_change(store: MemoryStore, text: str) -> None:
    assert checked(store, TWO, {"a.py": text}).suspect == ""


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("return 2", "return 3"),
        TEXT.replace("def two():", "def two():\n    pass"),
        TEXT + "    # and more\n",
        "",
    ],
)
def test_lines_that_stand_nowhere_any_more_make_a_memory_suspect(store: MemoryStore, text: str) -> None:
    assert checked(store, TWO, {"a.py": text}).suspect == "a.py:5-6 changed"


def test_a_function_that_moved_to_another_file_is_no_change_and_the_citation_follows_it(store: MemoryStore) -> None:
    found = checked(store, TWO, {"a.py": "def one():\n    return 1\n", "b.py": "\n\ndef two():\n    return 2\n"})
    (cited,) = found.evidence
    assert (found.suspect, cited.path, cited.start, cited.end) == ("", "b.py", 3, 4)


@pytest.mark.parametrize("citation", [TWO, CodeCitation("a.py")])
def test_a_file_that_was_renamed_is_no_change_and_one_that_is_gone_is(
    store: MemoryStore, citation: CodeCitation
) -> None:
    found = checked(store, citation, {"src/a.py": TEXT})
    assert (found.suspect, found.evidence[0].path) == ("", "src/a.py")
    staleness(store, {"c.py": "def three():\n    return 3\n"}).check("demo", [found])
    assert store.get(ME, found.id).suspect == "src/a.py is gone"


def test_a_citation_that_follows_its_code_changes_nothing_else_of_the_memory(store: MemoryStore) -> None:
    found = checked(store, TWO, {"src/a.py": TEXT})
    assert found.updated == found.created
    assert staleness(store, {"src/a.py": TEXT}).cited("demo", found.evidence) == found.evidence


def test_a_memory_that_a_person_confirmed_is_suspect_only_when_its_code_changes_again(store: MemoryStore) -> None:
    files = {"a.py": TEXT.replace("return 2", "return 3")}
    suspect = checked(store, TWO, files)
    Memories(store, staleness(store, files)).change(ME, suspect.id, MemoryChange(do="confirm"))
    staleness(store, files).check("demo", store.all_of(ME))
    assert store.get(ME, suspect.id).suspect == ""
    staleness(store, {"a.py": TEXT}).check("demo", store.all_of(ME))
    assert store.get(ME, suspect.id).suspect == "a.py:5-6 changed"


def test_of_code_that_is_gone_and_confirmed_nothing_is_known_any_more(store: MemoryStore) -> None:
    suspect = checked(store, TWO, {})
    Memories(store, staleness(store, {})).change(ME, suspect.id, MemoryChange(do="confirm"))
    staleness(store, {}).check("demo", store.all_of(ME))
    assert store.get(ME, suspect.id).suspect == ""


def test_of_a_codex_that_is_not_here_nothing_is_known(store: MemoryStore) -> None:
    def absent(codex: str, path: str = "") -> str:
        raise NotFound("there is no codex demo")

    made = checked(store, TWO, {"a.py": TEXT})
    elsewhere = Staleness(store, absent, lambda codex: ())
    elsewhere.check("demo", [made])
    assert Memories(store, elsewhere).review(ME) == ()


def test_a_file_that_cannot_be_read_hides_no_other_when_moved_code_is_sought(store: MemoryStore) -> None:
    files = {"b.py": "", "c.py": "\ndef two():\n    return 2\n"}

    def text_of(codex: str, path: str) -> str | None:
        if path == "b.py":
            raise LoreError("the bytes of b.py are missing")
        return files.get(path)

    made = checked(store, TWO, {"a.py": TEXT})
    Staleness(store, text_of, lambda codex: files).check("demo", [made])
    assert store.get(ME, made.id).evidence[0].path == "c.py"


def test_a_whole_file_is_another_with_any_line_of_it(store: MemoryStore) -> None:
    found = checked(store, CodeCitation("a.py"), {"a.py": TEXT + "five\n", "b.py": "other\n"})
    assert found.suspect == "a.py changed"


def test_files_of_the_same_name_are_read_before_others_with_its_ending() -> None:
    paths = ["z/a.py", "b.py", "a.js", "README.md"]
    assert list(candidates(paths, ["a.py"])) == ["z/a.py", "b.py"]


@pytest.mark.parametrize("lines", [(3, 2), (4, 9)])
def test_lines_that_are_not_there_have_no_digest(lines: tuple[int, int]) -> None:
    assert digest_of(TEXT, CodeCitation("a.py", *lines)) is None


@given(some.lists(some.text("abc \t", max_size=4), min_size=1, max_size=8), some.data())
def test_inserting_lines_elsewhere_never_makes_cited_lines_suspect(lines: list[str], data: some.DataObject) -> None:
    start = data.draw(some.integers(1, len(lines)))
    cited = CodeCitation("a.py", start, data.draw(some.integers(start, len(lines))))
    text = "\n".join(lines) + "\n"
    kept = replace(cited, digest=digest_of(text, cited) or "")
    before, after = (
        data.draw(some.lists(some.just("new"), max_size=3)),
        data.draw(some.lists(some.just("new"), max_size=3)),
    )
    assert kept in places_of([kept], "\n".join([*before, *lines, *after]) + "\n")


def test_commits_are_cited_by_their_full_names_and_never_make_a_memory_suspect(store: MemoryStore) -> None:
    look = staleness(store, {"a.py": TEXT})
    cited = look.cited("demo", [CodeCitation("", commit="1a2b"), CodeCitation("", commit="3c4d"), TWO])
    made = store.add(NewMemory(ME, Kind.DECISION, "two is two", codex="demo", evidence=cited))
    assert [one.place for one in store.get(ME, made.id).evidence] == [
        *(f"commit {full}" for full in COMMITS.values()),
        "a.py:5-6",
    ]
    look.check("demo", [made])
    assert store.get(ME, made.id).suspect == ""


def test_a_commit_that_the_codex_does_not_have_is_refused(store: MemoryStore) -> None:
    with pytest.raises(InvalidRequest, match="codex demo has no commit 9f9f"):
        staleness(store, {}).cited("demo", [CodeCitation("", commit="9f9f")])
