"""A floor from a file is taken whole, checked to its last byte, or not at all; what is another one here is named."""

import asyncio
import io
import json
import tarfile
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from support.floor_archives import IDS, PARTS, ROOT, archive, begin, chain, files, manifest, member

from formatters.context import IdentityView
from orchestrator.codices.floor_archive import (
    END,
    MOST_MANIFEST,
    Incoming,
    Manifest,
    head,
    manifest_of,
    padding,
    written,
)
from orchestrator.codices.floor_files import FloorFiles
from orchestrator.codices.serving_identities import ServingIdentity
from orchestrator.codices.state_store import BroughtLevels, CodexStateStore, FrozenLevels
from orchestrator.engine.checkpoints.file import folder_of
from orchestrator.engine.checkpoints.store import CheckpointStore
from orchestrator.engine.model import EngineSpec
from orchestrator.engine.prefill_cost import UNSEEN
from orchestrator.errors import Conflict, InvalidRequest, LoreError, OverBudget
from orchestrator.wire.replies import ImportedFloor

pytestmark = pytest.mark.anyio


@dataclass
class Engine:
    """A real store behind the calls of an engine whose model computed `ROOT`."""

    spec: EngineSpec
    info: Any = field(default_factory=lambda: SimpleNamespace(fingerprint=ROOT, kv_parts=PARTS, name="small"))

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.store = CheckpointStore(ROOT, self.folder, self.spec.disk_budget)

    @property
    def folder(self) -> Path:
        return folder_of(Path(self.spec.cache_folder), ROOT)

    async def ensure_ready(self) -> Any:
        return self.info

    async def adopt(self, paths: list[str]) -> str:
        told: list[str] = []
        self.store.adopt([Path(one) for one in paths], UNSEEN, told.append)
        self.store.flush()
        return told[0]


@dataclass
class Desk:
    """Takes archives in. `loaded`: codices that are there; `orders`: of those that are expected."""

    engine: Engine
    loaded: tuple[str, ...] = ()
    orders: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        view = IdentityView(name="lorekeep", version="v1")
        identities = SimpleNamespace(now=lambda codex, name: ServingIdentity(view))
        known = lambda name: name in self.loaded  # noqa: E731
        self.states = CodexStateStore(Path(self.engine.spec.cache_folder or self.engine.folder) / "floors.sqlite3")
        self.files = FloorFiles(
            self.engine,  # type: ignore[arg-type]
            SimpleNamespace(),  # type: ignore[arg-type]
            identities,  # type: ignore[arg-type]
            self.states,
            self.orders.__setitem__,
            known,
        )

    def close(self) -> None:
        self.engine.store.close()
        self.states.close()

    async def take(self, raw: bytes, step: int = 1000) -> ImportedFloor:
        async def body() -> Any:
            for at in range(0, len(raw), step):
                yield raw[at : at + step]

        return await self.files.imported(body())

    def left(self) -> list[str]:
        return sorted(path.name for path in self.engine.folder.iterdir())


@pytest.fixture
def desk(tmp_path: Path) -> Any:
    made = Desk(Engine(EngineSpec("model", cache_folder=str(tmp_path / "cache"), disk_budget=1 << 20)))
    yield made
    made.close()


@pytest.fixture
def kept(tmp_path: Path) -> list[tuple[str, bytes]]:
    return files(chain(), tmp_path / "there")


# ---- what is taken


@pytest.mark.parametrize("step", [1, 511, 100_000])
async def test_what_was_written_there_is_found_by_prompts_here(desk: Desk, kept: list[tuple[str, bytes]], step: int):
    told = await desk.take(archive(kept, order=(("a.py", "d1"), ("b.py", "d2"))), step)
    assert (told.codex, told.tokens, told.segments, told.notices) == ("demo", len(IDS), 3, ())
    assert desk.left() == sorted(f"{name}.kv" for name, _ in kept)
    assert all(desk.engine.store.load(one) == one.name.encode() * 40 for one in chain())
    assert desk.engine.store.bytes == sum(len(raw) for _, raw in kept)
    assert desk.orders == {"demo": (("a.py", "d1"), ("b.py", "d2"))}


async def test_what_is_there_already_is_counted_once_and_is_there_again_where_its_files_were_deleted(
    desk: Desk, kept: list[tuple[str, bytes]]
):
    await desk.take(archive(kept))
    for path in desk.engine.folder.iterdir():
        path.unlink()
    await desk.take(archive(kept))
    assert desk.left() == sorted(f"{name}.kv" for name, _ in kept)
    assert desk.engine.store.bytes == sum(len(raw) for _, raw in kept)


