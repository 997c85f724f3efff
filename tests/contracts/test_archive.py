"""The archive's contract, held by the one in LanceDB and the one in memory alike."""

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.memory_archive import MemoryArchive

from codex.archive.archive import Archive
from codex.archive.queries import ChunkPlace
from codex.documents import Document, digest_of
from codex.searching.search import Search
from codex.words import words

PARSER = """def parseHeader(line):
    \"\"\"Reads one header line.\"\"\"
    return split_once(line)


class HeaderError(Exception):
    pass
"""
SPLIT = "def split_once(text):\n    return text.partition(':')\n"


def document(path: str, text: str) -> Document:
    raw = text.encode()
    return Document(path, text, digest_of(raw), len(raw))


@pytest.fixture(params=[Archive, MemoryArchive], ids=["lancedb", "memory"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Archive:
    make: Callable[[], Archive] = request.param if request.param is MemoryArchive else lambda: Archive(tmp_path)
    return make()


def paths(archive: Archive, *words: str, codex: str = "c") -> list[str]:
    return list(dict.fromkeys(match.place.path for match in archive.matches(codex, words, 10)))


def test_an_unknown_codex_is_empty_and_no_error(archive: Archive) -> None:
    assert archive.held("nobody") == {}
    assert archive.matches("nobody", ["word"], 5) == ()
    assert archive.both("nobody", ["word"], 5, 5) == ((), ())
    assert archive.definitions("nobody", ["word"]) == {}
    assert archive.at("nobody", [ChunkPlace("a.py", 1, 2)]) == {}
    assert list(archive.chunks("nobody")) == []
    assert archive.count("nobody") == 0
    archive.drop("nobody")
    archive.optimize("nobody")
    archive.replace("nobody", (), ["a.py"])


def test_what_was_written_is_found_at_once_by_words_of_its_identifiers(archive: Archive) -> None:
    archive.replace("c", [document("a.py", PARSER), document("b.py", SPLIT)])
    assert paths(archive, "header")[0] == "a.py"
    assert paths(archive, "parseheader") == ["a.py"]
    assert paths(archive, "partition") == ["b.py"]
    assert paths(archive, "nowhere") == []


def test_words_meet_in_their_stems(archive: Archive) -> None:
    archive.replace("c", [document("a.py", "merging = 1\n"), document("b.py", "other = 2\n")])
    assert paths(archive, "merges") == ["a.py"]


def test_held_is_the_digest_of_every_path_also_of_empty_files(archive: Archive) -> None:
    documents = [document("a.py", PARSER), document("empty.py", "")]
    archive.replace("c", documents)
    assert archive.held("c") == {one.path: one.digest for one in documents}


def test_replacing_a_document_leaves_nothing_of_the_old_one(archive: Archive) -> None:
    archive.replace("c", [document("a.py", PARSER), document("b.py", SPLIT)])
    archive.replace("c", [document("a.py", "zebra = 1\n")])
    assert paths(archive, "header") == []
    assert paths(archive, "zebra") == ["a.py"]
    assert archive.held("c")["a.py"] == document("a.py", "zebra = 1\n").digest
    assert archive.definitions("c", ["parseHeader"]) == {}
    assert archive.count("c") == 2


def test_a_document_that_becomes_empty_is_held_and_not_found(archive: Archive) -> None:
    archive.replace("c", [document("a.py", PARSER)])
    archive.replace("c", [document("a.py", "")])
    assert paths(archive, "header") == []
    assert list(archive.held("c")) == ["a.py"]


def test_of_two_documents_of_one_path_the_last_counts(archive: Archive) -> None:
    archive.replace("c", [document("a.py", PARSER), document("a.py", "zebra = 1\n")])
    assert paths(archive, "header") == []
    assert paths(archive, "zebra") == ["a.py"]


def test_removed_paths_are_gone_and_unknown_ones_no_error(archive: Archive) -> None:
    archive.replace("c", [document("a.py", PARSER), document("b.py", SPLIT)])
    archive.replace("c", (), ["a.py", "never.py"])
    assert list(archive.held("c")) == ["b.py"]
    assert paths(archive, "header") == []


def test_codices_do_not_see_each_other_and_one_can_be_dropped(archive: Archive) -> None:
    archive.replace("c", [document("a.py", PARSER)])
    archive.replace("c/other name", [document("b.py", SPLIT)])
    assert paths(archive, "partition") == []
    archive.drop("c")
    assert archive.held("c") == {}
    assert paths(archive, "partition", codex="c/other name") == ["b.py"]


def test_indexing_reads_once_and_tells_how_far_it_is(archive: Archive) -> None:
    told: list[int] = []
    archive.replace("c", [document("old.py", "old = 1\n")])
    documents = (document(f"m{number}.py", f"value_{number} = {number}\n") for number in range(700))
    archive.index("c", documents, ["old.py"], told.append)
    assert sum(told) == 700
    assert len(told) > 1
    assert len(archive.held("c")) == 700
    assert "old.py" not in archive.held("c")


def test_definitions_lead_to_the_chunks_that_define_a_name(archive: Archive) -> None:
    archive.replace("c", [document("a.py", PARSER), document("b.py", SPLIT)])
    found = archive.definitions("c", ["split_once", "HeaderError", "nothing"])
    assert found == {"split_once": (ChunkPlace("b.py", 1, 2),), "HeaderError": (ChunkPlace("a.py", 1, 7),)}


def test_a_chunk_is_read_back_with_its_text_and_what_it_refers_to(archive: Archive) -> None:
    archive.replace("c", [document("it's.py", PARSER)])
    place = ChunkPlace("it's.py", 1, 7)
    match, text = archive.at("c", [place, ChunkPlace("it's.py", 1, 3), ChunkPlace("gone.py", 1, 7)])[place]
    assert text == PARSER.rstrip("\n")
    assert (match.place, match.names) == (place, ("parseHeader", "HeaderError"))
    assert match.digest == archive.held("c")["it's.py"]
    assert "split_once" in match.references


def test_equal_texts_are_one_digest_with_several_places(archive: Archive) -> None:
    archive.replace("c", [document("b.py", SPLIT), document("a.py", SPLIT), document("c.py", PARSER)])
    digest = hashlib.sha256(SPLIT.rstrip("\n").encode()).hexdigest()
    same = (ChunkPlace("a.py", 1, 2), ChunkPlace("b.py", 1, 2))
    assert archive.digests("c")[digest] == same
    assert len(archive.digests("c")) == 2
    assert archive.holding("c", [digest, "unknown"]) == {digest: same}
    assert archive.holding("c", []) == archive.digests("nobody") == archive.holding("nobody", [digest]) == {}


def test_all_chunks_come_once(archive: Archive) -> None:
    archive.replace("c", [document("b.py", SPLIT), document("a.py", "x = 1\n" * 100)])
    places = [match.place for match in archive.chunks("c")]
    assert len(places) == len(set(places)) > 2
    assert {place.path for place in places} == {"a.py", "b.py"}


def test_a_search_can_be_kept_to_some_paths(archive: Archive) -> None:
    archive.replace("c", [document(f"{name}.py", f"shared_word = '{name}'\n") for name in "abc"])
    found = archive.matches("c", ["shared"], 10, ["b.py", "it's not there.py"])
    assert [match.place.path for match in found] == ["b.py"]
    assert archive.matches("c", ["shared"], 10, []) == ()


@pytest.mark.parametrize(
    ("string", "there"),
    [
        ("text.partition(':')", ["b.py"]),
        ("->", ["it's.c"]),
        ("it's->next", ["it's.c"]),
        ("ition(':", ["b.py"]),
        ("Split_once", []),
        ("split_once", ["a.py", "b.py"]),
        ("100%_'", []),
        ("", []),
    ],
)
def test_an_exact_string_is_found_with_its_case_and_punctuation(
    archive: Archive, string: str, there: list[str]
) -> None:
    archive.replace("c", [document("a.py", PARSER), document("b.py", SPLIT), document("it's.c", "x = it's->next;\n")])
    assert sorted(match.place.path for match in archive.exact("c", string, 5)) == there
    assert len(archive.exact("c", string, 1)) == min(1, len(there))
    assert archive.exact("c", string, 0) == archive.exact("nobody", string, 5) == ()


def test_a_phrase_is_found_over_ends_of_lines_and_marks_of_comments_and_only_in_its_order(archive: Archive) -> None:
    wrapped = "# Sessions are kept\n# until nobody's clock runs.\nx = 1\n"
    turned = "# kept sessions are until nobody's clock runs\n"
    archive.replace("c", [document("a.py", wrapped), document("b.py", turned)])
    wanted = words("Sessions are kept until nobody's clock")
    assert [match.place.path for match in archive.phrase("c", wanted, 5)] == ["a.py"]
    assert archive.phrase("c", words("sessions are keptuntil"), 5) == ()
    assert archive.phrase("c", wanted, 0) == archive.phrase("c", (), 5) == archive.phrase("nobody", wanted, 5) == ()


def test_warming_changes_nothing_and_an_unknown_codex_is_no_error(archive: Archive) -> None:
    archive.replace("c", [document("a.py", PARSER)])
    archive.warm("c")
    archive.warm("nobody")
    assert paths(archive, "header") == ["a.py"]


def test_files_are_ranked_as_wholes(archive: Archive) -> None:
    archive.replace("c", [document("a.py", PARSER), document("b.py", SPLIT)])
    assert [match.path for match in archive.both("c", ["partition"], 5, 5)[1]] == ["b.py"]


def test_optimizing_changes_nothing_that_is_found(archive: Archive) -> None:
    archive.replace("c", [document("a.py", PARSER), document("b.py", SPLIT)])
    before = (archive.held("c"), paths(archive, "header", "text"))
    archive.optimize("c")
    archive.optimize("c")
    assert (archive.held("c"), paths(archive, "header", "text")) == before


def test_names_and_words_of_any_script_and_shape_are_stored(archive: Archive) -> None:
    odd = document("dür/na'me \\u000a\".py", 'größe = "naïve 日本語 \x00 \\"quoted\\" AND OR (+-)"\n')
    archive.replace("c", [odd])
    assert paths(archive, "größe") == [odd.path]
    assert paths(archive, "and", "or", '"', "(", "+größe") in ([], [odd.path])
    assert archive.held("c") == {odd.path: odd.digest}


def test_a_search_sees_a_batch_whole_or_not_at_all(archive: Archive) -> None:
    """Two files always carry the same word; a reader beside the writer never sees them differ."""
    archive.replace("c", [document("a.py", "round_zero = 0\n"), document("b.py", "round_zero = 0\n")])
    torn: list[tuple[str, ...]] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen = archive.at("c", [ChunkPlace("a.py", 1, 1), ChunkPlace("b.py", 1, 1)])
            texts = tuple(text for _, text in seen.values())
            if len(texts) != 2 or texts[0] != texts[1]:
                torn.append(texts)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(12):
        text = f"round_{number} = {number}\n"
        archive.replace("c", [document("a.py", text), document("b.py", text)])
    done.set()
    reader.join()
    assert torn == []


def test_the_revision_differs_after_every_write_and_only_then(archive: Archive) -> None:
    seen = [archive.revision("c")]
    archive.replace("c", [document("a.py", PARSER)])
    seen.append(archive.revision("c"))
    archive.matches("c", ["header"], 5)
    archive.optimize("c")
    assert archive.revision("c") == seen[-1]
    archive.replace("c", (), ["a.py"])
    seen.append(archive.revision("c"))
    archive.drop("c")
    seen.append(archive.revision("c"))
    assert len(set(seen)) == len(seen)


def test_many_threads_may_write(archive: Archive) -> None:
    def write(name: str) -> None:
        for number in range(4):
            archive.replace("c", [document(f"{name}{number}.py", f"from_{name} = {number}\n")])

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(archive.held("c")) == 12


def test_the_same_search_over_both_gives_hits_with_lines_and_text(archive: Archive) -> None:
    archive.replace("c", [document("src/a.py", PARSER), document("src/b.py", SPLIT)])
    hit = Search(archive).search("How is a header line parsed?", "c").hits[0]
    assert (hit.path, hit.start, hit.end) == ("src/a.py", 1, 7)
    assert hit.text == PARSER.rstrip("\n")
    assert "parseHeader" in hit.snippet


def test_files_that_say_that_a_program_wrote_them_are_told(archive: Archive) -> None:
    said = "// Code generated by a tool. DO NOT EDIT.\n\n"
    by_hand = document(
        "hand.go", 'package a\n\n// Words such as "generated function" are no mark.\nfunc generated() {}\n'
    )
    assert archive.generated("c") == frozenset()
    archive.replace("c", [document("made.go", f"{said}package a\n\nfunc Made() {{}}\n"), by_hand])
    assert archive.generated("c") == {"made.go"}
    archive.replace("c", (), ["made.go"])
    assert archive.generated("c") == frozenset()
