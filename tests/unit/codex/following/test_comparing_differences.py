"""How the disk differs from a codex that nobody follows, in numbers: the stamps are believed, the bytes decide."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.libraries import fill, request

from codex.following.amendments import Amendment, ChangeKind
from codex.following.comparing import Differences, Unread, differences, held_in
from codex.trees.port import CandidateFile

FILES = {f"src/{name}.py": f"# {name}\n" for name in ("same", "grown", "other", "gone")}
PATHS = st.sampled_from("abcdef")
DIGESTS = st.sampled_from(["1", "2", None])


@pytest.fixture
def code(tmp_path):
    return fill(tmp_path / "code", FILES)


def test_changed_new_and_gone_files_are_counted_and_nothing_is_stored(library, code):
    library.load(request(code))
    assert library.outside("code") == Differences()
    fill(code, {"src/grown.py": "# grown, and more\n", "src/other.py": "# OTHER\n", "src/new.py": "new = 1\n"})
    (code / "src/gone.py").unlink()
    found = library.outside("code")
    assert found == Differences(changed=2, added=1, removed=1)
    assert found.in_words() == "2 files differ, 1 is new, 1 is gone"
    assert library.catalog.generations("code") == (1,)
    assert library.catalog.amendments("code") == ()


def test_what_a_load_would_leave_out_is_not_new_and_what_it_would_leave_out_by_now_is_gone(library, code):
    library.load(request(code))
    fill(code, {"logo.png": "\x00", ".env": "KEY=1\n", "src/other.py": "\x00" * len("# other\n")})
    assert library.outside("code") == Differences(removed=1)


def test_a_file_that_was_only_touched_does_not_differ(library, code):
    library.load(request(code))
    os.utime(code / "src/same.py")
    assert library.outside("code") == Differences()


def test_what_the_log_tells_is_held(library, code):
    library.load(request(code))
    fill(code, {"src/grown.py": "# grown, and more\n"})
    library.follow("code", count=len, changed_definitions=lambda before, now: None)
    assert library.outside("code") == Differences()
    (code / "src/grown.py").unlink()
    assert library.outside("code") == Differences(removed=1)


def test_a_log_lies_over_its_generation(library, code):
    library.load(request(code))
    generation = library.catalog.generation("code")
    told = [
        Amendment(1, "src/gone.py", ChangeKind.REMOVED, None),
        Amendment(2, "src/same.py", ChangeKind.CHANGED, "another"),
    ]
    held = held_in(generation, told)
    assert sorted(held) == ["src/grown.py", "src/other.py", "src/same.py"]
    assert held["src/same.py"] == ("another", None)
    assert held["src/other.py"] == (generation.digests()["src/other.py"], len(FILES["src/other.py"]))


def test_where_not_all_was_read_it_says_at_least():
    assert Differences(changed=1, unread=5).in_words() == "at least 1 file differs"
    assert Differences(unread=5).in_words() == ""
    assert Differences(added=1_200, removed=2).in_words() == "1,200 files are new, 2 are gone"


@given(
    st.dictionaries(PATHS, st.sampled_from(["1", "2"])),
    st.dictionaries(PATHS, DIGESTS),
    st.sets(PATHS),
    st.sets(PATHS),
)
def test_of_what_was_read_every_file_is_counted_once(held, disk, unreadable, unread):
    def digest(one):
        if one.path in unreadable:
            raise PermissionError
        if one.path in unread:
            raise Unread
        return disk[one.path]

    found = differences(
        {path: (digest, None) for path, digest in held.items()},
        [CandidateFile(path, "", 1, "") for path in disk],
        digest,
    )
    silent = disk.keys() & (unreadable | unread)
    now = {path: digest for path, digest in disk.items() if path not in silent and digest is not None}
    assert found == Differences(
        changed=sum(path in held and held[path] != now[path] for path in now),
        added=len(now.keys() - held.keys()),
        removed=len(held.keys() - now.keys() - silent),
        unread=len(silent),
    )