async def test_room_is_made_for_it_and_what_it_brings_stays(tmp_path: Path, kept: list[tuple[str, bytes]]):
    small = Desk(Engine(EngineSpec("model", cache_folder=str(tmp_path / "cache"), disk_budget=20_000)))
    for one in chain(array("I", range(5000, 5600))):
        small.engine.store.keep(one, b"s" * 3000, UNSEEN)
    small.engine.store.flush()
    await small.take(archive(kept))
    assert all(small.engine.store.holds(name) for name, _ in kept)
    assert small.engine.store.bytes <= 20_000
    assert sum(path.stat().st_size for path in small.engine.folder.iterdir()) == small.engine.store.bytes
    small.close()


async def test_who_may_not_find_it_is_told(desk: Desk, kept: list[tuple[str, bytes]]):
    desk.loaded = ("demo",)
    told = await desk.take(archive(kept, tier="map", identity_version="v2"))
    loaded, coverage, identity = told.notices
    assert "lore codex drop demo" in loaded
    assert "the coverage is map, and the file does not list" in coverage
    assert "version v2 there and v1 here" in identity
    assert desk.orders == {}


async def test_what_a_coverage_shows_of_each_file_is_kept_for_the_first_load(desk: Desk, kept: list[tuple[str, bytes]]):
    order = (("a.py", "d1"), ("b.py", "d2"))
    told = await desk.take(archive(kept, tier="map", order=order, levels="02", level_tokens=900))
    assert told.notices == ()
    assert desk.states.expected("demo") == BroughtLevels.of(order, "map", FrozenLevels("02", 900))


def test_a_tar_of_any_other_program_has_the_same_members(kept: list[tuple[str, bytes]]):
    with tarfile.open(fileobj=io.BytesIO(archive(kept))) as opened:
        assert opened.getnames() == ["manifest.json", *(f"{name}.kv" for name, _ in kept)]
        assert [opened.extractfile(f"{name}.kv").read() for name, _ in kept] == [raw for _, raw in kept]  # type: ignore[union-attr]


# ---- what is refused, by its name


@pytest.mark.parametrize(
    ("part", "there", "words"),
    [
        ("weights", "9" * 64, "the model is small (999999999999) there and small (111111111111) here"),
        ("kv_type_v", "q8_0", "V is q8_0 there and f16 here"),
        ("kv_type_k", "q4_0", "K is q4_0 there and f16 here"),
        ("flash_attention", "on", "flash attention is on there and off here"),
        ("build", "0.9-" + "c" * 64, f"the build of llama.cpp is 0.9-{'c' * 24} there and 1.0-{'b' * 24} here"),
        ("rope", "long", "the set of rotation factors is long there and unknown here"),
        ("colour", "red", "colour is red there and unknown here"),
    ],
)
async def test_a_part_that_is_another_one_here_is_named(desk: Desk, kept: Any, part: str, there: str, words: str):
    with pytest.raises(InvalidRequest) as refused:
        await desk.take(archive(kept, root="f" * 64, parts={**PARTS, part: there}))
    assert words in refused.value.message
    assert refused.value.hint
    assert desk.left() == []


async def test_all_that_differs_is_named_together(desk: Desk, kept: list[tuple[str, bytes]]):
    with pytest.raises(InvalidRequest, match="K is q8_0 there and f16 here; V is q8_0 there and f16 here"):
        await desk.take(archive(kept, root="f" * 64, parts={**PARTS, "kv_type_k": "q8_0", "kv_type_v": "q8_0"}))


async def test_another_root_with_the_same_parts_is_another_version(desk: Desk, kept: list[tuple[str, bytes]]):
    with pytest.raises(InvalidRequest, match="names checkpoints in another way"):
        await desk.take(archive(kept, root="f" * 64))


async def test_it_is_refused_by_its_first_bytes_before_the_rest_has_come(desk: Desk, kept: list[tuple[str, bytes]]):
    async def body() -> Any:
        yield begin(manifest(kept, root="f" * 64, parts={**PARTS, "kv_type_k": "q8_0"}))
        raise AssertionError("nobody may ask for more")

    with pytest.raises(InvalidRequest, match="K is q8_0"):
        await desk.files.imported(body())


async def test_more_than_checkpoints_may_take_is_over_budget(tmp_path: Path, kept: list[tuple[str, bytes]]):
    small = Desk(Engine(EngineSpec("model", cache_folder=str(tmp_path / "cache"), disk_budget=5000)))
    with pytest.raises(OverBudget, match="checkpoints may take"):
        await small.take(archive(kept))
    assert small.left() == []
    small.close()


