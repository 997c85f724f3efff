"""What a search reports of its hits."""

from functools import partial

import anyio
import pytest
from support.memory_archive import MemoryArchive

from codex.documents import Document, digest_of
from codex.searching.neighbourhood import Neighbourhoods
from codex.searching.search import Search
from orchestrator.codices.archive import ArchiveSearch

FILES = {
    "src/errors.py": 'raise ValueError("no such header here")\n',
    "src/header.py": "def header():\n    return no_such_header(here)\n",
}


def report(files, query, n=10, graph=False, held=None):
    """`held`: the files as the codex has them, where the archive is ahead of it."""
    archive, held = MemoryArchive(), held or files
    archive.replace("c", [document(path, text) for path, text in files.items()])
    now = {path: document(path, text) for path, text in held.items()}

    def digests(codex, paths):
        return {path: now[path].digest for path in paths if path in now}

    search = ArchiveSearch(Search(archive), Neighbourhoods(archive), digests, lambda path, digest: now[path])
    return anyio.run(partial(search.report, query, "c", n, graph=graph)).model_dump(mode="json")


def document(path, text):
    return Document(path, text, digest_of(text.encode()), len(text))


def holding(query):
    return {hit["path"]: hit["exact"] for hit in report(FILES, query)["hits"]}


def test_a_hit_that_holds_what_was_quoted_is_marked_and_one_with_its_words_is_not():
    assert holding('"no such header here"') == {"src/errors.py": True, "src/header.py": False}


def test_what_was_quoted_and_stands_nowhere_is_absent_although_its_words_are_found():
    queries = ('"such header no"', '"such header no" "no such header here"', "such header no")
    found = {query: report(FILES, query) for query in queries}
    assert [(bool(found[query]["hits"]), found[query]["absent"]) for query in queries] == [
        (True, True),
        (True, False),
        (True, False),
    ]


def test_places_that_hold_what_was_quoted_and_are_not_shown_are_counted():
    body = "    value = 1\n" * 40
    text = "".join(f"def f{number}():\n    raise ValueError('<no such>')\n{body}" for number in range(5))
    found = report({"a.py": text}, '"<no such>"', 2)
    assert [hit["exact"] for hit in found["hits"]] == [True, True]
    assert found["notices"] == ["at least 3 more places hold what was asked for as it is; a larger -n shows more"]
    assert report({"a.py": text}, '"<no such>"', 5)["notices"] == []


@pytest.mark.parametrize("n", [1, 3, 10])
def test_neighbours_stand_behind_all_hits_and_say_from_which_one_and_by_what(n):
    files = {
        **{f"{name}.py": f"def {name}():\n    return helper_one()  # begin\n" for name in ("begin", "begin_again")},
        "helper.py": "def helper_one():\n    return helper_two()\n",
        "deep.py": "def helper_two():\n    return 1\n",
    }
    plain, found = report(files, "begin", n)["hits"], report(files, "begin", n, graph=True)["hits"]
    assert found[: len(plain)] == plain
    assert [hit["near"] for hit in plain] == [""] * len(plain)
    near = {hit["path"]: hit["near"] for hit in found[len(plain) :]}
    assert near["helper.py"] == "used by begin.py:1 (begin): helper_one"
    assert n == 1 or near["deep.py"] == "2 steps from begin.py:1, through helper.py:1"
    assert len(near) <= n


def test_where_nothing_was_quoted_no_hit_is_marked():
    assert set(holding("which header is here").values()) == {False}


def test_files_that_the_archive_holds_otherwise_than_the_codex_are_shown_as_the_codex_has_them():
    padding = "".join(f"def other{number}():\n" + "    pass\n" * 30 for number in range(3))
    same = "# the vault of the lion\n"
    ahead = {"a.py": "CODE = 2  # zebra vault\n", "b.py": "# a vault is new\n", "c.py": same, "d.py": "# vault\n"}
    held = {"a.py": f"{padding}CODE = 1  # zebra vault\n", "c.py": same, "d.py": ""}
    found = report(ahead, "the code of the zebra vault", held=held)["hits"]
    assert {hit["path"]: hit["snippet"] for hit in found} == {"a.py": "CODE = 1  # zebra vault", "c.py": same.strip()}
    (hit,) = (hit for hit in found if hit["path"] == "a.py")
    assert (hit["line"], hit["end"]) == (94, 94)


def test_a_neighbour_that_was_indexed_otherwise_is_shown_as_the_codex_has_it():
    files = {"begin.py": "def begin():\n    return helper_one()\n", "helper.py": "def helper_one():\n    return 2\n"}
    held = {**files, "helper.py": "def helper_one():\n    return 1\n"}
    found = report(files, "begin", graph=True, held=held)["hits"]
    assert [(hit["near"], hit["snippet"].splitlines()[-1].strip()) for hit in found if hit["path"] == "helper.py"] == [
        ("used by begin.py:1 (begin): helper_one", "return 1")
    ]


def test_places_of_files_that_the_codex_no_longer_holds_are_not_counted():
    body = "    value = 1\n" * 40
    text = "".join(f"def f{number}():\n    raise ValueError('<no such>')\n{body}" for number in range(5))
    assert report({"a.py": text}, '"<no such>"', 2, held={"a.py": "gone = True\n"})["notices"] == []


def test_places_of_other_files_are_counted_where_one_was_indexed_otherwise():
    body = "    value = 1\n" * 40
    text = "".join(f"def f{number}():\n    raise ValueError('<no such>')\n{body}" for number in range(5))
    files = {"a.py": text, "b.py": "raise ValueError('<no such>')\n"}
    found = report(files, '"<no such>"', 3, held={**files, "b.py": "gone = True\n"})
    assert {hit["path"] for hit in found["hits"]} == {"a.py", "b.py"}
    shown = sum(hit["exact"] for hit in found["hits"])
    assert found["notices"] == [
        f"at least {5 - shown} more places hold what was asked for as it is; a larger -n shows more"
    ]
