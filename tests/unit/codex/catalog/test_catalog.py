import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codex.catalog.catalog import ENTRIES, SCHEMA, Catalog, pack
from codex.catalog.databases import open_database
from codex.catalog.generations import FileEntry, Generation, KnownFile
from codex.documents import Document, digest_of
from codex.errors import CatalogError, NewerCatalog, UnknownCodex, UnknownGeneration
from codex.following.amendments import Amendment, ChangeKind, effective
from codex.trees.port import TreeState


def put(catalog: Catalog, name: str = "one", **files: str) -> tuple[FileEntry, ...]:
    """Register, store and describe files, in the order given."""
    catalog.register(name, f"/src/{name}#", [f"/src/{name}"], "{}")
    raw = {path.replace("_dot_", "."): text.encode() for path, text in files.items()}
    known = {path: KnownFile("stamp", digest_of(body), len(body)) for path, body in raw.items()}
    catalog.store(name, known, {digest_of(body): pack(body) for body in raw.values()})
    return tuple(FileEntry(path, digest_of(body), len(body)) for path, body in raw.items())


def test_a_generation_is_told_again_after_a_restart(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "c.sqlite")
    entries = put(catalog, b_dot_py="b = 1\n", a_dot_py="a = 1\n")
    made = catalog.freeze("one", TreeState("main", "abc", 2), entries, {"binary": 3}, ["a notice"])
    catalog.close()
    again = Catalog(tmp_path / "c.sqlite")
    assert again.generation("one") == made
    assert made == Generation("one", 1, TreeState("main", "abc", 2), entries, {"binary": 3}, ("a notice",))
    assert list(again.documents(made.entries)) == [
        Document("b.py", "b = 1\n", digest_of(b"b = 1\n"), 6),
        Document("a.py", "a = 1\n", digest_of(b"a = 1\n"), 6),
    ]
    again.close()


def test_why_a_generation_was_made_is_told_after_a_restart_and_goes_with_it(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "c.sqlite")
    entries = put(catalog, a_dot_py="a = 1\n")
    catalog.freeze("one", TreeState(), entries, {}, [])
    catalog.freeze("one", TreeState(), entries[:0], {}, [], "the log had grown too long")
    catalog.close()
    again = Catalog(tmp_path / "c.sqlite")
    assert [again.generation("one", number).why for number in (1, 2)] == ["", "the log had grown too long"]
    again.restate(again.generation("one"))
    assert again.generation("one").why == "the log had grown too long"
    again.release("one", 2)
    assert again.freeze("one", TreeState(), entries[:0], {}, []).why == again.generation("one").why == ""
    again.close()


def test_equal_bytes_are_stored_once_and_dropped_with_their_last_holder(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "c.sqlite")
    for name in ["one", "two"]:
        catalog.freeze(name, TreeState(), put(catalog, name, a_dot_py="same\n"), {}, [])
    digest = digest_of(b"same\n")
    catalog.drop("one")
    assert catalog.document_by_digest("a.py", digest).text == "same\n"
    catalog.drop("two")
    with pytest.raises(CatalogError, match=r"no longer holds a\.py"):
        catalog.document_by_digest("a.py", digest)


def test_an_older_generation_keeps_its_bytes_until_it_is_released(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "c.sqlite")
    first = catalog.freeze("one", TreeState(), put(catalog, a_dot_py="old\n"), {}, [])
    second = catalog.freeze("one", TreeState(), put(catalog, a_dot_py="new\n"), {}, [])
    assert [one.text for one in catalog.documents(first.entries)] == ["old\n"]
    catalog.release("one", first.number)
    assert catalog.generations("one") == (second.number,)
    with pytest.raises(CatalogError, match=r"no longer holds a\.py"):
        list(catalog.documents(first.entries))


def test_numbers_of_generations_only_grow(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "c.sqlite")
    entries = put(catalog, a_dot_py="a\n")
    assert [catalog.freeze("one", TreeState(), entries, {}, []).number for _ in range(3)] == [1, 2, 3]