async def test_where_no_checkpoints_are_kept_it_says_so(desk: Desk, kept: list[tuple[str, bytes]]):
    desk.engine.spec = EngineSpec("model")
    with pytest.raises(LoreError, match="no checkpoints are kept"):
        await desk.take(archive(kept))


async def test_two_at_once_are_one_after_the_other(desk: Desk, kept: list[tuple[str, bytes]]):
    begun, end = asyncio.Event(), asyncio.Event()

    async def slow() -> Any:
        begun.set()
        await end.wait()
        yield archive(kept)

    first = asyncio.create_task(desk.files.imported(slow()))
    await begun.wait()
    with pytest.raises(Conflict, match="another prefix"):
        await desk.take(archive(kept))
    end.set()
    assert (await first).tokens == len(IDS)


async def test_one_that_is_cancelled_leaves_nothing_and_the_next_one_is_taken(
    desk: Desk, kept: list[tuple[str, bytes]]
):
    written = asyncio.Event()

    async def body() -> Any:
        yield archive(kept)[:-2000]
        written.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(desk.files.imported(body()))
    await written.wait()
    assert desk.left() != []
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert desk.left() == []
    assert (await desk.take(archive(kept))).segments == 3


# ---- what is damaged, or made to harm


NAME = chain()[0].name
BOMB = head("manifest.json", 1 << 60)


def link(name: str) -> bytes:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return found.tobuf(tarfile.GNU_FORMAT)


def with_levels(kept: list[tuple[str, bytes]], levels: str) -> bytes:
    said = manifest(kept).model_dump_json().replace('"levels":""', f'"levels":"{levels}"')
    return member("manifest.json", said.encode())


def named(kept: list[tuple[str, bytes]], **names: Any) -> bytes:
    """What an archive says of itself, as only another program would write it."""
    said = {**manifest(kept).model_dump(), **names}
    return member("manifest.json", json.dumps(said).encode()) + END


def hostile(kept: list[tuple[str, bytes]], folder: Path) -> dict[str, tuple[bytes, str]]:
    (first, raw), *rest = kept
    whole, begins = archive(kept), begin(manifest(kept))
    return {
        "nothing": (b"", "ends early"),
        "no tar": (b"PK\3\4" + bytes(2000), "header"),
        "zeros": (bytes(4096), "header"),
        "no manifest": (member(f"{first}.kv", raw) + END, "manifest.json"),
        "a giant manifest": (BOMB, "manifest.json"),
        "no JSON": (member("manifest.json", b"{" * 100_000) + END, "no JSON"),
        "deep JSON": (member("manifest.json", b"[" * 100_000) + END, "no JSON"),
        "a list": (member("manifest.json", b"[]") + END, "format"),
        "another format": (begin(manifest(kept, format=2)) + whole[len(begins) :], "format 2"),
        "a level too few": (with_levels(kept, "3"), "number of levels"),
        "a level of no kind": (with_levels(kept, "7"), "wrong in levels"),
        "no segments": (member("manifest.json", b'{"format": 1}') + END, "wrong"),
        "a codex called ..": (named(kept, codex=".."), "no codex can have this name"),
        "a codex that drives terminals": (named(kept, codex="a\x1b]0;b\x07"), "no codex can have this name"),
        "a codex with a long name": (named(kept, codex="a" * 65), "no codex can have this name"),
        "a model with a long name": (named(kept, model="m" * 301), "longer than 300 characters"),
        "a wrong digest": (named(kept, root="../x"), "characters that it cannot have"),
        "a part for each letter": (named(kept, parts={f"{n}": "" for n in range(33)}), "too many: more of at most 32"),
        "a part that drives terminals": (named(kept, parts={"\x1b[2J": 1}), "wrong in parts.�.2J: should be text"),
        "a name with dots": (begins.replace(first.encode(), b"../" * 21 + b"x"), "header|wrong"),
        "a path outside": (begins + member("../../x.kv", raw) + END, "does not follow"),
        "an absolute path": (begins + member("/etc/cron.d/x", raw) + END, "does not follow"),
        "a link": (begins + link(f"{first}.kv") + END, "no file"),
        "a giant segment": (begins + head(f"{first}.kv", 1 << 50) + raw, "does not follow"),
        "another order": (begins + b"".join(member(f"{name}.kv", one) for name, one in reversed(kept)) + END, "follow"),
        "one too few": (begins + member(f"{first}.kv", raw) + END, "header|follow"),
        "no end": (whole[: -len(END)], "ends early"),
        "something behind": (whole + b"x", "follows"),
        "a swapped content": (
            begins + b"".join(member(f"{name}.kv", raw if len(raw) == len(one) else one) for name, one in kept) + END,
            "does not go on",
        ),
        "more tokens than it has": (archive(kept, tokens=9999), "of 9,999 tokens"),
        "without its beginning": (archive(rest, tokens=344), "does not go on"),
        "a conversation": (archive(files(chain(cut=512), folder)), "does not go on"),
    }


