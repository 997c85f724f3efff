"""Two daemons whose archive is on one object storage: what one indexes the other finds. The storage is lost for a while."""

import json
import time

import pytest
from support.house import codebase, hits, living, reply, until
from support.object_storage import BUCKET, KEYS, object_storage

INDEX = f"s3://{BUCKET}/index"
LOST_S = 30.0  # as a storage that is started anew


@pytest.fixture(scope="module")
def storage():
    with object_storage() as made:
        yield made


def config_of(storage, folder, **archive):
    """Keys in a file, and nowhere else."""
    keys = folder / "keys"
    keys.write_text("".join(f"{name.upper()}={value}\n" for name, value in KEYS.items()))
    keys.chmod(0o600)
    options = ", ".join(f'"{name}={value}"' for name, value in storage.options.items())
    rest = "".join(f"{name} = {value}\n" for name, value in archive.items())
    return f'[archive]\nuri = "{INDEX}"\noptions = [{options}]\nkey_file = "{keys}"\n{rest}'


@pytest.fixture(scope="module")
def writer(models, storage, tmp_path_factory):
    with living(models, config_of(storage, tmp_path_factory.mktemp("writer"), timeout=20)) as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--tier", "map", "--wait").returncode == 0
        yield daemon


@pytest.fixture(scope="module")
def reader(models, storage, writer, tmp_path_factory):
    config = config_of(storage, tmp_path_factory.mktemp("reader"), timeout=20, writes="false")
    with living(models, config) as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
        yield daemon


def test_what_one_indexes_the_other_finds_and_both_name_the_place(writer, reader):
    assert hits(reader, "zebra", "vaults")[0]["path"] == hits(writer, "zebra", "vaults")[0]["path"] == "zebra.py"
    assert reply(reader, "/v1/status")["archive"] == {"uri": INDEX, "writes": False, "fault": ""}
    assert f"{INDEX}, read only" in reader.lore("status", "-v").stdout
    checks = {check["name"]: check for check in json.loads(writer.lore("doctor", "--json").stdout)["checks"]}
    assert INDEX in checks["archive"]["detail"] and INDEX in checks["archives"]["detail"]
    assert INDEX in writer.lore("config", "check").stderr


def test_who_may_not_write_is_told_so_and_its_own_files_are_shown_as_they_are_here(reader):
    (reader.folder / "vaults" / "okapi.py").write_text("# Where is okapi opened? 77-okapi.\n")
    (reader.folder / "vaults" / "zebra.py").write_text("# Where is zebra opened? Nowhere, any more.\n")
    done = reader.lore("load", reader.folder / "vaults", "--wait")
    assert done.returncode == 0
    until(lambda: "archive.writes is false" in reader.lore("search", "zebra", "-c", "vaults").stderr)
    shown = {hit["path"]: hit["snippet"] for hit in hits(reader, "zebra", "vaults")}
    assert "Nowhere, any more" in shown["zebra.py"]
    assert "okapi.py" not in shown


def test_while_the_storage_is_lost_questions_are_answered_with_a_notice_and_nothing_is_lost(writer, storage):
    storage.is_lost()
    lost = time.monotonic()
    try:
        # What it answered a moment ago is believed, and a small index is in memory by now.
        until(lambda: INDEX in writer.lore("search", "walrus", "-c", "vaults").stderr)
        began = time.monotonic()
        asked = writer.lore("ask", "Where is zebra opened?", "-c", "vaults", "--json", "--strategy", "RAG")
        searched = writer.lore("search", "walrus", "-c", "vaults")
        assert time.monotonic() - began < 60
        answered = json.loads(asked.stdout)
        assert asked.returncode == 0 and answered["answer"]
        assert any(f"{INDEX} cannot be reached" in action for action in answered["lore"]["governor"]["actions"]), asked
        assert searched.returncode == 1 and f"{INDEX} cannot be reached" in searched.stderr
        (writer.folder / "vaults" / "gnu.py").write_text("# Where is gnu opened? 12-gnu.\n")
        loaded = writer.lore("load", writer.folder / "vaults")
        assert loaded.returncode == 1 and f"{INDEX} cannot be reached" in loaded.stderr
        assert "cannot be reached" in writer.lore("status").stdout
        while time.monotonic() < lost + LOST_S:
            assert writer.lore("ask", "Where is zebra opened?", "-c", "vaults", "--strategy", "RAG").returncode == 0
    finally:
        storage.is_back()
    until(lambda: writer.lore("load", writer.folder / "vaults", "--wait").returncode == 0)
    until(lambda: [hit["path"] for hit in hits(writer, "gnu", "vaults")][:1] == ["gnu.py"])


def test_no_key_is_in_a_log_a_report_or_the_configuration_that_is_shown(writer, reader):
    for daemon in (writer, reader):
        said = daemon.log.read_text() + daemon.lore("config", "show").stdout + daemon.lore("status", "--json").stdout
        assert KEYS["aws_secret_access_key"] not in said
        assert KEYS["aws_access_key_id"] not in said


def test_a_drop_and_a_purge_say_that_the_archive_stays(writer, reader):
    assert f"its archive at {INDEX} stays" in reader.lore("codex", "drop", "vaults").stderr
    assert hits(writer, "zebra", "vaults")
