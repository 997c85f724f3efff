"""An archive being put in order says so from the first moment on, and what is damaged meanwhile is not passed over."""

import asyncio
import shutil

import pytest
from support.waiting import SOON

from codex.archive.archive import Archive
from codex.library import Library
from codex.trees.sources import LoadSpec
from orchestrator.codices.archive import ArchiveIndexer, ArchiveUpkeep

pytestmark = pytest.mark.anyio

COMPARED = "the archive of vaults is being compared with its catalog"


@pytest.fixture
def parts(tmp_path):
    """A library with the codex `vaults`, and its archive."""
    archive = Archive(tmp_path / "archive")
    library = Library(tmp_path / "data", indexer=ArchiveIndexer(archive))
    (tmp_path / "vaults").mkdir()
    for number in range(3):
        (tmp_path / "vaults" / f"v{number}.py").write_text(f"CODE = {number}\n")
    library.load(LoadSpec((str(tmp_path / "vaults"),)))
    yield library, archive
    library.close()
    archive.close()


async def ended(tending):
    """Returns when what was begun has ended."""
    async with asyncio.timeout(SOON):
        await tending._work["vaults"].task


async def test_it_is_in_doubt_from_the_first_moment_until_it_is_found_in_order(parts):
    tending, lock = tending_of(parts)
    async with lock:
        tending.begin("vaults")
        assert tending.unseen("vaults") == tending.notice("vaults") == COMPARED
    await ended(tending)
    assert tending.unseen("vaults") == tending.notice("vaults") == ""


async def test_behind_a_load_that_ended_well_nothing_is_doubted(parts):
    tending, lock = tending_of(parts)
    async with lock:
        tending.begin("vaults", doubted=False)
        assert tending.unseen("vaults") == ""
    await ended(tending)


async def test_what_is_found_damaged_while_it_is_put_in_order_is_indexed_again(parts):
    library, archive = parts
    settled = []

    def lost_once(name):
        """As a search would: it finds damage behind the comparison, sets it aside, and says so."""
        settled.append(tending.unseen(name))
        if len(settled) == 1:
            archive.set_aside(name)
            tending.begin(name)

    tending = ArchiveUpkeep(library, archive, lambda name: lock, lost_once)
    lock = asyncio.Lock()
    tending.begin("vaults")
    await ended(tending)
    assert len(settled) == 2
    assert all(settled)
    assert len(archive.held("vaults")) == 3
    assert tending.notice("vaults") == "its archive was damaged or not complete: 3 files indexed again"


def test_of_what_was_set_aside_the_newest_of_each_codex_is_kept(parts, tmp_path):
    library, archive = parts
    shutil.copytree(tmp_path / "vaults", tmp_path / "other")
    library.load(LoadSpec((str(tmp_path / "other"),)))
    for name in ("vaults", "other"):
        assert archive.set_aside(name) is not None
    assert {one.name.split("-")[0] for one in (tmp_path / "archive").glob("*.damaged")} == {"other", "vaults"}


def tending_of(parts):
    library, archive = parts
    lock = asyncio.Lock()
    return ArchiveUpkeep(library, archive, lambda name: lock), lock
