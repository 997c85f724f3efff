"""Databases with a key: nothing of them is read without it, words are found with it, and no file is lost on the way."""

import os
import signal
import sqlite3
import subprocess
import sys

import pytest

from codex.catalog import sealed
from codex.catalog.databases import open_database, transaction
from codex.catalog.sealed import CONFLICTS, OtherKey, is_plain, is_sealed
from codex.errors import CatalogError, DatabaseDamaged, NewerCatalog

pytest.importorskip("sqlcipher3", reason="the extra `encryption` is not installed")
KEY, OTHER = b"k" * 32, b"q" * 32
CANARY = "the canary sings at noon"
FIRST = """
    CREATE TABLE said (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
    CREATE VIRTUAL TABLE words USING fts5 (text, content = said, content_rowid = id);
    CREATE TRIGGER new AFTER INSERT ON said BEGIN INSERT INTO words (rowid, text) VALUES (new.id, new.text); END;
"""
SCHEMA = (FIRST,)
NEWER = (FIRST, "ALTER TABLE said ADD COLUMN heard INTEGER NOT NULL DEFAULT 0")


def opened(path, key, schema=SCHEMA):
    return open_database(path, schema, application=7, key=key)


def say(path, key, *texts):
    database = opened(path, key)
    with transaction(database, path):
        database.executemany(
            "INSERT INTO said (id, text) VALUES (?, ?)", [(7 * n, text) for n, text in enumerate(texts, 1)]
        )
    database.close()


def found(path, key, schema=SCHEMA):
    """Ids of what has the word, by the index."""
    database = opened(path, key, schema)
    rows = database.execute("SELECT rowid FROM words WHERE words MATCH 'canary'").fetchall()
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.execute("INSERT INTO words (words, rank) VALUES ('integrity-check', 1)")
    database.close()
    return [row[0] for row in rows]


def bytes_of(folder):
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


@pytest.mark.parametrize("key", [b"", KEY], ids=["plain", "encrypted"])
def test_what_was_said_is_in_a_plain_file_and_in_no_byte_of_an_encrypted_one_or_its_log(tmp_path, key):
    path = tmp_path / "a.sqlite3"
    say(path, key, "nothing", CANARY)
    open_one = opened(path, key)  # its log is there while it is open
    with transaction(open_one, path):
        open_one.execute("INSERT INTO said (text) VALUES (?)", (f"again {CANARY}",))
    assert path.with_name("a.sqlite3-wal").stat().st_size > 0
    data = bytes_of(tmp_path)
    open_one.close()
    assert [word.encode() in data for word in (CANARY, "canary", "CREATE TABLE")] == [not key] * 3
    assert len(found(path, key)) == 2


