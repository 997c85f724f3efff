"""Places that answers cite: found in prose, checked against the codex and against what was shown."""

from hypothesis import given
from hypothesis import strategies as st

from codex.citations import Citation, citations, cited

LINES = {"src/a.py": 20, "src/b.py": 5, "lib/b.py": 5, "Makefile": 3, "docs/My-file.v2.md": 9}


def places(answer: str) -> list[tuple[str, int, int]]:
    return [(one.path, one.start, one.end) for one in cited(answer)]


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
    ):
        assert places(text) == [], text


def test_a_place_that_was_shown_is_valid() -> None:
    found = citations("It is in src/a.py:10-12.", LINES, {"src/a.py": [(12, 14), (8, 11)]})
    assert found == (Citation("src/a.py", 10, 12, True, True),)


def test_a_missing_file_lines_beyond_the_end_and_unseen_lines_are_told_apart() -> None:
    shown = {"src/a.py": [(1, 9)]}
    whys = {one.path: one.why for one in citations("x.py:1 src/b.py:6", LINES, shown)}
    assert whys == {"x.py": "no such file in this codex", "src/b.py": "the file has 5 lines"}
    assert [(one.valid, one.why) for one in citations("src/a.py:9-10", LINES, shown)] == [
        (False, "these lines were not shown")
    ]
    assert citations("src/a.py:9-3 src/a.py:0", LINES)[0].why == "not a range of lines"


def test_a_shortened_path_counts_when_only_one_file_ends_in_it() -> None:
    assert citations("a.py:2", LINES) == (Citation("src/a.py", 2, 2, True),)
    assert not citations("b.py:2", LINES)[0].valid


def test_each_place_is_told_once_in_order() -> None:
    found = citations("src/b.py:1 src/a.py:1 src/b.py:1", LINES)
    assert [one.path for one in found] == ["src/b.py", "src/a.py"]


@given(st.text(max_size=200))
def test_any_text_can_be_read(answer: str) -> None:
    for one in cited(answer):
        assert answer[one.at : one.to].strip()


@given(st.sampled_from(sorted(LINES)), st.integers(1, 30), st.integers(0, 30))
def test_what_is_written_is_found_again(path: str, start: int, more: int) -> None:
    if "." not in path:
        return
    (found,) = citations(f"({path}:{start}-{start + more})", LINES)
    assert (found.path, found.start, found.end) == (path, start, start + more)
    assert found.valid == (start + more <= LINES[path])
