"""`lore memory` against the real API."""

import errno
import json
import os
import re
import tempfile
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from support.served import Served, served
from support.small_service import small_memories

from orchestrator.cli.memory import KEPT, as_file, cited, from_file, replace_with
from orchestrator.karma.records import KINDS, Kind, MemoryState
from orchestrator.wire.memories import MemoryBody

ME = os.getuid()


def remembered(lorekeep: Served) -> dict[str, str]:
    return {one.text: one.state for one in lorekeep.service.records.learned.all_of(ME)}


def test_what_is_added_is_told_with_its_kind_and_the_same_again_is_confirmed(lore, lorekeep) -> None:
    first, second = lore("memory", "add", "The cache is Redis."), lore("memory", "add", "the cache is redis")
    assert (first.returncode, second.returncode) == (0, 0)
    assert first.stderr.startswith("remembered ")
    assert second.stderr.startswith("confirmed ")


def test_a_text_comes_from_standard_input(lore, lorekeep) -> None:
    assert lore("memory", "add", "-", stdin="The cache is Redis.\n").returncode == 0
    assert remembered(lorekeep) == {"The cache is Redis.\n": "new"}


@pytest.mark.parametrize("limit", [64 << 20, 32 << 10])
def test_ten_megabytes_are_refused_as_one_memory_in_a_sentence(folder, lore, limit: int) -> None:
    with served(folder, max_body=limit) as running:
        refused = lore("memory", "add", "-", stdin="x" * 10_000_000)
        assert refused.returncode not in (0, 1)
        assert refused.stderr.startswith("lore: the ")
        assert len(refused.stderr) < 300
        assert running.service.records.learned.all_of(ME) == ()


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("a.py", {"path": "a.py", "start": 0, "end": 0}),
        ("a.py:3", {"path": "a.py", "start": 3, "end": 3}),
        ("a.py:3-9", {"path": "a.py", "start": 3, "end": 9}),
        ("a:b.py:3-9", {"path": "a:b.py", "start": 3, "end": 9}),
        ("commit:1a2b3c4", {"path": "", "commit": "1a2b3c4"}),
    ],
)
def test_a_place_is_a_path_with_lines_or_a_commit(place: str, found: object) -> None:
    assert cited(place) == found


def test_a_vote_needs_no_more_words_and_says_what_it_did(lore, lorekeep) -> None:
    lore("memory", "add", "The cache is Redis.")
    (one,) = lorekeep.service.records.learned.all_of(ME)
    voted = lore("memory", "rate", one.id, "down")
    assert (voted.returncode, voted.stderr) == (0, f"{one.id} rated down, trust is now 0.40: The cache is Redis.\n")


def test_it_is_shown_how_often_and_when_last_a_model_was_shown_it(lore, lorekeep) -> None:
    lore("memory", "add", "The cache is Redis.")
    (one,) = lorekeep.service.records.learned.all_of(ME)
    assert re.search(r"^shown +never$", lore("memory", "show", one.id).stdout, re.MULTILINE)
    for at in (1_700_000_000.0, 1_700_000_060.0):
        lorekeep.service.records.learned.store.count_shown(ME, {one.id: True}, at=at)
    last = datetime.fromtimestamp(1_700_000_060).astimezone().strftime("%Y-%m-%d %H:%M")
    assert re.search(rf"^shown +2 times, last {last}$", lore("memory", "show", one.id).stdout, re.MULTILINE)


# -- export and import


def exported(lore, folder: Path) -> set[str]:
    assert lore("memory", "export", str(folder)).returncode == 0
    return {path.name for path in folder.iterdir()}


def test_what_was_forgotten_is_no_longer_in_a_folder_that_is_exported_to_again(lore, lorekeep, tmp_path) -> None:
    (tmp_path / "notes.md").write_text("my own\n")
    (tmp_path / "fact-0123456789.md").write_text("my own, too\n")
    lore("memory", "add", "The cache is Redis.")
    kept = exported(lore, tmp_path)
    (one,) = lorekeep.service.records.learned.all_of(ME)
    lore("memory", "forget", one.id)
    assert exported(lore, tmp_path) == kept - {f"fact-{one.id}.md"} == {"notes.md", "fact-0123456789.md"}


def test_an_import_names_the_faulty_file_and_keeps_nothing(lore, lorekeep, tmp_path) -> None:
    for text in ("The cache is Redis.", "The port is 1."):
        lore("memory", "add", text)
    exported(lore, tmp_path)
    lorekeep.renew()
    bad = sorted(tmp_path.iterdir())[1]
    bad.write_text(bad.read_text().replace('kind: "fact"', 'kind: "dream"'))
    refused = lore("memory", "import", str(tmp_path))
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"lore: {bad}: there is no kind 'dream'")
    assert remembered(lorekeep) == {}