def test_codices_that_were_read_are_known_until_one_is_another(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "c.sqlite")

    def known_again() -> bool:
        """Whether they had to be read anew."""
        assert catalog.known_codices() in (None, Catalog(tmp_path / "c.sqlite").codices())
        anew = catalog.known_codices() is None
        assert catalog.codices() == catalog.known_codices()
        return anew

    assert known_again()
    entries = put(catalog, a_dot_py="a = 1\n")
    assert known_again()
    made = catalog.freeze("one", TreeState(), entries, {}, [])
    assert known_again()
    catalog.freeze("one", TreeState(), entries, {}, [])
    catalog.release("one", 2)
    assert known_again()
    catalog.store("one", {"b.py": KnownFile("stamp", None, 1)}, {})
    catalog.restate(made)
    assert not known_again()
    catalog.drop("one")
    assert known_again()
    catalog.close()


def test_the_log_beside_a_generation_is_kept_in_order_and_whole(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "c.sqlite")
    catalog.freeze("one", TreeState(), put(catalog, a_dot_py="a\n"), {}, [])
    log = (
        Amendment(1, "b.py", ChangeKind.ADDED, "d1", "text"),
        Amendment(2, "a.py", ChangeKind.CHANGED, "d2", "def", whole=False),
    )
    catalog.append("one", 1, log[:1])
    catalog.append("one", 1, log[1:])
    assert catalog.amendments("one", 1) == log
    with pytest.raises(CatalogError):
        catalog.append(
            "one", 1, (Amendment(3, "c.py", ChangeKind.REMOVED, None), Amendment(1, "x", ChangeKind.REMOVED, None))
        )
    assert catalog.amendments("one", 1) == log


def test_an_unknown_codex_is_named_with_those_there_are(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "c.sqlite")
    put(catalog, a_dot_py="a\n")
    with pytest.raises(UnknownCodex, match=r"no codex named 'two' \(there are: one\)"):
        catalog.generation("two")
    with pytest.raises(UnknownGeneration, match=r"'one' was not loaded to the end; `lore load .*` continues"):
        catalog.generation("one")


def test_a_catalog_of_a_newer_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    Catalog(path, (*SCHEMA, "CREATE TABLE later (x)")).close()
    before = path.read_bytes()
    with pytest.raises(NewerCatalog, match="start the newer version"):
        Catalog(path)
    assert path.read_bytes() == before


def test_a_catalog_is_copied_before_it_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    old = Catalog(path)
    put(old, a_dot_py="a\n")
    old.close()
    new = Catalog(path, (*SCHEMA, "ALTER TABLE codex ADD COLUMN colour TEXT; CREATE TABLE later (x)"))
    assert [one.name for one in new.codices()] == ["one"]
    new.close()
    copy = sqlite3.connect(tmp_path / f"c.sqlite.before-{len(SCHEMA) + 1}")
    assert copy.execute("PRAGMA user_version").fetchone() == (len(SCHEMA),)
    assert copy.execute("SELECT name FROM codex").fetchall() == [("one",)]
    copy.close()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    Catalog(path).close()
    with pytest.raises(CatalogError):
        Catalog(path, (*SCHEMA, "CREATE TABLE later (x); CREATE TABLE codex (name)"))
    Catalog(path).close()


OLD = ("CREATE TABLE said (text)",)
NEW = (*OLD, "ALTER TABLE said ADD COLUMN length; UPDATE said SET length = length(text)")
MIGRATING = f"""
import sys
from pathlib import Path
from codex.catalog.databases import open_database
open_database(Path(sys.argv[1]), {NEW!r})
"""


@pytest.mark.parametrize("sign", ["a.sqlite3.before-2.part", "a.sqlite3.before-2"])
def test_whoever_is_killed_while_a_database_is_migrated_finds_all_of_it(tmp_path: Path, sign: str) -> None:
    path, rows = tmp_path / "a.sqlite3", 200_000
    old = open_database(path, OLD)
    old.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT ?) "
        "INSERT INTO said SELECT 'word ' || i FROM n",
        (rows,),
    )
    old.close()
    child = subprocess.Popen([sys.executable, "-P", "-c", MIGRATING, path])
    while child.poll() is None and not (tmp_path / sign).exists():
        pass
    child.kill()
    assert child.wait() == -signal.SIGKILL, "it was done before the kill"
    new = open_database(path, NEW)
    assert new.execute("SELECT count(*), count(length) FROM said").fetchone() == (rows, rows)
    new.close()