def test_a_plain_file_is_encrypted_as_it_is_with_its_copies_and_nothing_plain_stays(tmp_path):
    path = tmp_path / "a.sqlite3"
    say(path, b"", "nothing", CANARY)
    opened(path, b"", NEWER).close()  # leaves a copy of the version before
    assert CANARY.encode() in bytes_of(tmp_path)
    assert found(path, KEY, NEWER) == [14]
    assert CANARY.encode() not in bytes_of(tmp_path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.sqlite3", "a.sqlite3.before-2"]
    assert found(path.with_name("a.sqlite3.before-2"), KEY) == [14]
    database = opened(path, KEY, NEWER)
    numbers = [
        database.execute(f"PRAGMA {one}").fetchone()[0] for one in ("user_version", "application_id", "auto_vacuum")
    ]
    database.close()
    assert (numbers, path.stat().st_mode & 0o777) == ([2, 7, 2], 0o600)


def test_an_encrypted_file_is_migrated_after_an_encrypted_copy(tmp_path):
    path = tmp_path / "a.sqlite3"
    say(path, KEY, CANARY)
    assert found(path, KEY, NEWER) == [7]
    assert found(path.with_name("a.sqlite3.before-2"), KEY) == [7]
    assert all(map(is_sealed, (path, path.with_name("a.sqlite3.before-2"))))


@pytest.mark.parametrize(("key", "says"), [(b"", "no key is set"), (OTHER, "another key")])
def test_without_its_key_a_file_is_refused_by_name_and_stays_as_it_is(tmp_path, key, says):
    path = tmp_path / "a.sqlite3"
    say(path, KEY, CANARY)
    before = bytes_of(tmp_path)
    with pytest.raises(OtherKey, match=f"{path} is encrypted, .*{says}; set security.encrypt"):
        opened(path, key)
    assert bytes_of(tmp_path) == before
    assert found(path, KEY) == [7]


def test_what_is_refused_is_not_encrypted(tmp_path):
    foreign, newer = tmp_path / "foreign.sqlite3", tmp_path / "newer.sqlite3"
    with sqlite3.connect(foreign) as database:
        database.execute("CREATE TABLE theirs (a)")
    database.close()
    opened(newer, b"", NEWER).close()
    before = bytes_of(tmp_path)
    for path, refusal in ((foreign, CatalogError), (newer, NewerCatalog)):
        with pytest.raises(refusal):
            opened(path, KEY)
    assert bytes_of(tmp_path) == before


def test_damage_of_an_encrypted_file_is_told_as_damage(tmp_path):
    path = tmp_path / "a.sqlite3"
    say(path, KEY, CANARY)
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    with pytest.raises(DatabaseDamaged):
        opened(path, KEY)
    path.write_bytes(b"no database at all, of more than sixteen bytes" * 100)
    with pytest.raises(DatabaseDamaged):
        opened(path, KEY)


def test_a_conflict_is_one_with_and_without_a_key(tmp_path):
    for key in (b"", KEY):
        path = tmp_path / f"{len(key)}.sqlite3"
        say(path, key, CANARY)
        database = opened(path, key)
        with pytest.raises(CONFLICTS):
            database.execute("INSERT INTO said (text) VALUES (?)", (CANARY,))
        database.close()


LONG = 4000
SEALING = """
import resource, signal, sys
from pathlib import Path
from codex.catalog import sealed
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
if sys.argv[2] == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, 64 * 1024))
print("begun", flush=True)
sealed.seal(Path(sys.argv[1]), b"k" * 32)
"""


def test_whoever_is_killed_while_a_file_is_encrypted_finds_it_plain_or_encrypted_and_whole(tmp_path):
    states = set()
    for run in range(4):
        path = tmp_path / f"{run}" / "a.sqlite3"
        say(path, b"", CANARY, *(f"{n} " * 50 for n in range(LONG)))
        child = subprocess.Popen([sys.executable, "-P", "-c", SEALING, path, ""], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        while run and child.poll() is None and size_of(path.with_name("a.sqlite3.sealing")) < run * 200_000:
            pass
        os.kill(child.pid, signal.SIGKILL) if child.poll() is None else None
        child.wait()
        child.stdout.close()
        states.add((is_plain(path), path.with_name("a.sqlite3.sealing").exists()))
        assert found(path, KEY) == [7]
        assert [one.name for one in path.parent.iterdir()] == ["a.sqlite3"]
    assert (True, True) in states, "none was killed in mid-write"


def size_of(path):
    return path.stat().st_size if path.exists() else 0


def test_a_disk_that_is_full_leaves_the_plain_file_and_its_room(tmp_path):
    path = tmp_path / "a.sqlite3"
    say(path, b"", CANARY, *(f"{n} " * 50 for n in range(LONG)))
    child = subprocess.run(
        [sys.executable, "-P", "-c", SEALING, path, "full"], capture_output=True, text=True, check=False
    )
    assert (child.returncode, "Error" in child.stderr) == (1, True)
    assert [one.name for one in tmp_path.iterdir()] == ["a.sqlite3"]
    assert found(path, b"") == [7]


HOLDING = """
import sys
from pathlib import Path
from codex.catalog.databases import open_database
database = open_database(Path(sys.argv[1]), ("",), application=7)
print(database.execute("SELECT count(*) FROM said").fetchone(), flush=True)
sys.stdin.read()
"""


def test_who_has_it_open_keeps_it_plain_and_is_named_as_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(sealed, "_WAIT_S", 0.01)
    path = tmp_path / "a.sqlite3"
    say(path, b"", CANARY)
    # A process of its own: of two libraries in one process neither sees the other's locks.
    command = [sys.executable, "-P", "-c", HOLDING, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"(1,)\n"
        with pytest.raises(CatalogError, match="another program"):
            opened(path, KEY)
        assert is_plain(path)
        other.communicate()
    assert found(path, KEY) == [7]