WAYS = (
    "nothing", "no tar", "zeros", "no manifest", "a giant manifest", "no JSON", "deep JSON", "a list", "another format",
    "a level too few", "a level of no kind", "no segments", "a codex called ..", "a codex that drives terminals",
    "a codex with a long name", "a model with a long name", "a wrong digest", "a part for each letter",
    "a part that drives terminals", "a name with dots", "a path outside", "an absolute path",
    "a link", "a giant segment", "another order",
    "one too few", "no end", "something behind", "a swapped content", "more tokens than it has", "without its beginning",
    "a conversation",
)  # fmt: skip


def outside(folder: Path) -> list[Path]:
    """What lies anywhere but on the other machine."""
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and path.parent.name != "there" and not path.name.startswith("floors.sqlite3")
    ]


@pytest.mark.parametrize("way", WAYS)
async def test_whatever_is_wrong_with_an_archive_is_told_and_nothing_of_it_stays(
    desk: Desk, kept: Any, way: str, tmp_path: Path
):
    made = hostile(kept, tmp_path / "there")
    assert set(made) == set(WAYS)
    raw, words = made[way]
    with pytest.raises(InvalidRequest, match=words):
        await desk.take(raw)
    assert outside(tmp_path) == []


async def test_names_that_would_drive_a_terminal_are_shown_without_that(desk: Desk, kept: list[tuple[str, bytes]]):
    with pytest.raises(InvalidRequest) as refused:
        await desk.take(named(kept, model="\x1b[2Jnice\u202e\n", parts={**PARTS, "weights": "2" * 64}))
    assert "the model is �[2Jnice�� (222222222222) there" in refused.value.message


async def test_what_was_deleted_before_it_was_taken_is_told_in_words(desk: Desk):
    assert await desk.engine.adopt([str(desk.engine.folder / f"{NAME}.1.tmp")]) == "what had come was deleted meanwhile"


def test_a_list_of_a_hundred_thousand_files_is_read_and_a_million_faults_are_one():
    kept = [(NAME, b"x")]
    paths = [(f"source/package{number % 100}/module_{number}.py", "d" * 64) for number in range(100_000)]
    raw = written(manifest(kept, order=paths))
    assert len(raw) < MOST_MANIFEST
    assert len(manifest_of(raw).order) == len(paths)
    said = {**manifest(kept).model_dump(), "order": [1] * 1_000_000}
    with pytest.raises(ValidationError) as refused:
        Manifest.model_validate(said)
    assert refused.value.error_count() == 1


def test_a_list_that_nobody_would_read_is_not_written(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("orchestrator.codices.floor_archive.MOST_MANIFEST", 1000)
    with pytest.raises(OverBudget, match=r"the list of its 20 files takes 2,\d\d\d bytes, and 1,000 are read"):
        written(manifest([(NAME, b"x")], order=[(f"file{number}.py", "d" * 64) for number in range(20)]))


async def test_a_header_that_announces_more_than_there_is_costs_no_memory(desk: Desk):
    async def body() -> Any:
        yield BOMB
        raise AssertionError("nobody may ask for more")

    with pytest.raises(InvalidRequest, match=r"manifest\.json"):
        await Incoming(body()).manifest()


async def test_a_full_disk_is_told_and_nothing_stays(desk: Desk, kept: Any, monkeypatch: pytest.MonkeyPatch):
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("orchestrator.codices.floor_archive.os.fsync", full)
    with pytest.raises(LoreError, match="No space left on device"):
        await desk.take(archive(kept))
    assert desk.left() == []


@given(st.data())
def test_a_bit_that_flips_on_the_way_is_refused_or_was_in_words(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
):
    """A segment with a flipped bit never comes to its place."""
    place = tmp_path_factory.mktemp("flips")
    kept = files(chain(), place / "there")
    raw = bytearray(archive(kept))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    desk = Desk(Engine(EngineSpec("model", cache_folder=str(place / "cache"), disk_budget=1 << 20)))
    try:
        asyncio.run(desk.take(bytes(raw), 100_000))
    except LoreError:
        assert desk.left() == []
    else:
        assert {path.stem: path.read_bytes() for path in desk.engine.folder.iterdir()} == dict(kept)
    desk.close()


@given(st.integers(0, 1 << 20))
def test_what_fills_a_block_ends_at_a_block(size: int):
    assert (size + len(padding(size))) % tarfile.BLOCKSIZE == 0
    assert len(padding(size)) < tarfile.BLOCKSIZE