def test_a_damaged_catalog_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    path.write_bytes(b"this is no database, and it is long enough to be looked at" * 40)
    with pytest.raises(CatalogError, match=r"is damaged.*move it away"):
        Catalog(path)


def test_only_the_owner_can_read_the_catalog(tmp_path: Path) -> None:
    path = tmp_path / "data" / "c.sqlite"
    Catalog(path).close()
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize(
    ("state", "label"),
    [
        (TreeState(), ""),
        (TreeState("main", "1a2b3c4d5e", 0), "main@1a2b3c4"),
        (TreeState("main", "1a2b3c4d5e", 2), "main@1a2b3c4 + 2 changed files"),
        (TreeState(None, "1a2b3c4d5e", 1), "detached@1a2b3c4 + 1 changed file"),
    ],
)
def test_the_state_of_the_code_is_told_in_words(state: TreeState, label: str) -> None:
    assert Generation("one", 1, state, ()).label() == label


def test_a_folder_that_cannot_be_made_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(CatalogError, match="cannot be used: Not a directory"):
        Catalog(tmp_path / "file" / "data" / "c.sqlite")


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("12"), min_size=1),
    st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["1", "2", None])), max_size=8),
    st.lists(st.sampled_from("abcdefg"), max_size=9),
)
def test_files_that_are_asked_for_stand_as_the_whole_generation_and_its_log_have_them(
    files: dict[str, str], told: list[tuple[str, str | None]], asked: list[str]
) -> None:
    with TemporaryDirectory() as folder, closing(Catalog(Path(folder) / "c.sqlite")) as catalog:
        catalog.register("one", "/src/one#", ["/src/one"], "{}")
        catalog.freeze("one", TreeState(), [FileEntry("a", "an older one", 1)], {}, [])
        made = catalog.freeze(
            "one", TreeState(), [FileEntry(path, digest, 7) for path, digest in files.items()], {}, []
        )
        log = [Amendment(at, path, ChangeKind.CHANGED, digest) for at, (path, digest) in enumerate(told, start=1)]
        catalog.append("one", 2, log)
        every, amended = effective(made.digests(), log), {path for path, _ in told}
        assert catalog.file_digests("one", asked) == {
            path: (every[path], None if path in amended else 7) for path in asked if path in every
        }


def test_of_more_files_than_fit_one_question_all_are_told(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "c.sqlite")
    catalog.register("one", "/src/one#", ["/src/one"], "{}")
    catalog.freeze(
        "one", TreeState(), [FileEntry(f"{number:03}", str(number), number) for number in range(600)], {}, []
    )
    found = catalog.file_digests("one", [f"{number:03}" for number in range(700)])
    assert found == {f"{number:03}": (str(number), number) for number in range(600)}
    catalog.close()


def test_a_generation_can_be_told_without_its_entries(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "c.sqlite")
    made = catalog.freeze("one", TreeState("main", "abc", 2), put(catalog, a_dot_py="a = 1\n"), {"binary": 3}, ["a"])
    assert catalog.bare_generation("one") == replace(made, entries=())
    with pytest.raises(UnknownGeneration):
        catalog.bare_generation("one", 7)
    catalog.close()


def test_files_are_looked_up_by_name_and_not_searched_for_among_all(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "c.sqlite")
    catalog.close()
    with sqlite3.connect(tmp_path / "c.sqlite") as database:
        plan = database.execute(f"EXPLAIN QUERY PLAN {ENTRIES} WHERE generation = 1 AND path IN ('a', 'b')")
        said = " ".join(str(row[3]) for row in plan)
    database.close()
    assert "entry_path (generation=? AND path=?)" in said