def test_what_is_no_export_is_refused(lore, tmp_path) -> None:
    assert lore("memory", "import", str(tmp_path)).returncode != 0
    (tmp_path / "notes.md").write_text("my own\n")
    assert f"{tmp_path / 'notes.md'} is no memory" in lore("memory", "import", str(tmp_path)).stderr


def test_what_can_be_no_memory_is_named_as_such_and_waited_for_by_nobody(lore, tmp_path) -> None:
    odd = tmp_path / "odd.md"
    for make in (os.mkfifo, os.mkdir):
        make(odd)
        assert lore("memory", "import", str(tmp_path)).stderr.startswith(f"lore: {odd} is no memory: it is no file")
        odd.rmdir() if odd.is_dir() else odd.unlink()
    odd.write_text(f"kind: {'[' * 100_000}\n\nx\n")
    refused = lore("memory", "import", str(tmp_path))
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"lore: {odd} is no memory")


def test_an_import_names_the_file_with_an_unknown_field(lore, lorekeep, tmp_path) -> None:
    (tmp_path / "one.md").write_text('kind: "fact"\nshape: "round"\n\nThe cache is Redis.\n')
    refused = lore("memory", "import", str(tmp_path))
    assert refused.stderr.startswith(f"lore: {tmp_path / 'one.md'}: unknown field shape")


def test_a_superseded_fact_and_its_successor_are_carried_to_another_machine(lore, lorekeep, tmp_path) -> None:
    for engine in ("Memcached", "Redis"):
        lore("memory", "add", f"The cache is {engine}.", "--about", "cache", "--attribute", "engine")
    before = remembered(lorekeep)
    exported(lore, tmp_path)
    lorekeep.renew()
    assert json.loads(lore("memory", "import", str(tmp_path), "--json").stdout) == {"imported": 2, "known": 0}
    assert remembered(lorekeep) == before == {"The cache is Redis.": "new", "The cache is Memcached.": "superseded"}


texts = some.text(some.characters(codec="utf-8"), min_size=1, max_size=60).filter(str.strip)
names = some.text(some.characters(codec="utf-8", exclude_characters="\0"), max_size=10)
bodies = some.sampled_from(list(Kind)).flatmap(
    lambda kind: some.builds(
        MemoryBody,
        kind=some.just(kind.value),
        text=texts,
        subject=names,
        attribute=some.just(""),
        domain=names,
        confidence=some.floats(0, 1),
        verbatim=some.booleans(),
        pinned=some.booleans(),
        created=some.floats(1, 2e9),
        state=some.sampled_from(sorted(state.value for state in MemoryState if state in KINDS[kind].states)),
        imported=some.just(True),
    )
)


@settings(max_examples=30)  # each makes two databases
@given(some.lists(bodies, min_size=1, max_size=6))
def test_what_is_exported_and_imported_into_an_empty_store_is_the_same(given_bodies: list[MemoryBody]) -> None:

    here, there = small_memories(), small_memories()
    here.add_all(ME, "owner", given_bodies)
    with tempfile.TemporaryDirectory() as folder:
        for one in here.all_of(ME):
            path = Path(folder) / f"{one.id}.md"
            path.write_text(as_file(one.model_dump(mode="json")), encoding="utf-8", newline="")
        there.add_all(
            ME,
            "owner",
            [MemoryBody.model_validate_json(json.dumps(from_file(path))) for path in Path(folder).iterdir()],
        )

    def kept(memories) -> list[dict[str, object]]:
        rows = [one.model_dump(include={"text", *KEPT}) for one in memories.all_of(ME)]
        return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))

    assert kept(here) == kept(there)


def test_an_export_that_cannot_be_finished_leaves_the_files_that_are_there(tmp_path, monkeypatch) -> None:
    file = tmp_path / "fact-0123456789.md"
    file.write_text("whole")

    def full(*_: object, **__: object) -> int:
        (tmp_path / f".{file.name}.part").touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match=rf"No space left.*{file.name}"):
        replace_with(file, "longer than that")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"whole"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--trigger", "push"), "trigger: a fact has none"),
        (("--watch", "question", "--kind", "decision"), "watches: a decision has none"),
    ],
)
def test_what_only_a_censor_has_is_refused_of_another_kind(lore, lorekeep, arguments, says: str) -> None:
    refused = lore("memory", "add", "The cache is Redis.", *arguments)
    assert (refused.returncode, says in refused.stderr) == (2, True), refused.stderr
    assert remembered(lorekeep) == {}


def test_a_censor_has_its_domain_and_code_is_cited_in_a_codex_alone(lore, lorekeep) -> None:
    lore("memory", "add", "Never change the wire format.", "--kind", "censor", "--domain", "src/api", "-c", "none")
    assert [one.domain for one in lorekeep.service.records.learned.all_of(ME)] == ["src/api"]
    refused = lore("memory", "add", "It is slow.", "--cite", "a.py:1-3", "-c", "none")
    assert (refused.returncode, "name its codex with -c" in refused.stderr) == (2, True), refused.stderr
