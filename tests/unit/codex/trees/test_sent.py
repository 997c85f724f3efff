"""Files that were sent: the store keeps what was offered, asks for what it lacks, and opens no name of a client's."""

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codex.errors import NameTaken, SourceError
from codex.library import Library
from codex.settings import WalkSettings
from codex.trees import sent
from codex.trees.sent import FilesOffer, SentFile, SentFiles, frame, framed, is_inside
from codex.trees.sources import LoadSpec

WORK = "work~1001"


def file(path: str, raw: bytes) -> SentFile:
    return SentFile(path, len(raw), hashlib.sha256(raw).hexdigest())


def send(store: SentFiles, files: dict[str, bytes], codex: str = WORK) -> int:
    """How many files went over."""
    wanted = store.offer(codex, FilesOffer(tuple(file(path, raw) for path, raw in files.items())))
    by_digest = {hashlib.sha256(raw).hexdigest(): raw for raw in files.values()}
    taken = store.take(codex, b"".join(frame(digest, by_digest[digest]) for digest in wanted))
    store.accept(codex)
    return taken


def spec(**more) -> LoadSpec:
    return LoadSpec(("/home/bea/work",), name=WORK, sent=True, **more)


@pytest.fixture
def library(tmp_path):
    one = Library(tmp_path / "data")
    yield one
    one.close()


def test_a_codex_is_what_was_sent_and_of_an_edit_only_the_file_that_changed_is(library):
    assert send(library.sent, {"a.py": b"a = 1\n", "b.py": b"b = 1\n"}) == 2
    first = library.load(spec()).generation
    assert send(library.sent, {"a.py": b"a = 1\n", "b.py": b"b = 2\n"}) == 1
    second = library.load(spec()).generation
    assert [one.path for one in first.entries] == [one.path for one in second.entries] == ["a.py", "b.py"]
    assert first.digests()["a.py"] == second.digests()["a.py"]
    assert first.digests()["b.py"] != second.digests()["b.py"]
    assert len(list((library.folder / "sent").glob("*/files/*"))) == 2, "what nobody names any more is gone"


def test_the_folder_of_the_client_is_not_looked_at(library, tmp_path):
    (tmp_path / "secret.py").write_text("it = 1\n")
    send(library.sent, {"a.py": b"a = 1\n"})
    loaded = library.load(replace(spec(), sources=(str(tmp_path),)))
    assert [one.path for one in loaded.generation.entries] == ["a.py"]


def test_the_same_folder_loaded_by_its_path_is_another_codex(library, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "b.py").write_text("b = 1\n")
    send(library.sent, {"a.py": b"a = 1\n"})
    library.load(replace(spec(), sources=(str(tmp_path / "work"),)))
    assert library.name_of(LoadSpec((str(tmp_path / "work"),))) == "work"


def test_a_name_of_ones_own_that_is_taken_gets_a_proposal_with_the_same_owner(library):
    send(library.sent, {"a.py": b"a = 1\n"})
    library.load(spec())
    with pytest.raises(NameTaken) as refused:
        library.load(replace(spec(), sources=("/home/bea/other",)))
    assert refused.value.proposal == "work-2~1001"


def test_dropping_the_codex_deletes_what_was_sent(library):
    send(library.sent, {"a.py": b"a = 1\n"})
    library.load(spec())
    library.drop(WORK)
    assert not list((library.folder / "sent").iterdir())
    with pytest.raises(SourceError, match="no files were sent"):
        library.sent.accept(WORK)


def test_no_load_begins_while_files_are_missing(library):
    library.sent.offer(WORK, FilesOffer((file("a.py", b"a = 1\n"),)))
    with pytest.raises(SourceError, match="1 files were offered and not sent"):
        library.sent.accept(WORK)


def test_all_codices_of_a_user_have_a_bound_together_and_another_s_do_not_count(tmp_path, monkeypatch):
    monkeypatch.setattr(sent, "MOST_OF_USER", 10)
    store = SentFiles(tmp_path, WalkSettings())
    send(store, {"a": b"123456"})
    with pytest.raises(SourceError, match="more than 10 bytes"):
        send(store, {"a": b"12345"}, "more~1001")
    assert send(store, {"a": b"12345"}, "more~1002") == 1
    assert send(store, {"a": b"1234567890"}) == 1, "a codex's own bytes are replaced"


@given(st.lists(st.binary(max_size=40)), st.data())
def test_what_was_framed_is_read_again_and_a_body_that_is_cut_off_is_refused(bodies, data):
    whole = b"".join(frame(hashlib.sha256(raw).hexdigest(), raw) for raw in bodies)
    assert [raw for _, raw in framed(whole)] == bodies
    ends = {len(b"".join(frame("00" * 32, raw) for raw in bodies[:at])) for at in range(len(bodies) + 1)}
    cut = data.draw(st.integers(0, len(whole)).filter(lambda at: at not in ends)) if len(whole) else None
    if cut is not None:
        with pytest.raises(SourceError, match="the body ends within"):
            list(framed(whole[:cut]))


@given(st.text(alphabet="ab./\\\0x2e", max_size=12))
def test_a_name_that_is_taken_stays_below_any_folder(path):
    if is_inside(path):
        assert not path.startswith("/")
        assert ".." not in path.split("/")
        assert "\0" not in path
