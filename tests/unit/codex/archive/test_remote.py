"""An archive on object storage: many read it, one at a time writes, and a storage that is away loses nothing."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.object_storage import KEYS, ObjectStorage, object_storage
from support.waiting import SOON

from codex.archive.archive import Archive
from codex.archive.remote import why_away
from codex.documents import Document, digest_of
from codex.errors import ArchiveAway, ArchiveError, ArchiveHeld
from codex.library import Library
from codex.trees.sources import LoadSpec

TEXTS = {"a.py": "def parse_header(line):\n    return line\n", "b.py": "zebra = 1\n"}


@pytest.fixture(scope="module")
def storage() -> Iterator[ObjectStorage]:
    with object_storage() as made:
        yield made


@pytest.fixture
def machines(storage: ObjectStorage, tmp_path: Path) -> Iterator[tuple[Archive, Archive]]:
    """Two of them, each with an archive that is at one place."""
    archives = tuple(Archive(tmp_path / name, storage.archive(name)) for name in ("ann@one", "bob@two"))
    yield archives
    storage.is_back()
    for archive in archives:
        archive.close()


@pytest.fixture
def codex(request: pytest.FixtureRequest) -> str:
    """A name of its own: the tests share the storage."""
    return request.node.name


def documents(texts: dict[str, str]) -> list[Document]:
    return [Document(path, text, digest_of(text.encode()), len(text)) for path, text in texts.items()]


def paths(archive: Archive, codex: str, *words: str) -> list[str]:
    return [match.place.path for match in archive.matches(codex, words, 10)]


def asked_anew(archive: Archive) -> None:
    """What was found out of the storage is not believed any more: seconds have passed."""
    archive.remote._looked = None


def test_what_one_machine_indexes_others_find_with_its_texts(machines, codex):
    one, other = machines
    one.replace(codex, documents(TEXTS))
    assert paths(other, codex, "header") == ["a.py"]
    assert other.held(codex) == one.held(codex) == {path: digest_of(text.encode()) for path, text in TEXTS.items()}
    (place,) = [match.place for match in other.exact(codex, "zebra = 1", 5)]
    assert other.at(codex, [place])[place][1] == "zebra = 1"
    assert [file.path for file in other.both(codex, ["zebra"], 5, 5)[1]] == ["b.py"]


def test_two_writers_take_turns_and_the_second_is_told_who_writes_and_until_when(machines, codex):
    one, other = machines
    one.replace(codex, documents(TEXTS))
    with pytest.raises(ArchiveHeld, match=r"is written by ann@one, until 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC") as told:
        other.replace(codex, documents({"c.py": "giraffe = 1\n"}))
    assert told.value.until > time.time()
    assert paths(other, codex, "giraffe") == []
    one.close()  # gives the lease back
    other.replace(codex, documents({"c.py": "giraffe = 1\n"}))
    assert sorted(other.held(codex)) == ["a.py", "b.py", "c.py"]
    with pytest.raises(ArchiveHeld, match="bob@two"):
        one.replace(codex, (), ["a.py"])


def test_a_lease_runs_out_and_is_taken_again_by_whoever_held_it(machines, codex, storage, tmp_path):
    one, other = machines
    one.replace(codex, documents(TEXTS))
    again = Archive(tmp_path / "again", storage.archive("ann@one"))  # it was killed, and has no memory of its lease
    again.replace(codex, (), ["a.py"])
    again.close()
    short = Archive(tmp_path / "short", storage.archive("short", lease_s=0.0))
    short.replace(codex, documents({"d.py": "okapi = 1\n"}))
    other.replace(codex, (), ["d.py"])
    assert list(other.held(codex)) == ["b.py"]
    short.close()


def test_who_may_only_read_writes_nothing(machines, codex, storage, tmp_path):
    machines[0].replace(codex, documents(TEXTS))
    reader = Archive(tmp_path / "reader", storage.archive("reader", writes=False))
    with pytest.raises(ArchiveHeld, match=r"archive\.writes is false"):
        reader.replace(codex, (), ["a.py"])
    reader.drop(codex)
    assert paths(reader, codex, "header") == ["a.py"]
    reader.close()


def test_what_another_writes_is_seen_once_it_is_looked_for(machines, codex, monkeypatch, storage, tmp_path):
    from datetime import timedelta

    from codex.archive import tables

    monkeypatch.setattr(tables, "SEEN_AFTER", timedelta(0))
    reader = Archive(tmp_path / "reader", storage.archive("reader"))
    machines[0].replace(codex, documents(TEXTS))
    assert set(reader.definitions(codex, ["parse_header", "skip_header"])) == {"parse_header"}
    before = reader.revision(codex)
    machines[0].replace(codex, documents({"a.py": "def skip_header(line):\n    pass\n"}))
    assert set(reader.definitions(codex, ["parse_header", "skip_header"])) == {"skip_header"}
    assert reader.revision(codex) != before
    reader.close()


def test_a_storage_that_is_away_is_an_error_within_seconds_and_answers_when_it_is_back(codex, storage, tmp_path):
    machines = one, other = [Archive(tmp_path / name, storage.archive(name, timeout_s=10.0)) for name in ("one", "two")]
    one.replace(codex, documents(TEXTS))
    assert paths(other, codex, "header") == ["a.py"]
    storage.is_lost()
    for archive in machines:
        asked_anew(archive)
        began = time.monotonic()
        with pytest.raises(ArchiveAway, match="s3://team/index cannot be reached: it does not answer"):
            archive.matches(codex, ["header"], 5)
        with pytest.raises(ArchiveAway):
            archive.replace(codex, (), ["a.py"])
        assert time.monotonic() - began < 2 * archive.remote.ask_s
    storage.is_back()
    for archive in machines:
        asked_anew(archive)
    assert paths(other, codex, "header") == ["a.py"]
    one.replace(codex, (), ["a.py"])
    assert list(one.held(codex)) == ["b.py"]
    for archive in machines:
        archive.close()


def test_a_load_that_loses_the_storage_ends_and_the_next_one_goes_on(storage, codex, tmp_path):
    folder = tmp_path / "code"
    folder.mkdir()
    for number in range(700):  # two batches and more
        (folder / f"m{number}.py").write_text(f"value_{number} = {number}\n")
    archive = Archive(tmp_path / "archive", storage.archive("loader", timeout_s=3.0))
    library = Library(tmp_path / "data", indexer=archive)

    def report(progress: object) -> None:
        if progress.phase == "index" and progress.done and storage.process.poll() is None:
            storage.is_lost()

    spec = LoadSpec((str(folder),), name=codex)
    began = time.monotonic()
    with pytest.raises(ArchiveAway, match="nothing is lost"):
        library.load(spec, report)
    assert time.monotonic() - began < 100
    storage.is_back()
    asked_anew(archive)
    archive.remote.ask_s = SOON  # what is back is not away again because the machine is busy
    before = len(archive.held(codex))
    assert 0 < before < 700
    indexed: list[object] = []
    library.load(spec, lambda progress: indexed.append(progress) if progress.phase == "index" else None)
    assert indexed[-1].total == 700 - before
    assert len(archive.held(codex)) == 700
    library.close()
    archive.close()


def test_a_load_ends_well_while_another_machine_writes(machines, codex, tmp_path):
    machines[0].replace(codex, documents(TEXTS))
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "c.py").write_text("giraffe = 1\n")
    library = Library(tmp_path / "data", indexer=machines[1])
    assert library.load(LoadSpec((str(tmp_path / "code"),), name=codex)).files == 1
    assert sorted(machines[1].held(codex)) == ["a.py", "b.py"]
    library.close()


def test_a_storage_that_nobody_runs_and_a_bucket_that_is_not_there_are_named(storage, tmp_path):
    for options, uri, why in (
        ({"endpoint": "http://127.0.0.1:9"}, "s3://team/index", "nobody listens there|it does not answer"),
        ({}, "s3://nobody/index", "there is no such bucket|it does not answer"),
    ):
        given = storage.archive("x")
        given = type(given)(uri, {**given.options, **options}, holder="x", timeout_s=1.0)
        archive = Archive(tmp_path / uri.partition("//")[2], given)
        with pytest.raises(ArchiveAway, match=why):
            archive.matches("c", ["word"], 1)
        archive.close()


def test_what_is_damaged_there_is_named_and_not_removed(machines, codex, storage):
    one, other = machines
    one.replace(codex, documents(TEXTS))
    boto3 = pytest.importorskip("boto3")
    client = boto3.client("s3", endpoint_url=storage.url, region_name="us-east-1", **KEYS)
    prefix = one.remote.of(codex).removeprefix("s3://team/")
    names = [one["Key"] for one in client.list_objects_v2(Bucket="team", Prefix=prefix)["Contents"]]
    for name in names:
        if "/chunks.lance/data/" in name:
            client.delete_object(Bucket="team", Key=name)
    with pytest.raises(
        ArchiveError, match="a file of it is gone; where that stays so, delete everything under"
    ) as told:
        other.held(codex)
    assert not isinstance(told.value, ArchiveAway)
    left = client.list_objects_v2(Bucket="team", Prefix=prefix)["KeyCount"]
    assert left == sum("/chunks.lance/data/" not in name for name in names)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "Status { status: 403, body: Some(<Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>AKIA</",
            "it refuses the keys",
        ),
        ("Failed to get AWS credentials: ProviderError", "no keys were found"),
        ("HttpError { kind: Timeout, source: reqwest", "it does not answer"),
        ("client error (Connect): dns error: failed to lookup", "its name cannot be resolved"),
        ("Encountered internal error: page header", ""),
    ],
)
def test_why_it_is_away_is_said_in_words_that_hold_no_key(said, words):
    found = why_away(RuntimeError(said))
    assert found.startswith(words) if words else found == ""
    assert "AKIA" not in found


def test_no_key_is_shown_by_the_settings_of_an_archive(storage):
    assert KEYS["aws_secret_access_key"] not in repr(storage.archive("ann"))
    assert os.environ.get("AWS_SECRET_ACCESS_KEY") is None
