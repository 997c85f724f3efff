"""Places that answers cite: found in prose, checked against the codex and against what was shown."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codex.citations import CheckedCitation, Files, ShownLines, check, cited

LINES = {"src/a.py": 20, "src/b.py": 5, "lib/b.py": 5, "Makefile": 3, "docs/My-file.v2.md": 9}


def citations(
    answer: str, line_counts: Mapping[str, int], shown: ShownLines | None = None
) -> tuple[CheckedCitation, ...]:
    """The checked citations of an answer. `line_counts`: lines by path."""
    files = Files(line_counts)
    return check(cited(answer, files.is_file), files, shown)


def places(answer: str) -> list[tuple[str, int, int]]:
    return [(one.path, one.start, one.end) for one in cited(answer)]


@pytest.mark.parametrize(
    ("answer", "place"),
    [
        ("src/a.py:10-20", ("src/a.py", 10, 20)),
        ("src/a.py:10 – 20", ("src/a.py", 10, 20)),
        ("src/a.py#L10-L20", ("src/a.py", 10, 20)),
        ("src/a.py#L10C5-L20C3", ("src/a.py", 10, 20)),
        ("src/a.py:L10-L20", ("src/a.py", 10, 20)),
        ("src/a.py:10:5", ("src/a.py", 10, 10)),
        ("src/a.py, lines 10–20", ("src/a.py", 10, 20)),
        ("`src/a.py`, lines 10 to 20,", ("src/a.py", 10, 20)),
        ("`src/a.py` (lines 10-20)", ("src/a.py", 10, 20)),
        ("**src/a.py** at line 10.", ("src/a.py", 10, 10)),
        ("src/a.py: line 10", ("src/a.py", 10, 10)),
        ("Lines 10-20 of `src/a.py` do", ("src/a.py", 10, 20)),
        ("on line 10 in the file src/a.py", ("src/a.py", 10, 10)),
        ('  File "src/a.py", line 10, in go', ("src/a.py", 10, 10)),
        ("`src/a.py`:10", ("src/a.py", 10, 10)),
        ("src\\app\\a.py:10", ("src\\app\\a.py", 10, 10)),
        ("C:\\x\\a.py:10", ("C:\\x\\a.py", 10, 10)),
        ("/home/me/x/a.py:10", ("/home/me/x/a.py", 10, 10)),
        ("[here](src/a.py#L10)", ("src/a.py", 10, 10)),
        ("Makefile:3", ("Makefile", 3, 3)),
        ("docker/Dockerfile:12", ("docker/Dockerfile", 12, 12)),
        (".gitignore:2", (".gitignore", 2, 2)),
        ("LICENSE:1", ("LICENSE", 1, 1)),
    ],
)
def test_a_place_is_found_however_it_is_written(answer: str, place: tuple[str, int, int]) -> None:
    assert places(answer) == [place]


def test_a_known_name_counts_whatever_it_looks_like() -> None:
    files = Files({"bin/run": 9, "app/[id]/page.tsx": 9, "docs/My notes.md": 9, "standard input": 4})
    answer = "See bin/run:3, `docs/My notes.md:4`, app/[id]/page.tsx:5 and standard input:2; but run:x, go:1."
    found = [(one.path, one.start) for one in cited(answer, files.is_file)]
    assert found == [("bin/run", 3), ("docs/My notes.md", 4), ("app/[id]/page.tsx", 5), ("standard input", 2)]


def test_places_are_found_in_the_ways_people_write_them() -> None:
    answer = (
        "See src/a.py:10, (src/a.py:10-12), `./src/b.py:3–4`, **docs/My-file.v2.md:9**, src/a.py#L5-L7, "
        '"src/a.py:1". And src/b.py:2: it says so.'
    )
    assert places(answer) == [
        ("src/a.py", 10, 10),
        ("src/a.py", 10, 12),
        ("src/b.py", 3, 4),
        ("docs/My-file.v2.md", 9, 9),
        ("src/a.py", 5, 7),
        ("src/a.py", 1, 1),
        ("src/b.py", 2, 2),
    ]


def test_what_only_looks_like_a_place_is_left_alone() -> None:
    for text in (
        "at 10:30",
        "http://host.example/x:80",
        "localhost:8080",
        "127.0.0.1:80",
        "ratio 3:4",
        "a.py:x",
        "key:1",
        "http://host:80",
        "see https://host.example/x/blob/main/a.py#L10 and http://h/?f=a.py:10",
        "http://127.0.0.1:8080/a.py:3",
        "std::vector:12 std::string::npos:3",
        "example.com:443, db.internal:5432, redis:6379, 10.0.0.1:22",
        "and/or:3, TCP/IP:80, library/nginx:1",
        "v1.2:30, 3.5:1, Python 3.11:30",
        "2026-11-21 12:30:05",
        "a.py:10.5",
        "obj.attr:3",
        '{"a.py": 10}',
        "section 3.2, line 10",
    ):
        assert places(text) == [], text


def test_a_place_that_was_shown_is_valid() -> None:
    found = citations("It is in src/a.py:10-12.", LINES, ShownLines({"src/a.py": [(12, 14), (8, 11)]}))
    assert found == (CheckedCitation("src/a.py", 10, 12),)


def test_a_missing_file_lines_beyond_the_end_and_unseen_lines_are_told_apart() -> None:
    shown = ShownLines({"src/a.py": [(1, 9)]})
    whys = {one.path: one.why for one in citations("x.py:1 src/b.py:6", LINES, shown)}
    assert whys == {"x.py": "no such file in this codex", "src/b.py": "the file has 5 lines"}
    assert [(one.valid, one.why) for one in citations("src/a.py:9-10", LINES, shown)] == [
        (False, "these lines were not shown")
    ]
    assert citations("src/a.py:9-3 src/a.py:0", LINES)[0].why == "not a range of lines"


def test_a_shortened_path_counts_when_only_one_file_ends_in_it() -> None:
    assert citations("a.py:2", LINES) == (CheckedCitation("src/a.py", 2, 2),)
    assert not citations("b.py:2", LINES)[0].valid


def test_a_place_is_shown_by_the_line_that_stands_for_it_in_a_skeleton() -> None:
    shown = ShownLines(heads={"src/a.py": {3, 9}})
    found = citations("src/a.py:3-8 src/a.py:4", LINES, shown)
    assert [(one.start, one.valid, one.why) for one in found] == [
        (3, True, ""),
        (4, False, "these lines were not shown"),
    ]


def test_slashes_of_either_kind_and_absolute_paths_lead_to_the_file() -> None:
    for name in ("src\\a.py", "./src/a.py", "/home/me/project/src/a.py", "C:\\project\\src\\a.py"):
        assert citations(f"{name}:2", LINES) == (CheckedCitation("src/a.py", 2, 2),), name
    assert citations("/home/me/a.py:2", LINES)[0].why == "no such file in this codex"


def test_each_place_is_told_once_in_order() -> None:
    found = citations("src/b.py:1 src/a.py:1 src/b.py:1, that is lines 1 of src/a.py", LINES)
    assert [one.path for one in found] == ["src/b.py", "src/a.py"]


@given(st.text(max_size=200))
def test_any_text_can_be_read(answer: str) -> None:
    for one in cited(answer):
        assert answer[one.at : one.to].strip()


@given(st.sampled_from(sorted(LINES)), st.integers(1, 30), st.integers(0, 30))
def test_what_is_written_is_found_again(path: str, start: int, more: int) -> None:
    (found,) = citations(f"({path}:{start}-{start + more})", LINES)
    assert (found.path, found.start, found.end) == (path, start, start + more)
    assert found.valid == (start + more <= LINES[path])
