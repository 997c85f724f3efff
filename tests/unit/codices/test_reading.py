"""Lines of a file of a codex: as the codex has it, never from beside it."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.libraries import fill, request

from codex.library import Library
from orchestrator.codices.reading import CodexFiles, LinesOfFile
from orchestrator.errors import NotFound

FILES = {"src/a.py": "one\ntwo\x0cstill two\nthree\n", "empty.py": "", "open.py": "no end"}


@pytest.fixture
def files(tmp_path: Path) -> Iterator[CodexFiles]:
    library = Library(tmp_path / "codices")
    fill(tmp_path / "source", FILES)
    library.load(request(tmp_path / "source", name="demo"))
    (tmp_path / "source" / "later.py").write_text("not taken in\n")
    digests = library.catalog.generation("demo").digests()
    residents: Any = SimpleNamespace(
        digests=lambda name, paths: {one: digests[one] for one in paths if one in digests},
        paths=lambda name: list(digests),
    )
    yield CodexFiles(library, residents)
    library.close()


@pytest.mark.parametrize(
    ("path", "start", "end", "found"),
    [
        ("src/a.py", 1, 200, LinesOfFile(1, 3, 3, FILES["src/a.py"])),
        ("src/a.py", 2, 2, LinesOfFile(2, 2, 3, "two\x0cstill two\n")),
        ("src/a.py", 3, 9, LinesOfFile(3, 3, 3, "three\n")),
        ("open.py", 1, 1, LinesOfFile(1, 1, 1, "no end\n")),
        ("empty.py", 1, 200, LinesOfFile(0, 0, 0, "")),
    ],
)
def test_lines_are_given_as_far_as_the_file_goes(files, path, start, end, found):
    assert files.lines_of("demo", path, start, end) == found


@pytest.mark.parametrize(("start", "end"), [(4, 9), (3, 2)])
def test_lines_that_a_file_has_not_are_refused_with_how_many_it_has(files, start, end):
    with pytest.raises(NotFound, match="3 lines"):
        files.lines_of("demo", "src/a.py", start, end)


@pytest.mark.parametrize("path", ["a.py", "later.py", "../source/src/a.py", "/etc/passwd", ""])
def test_what_is_no_file_of_the_codex_is_refused_with_the_nearest_name(files, path):
    with pytest.raises(NotFound, match="no file of this codex") as refused:
        files.lines_of("demo", path, 1, 9)
    assert "src/a.py" in refused.value.message.partition("; there are: ")[2]
    with pytest.raises(NotFound, match="no file of this codex"):
        files.size_of("demo", ["open.py", path])


def test_files_are_as_large_as_their_characters(files):
    assert files.size_of("demo", ["open.py", "empty.py", "src/a.py"]) == len("no end") + len(FILES["src/a.py"])
