"""A codex is followed to where its path leads: real folders, real inotify, and what is said meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from support.libraries import fill, request

from codex.library import Library
from codex.settings import LibrarySettings, WatchSettings
from orchestrator.codices.freshness import CodexWatchers, WatchStatus
from orchestrator.errors import NotFound

QUICK = WatchSettings(debounce_s=0.05, longest_wait_s=5.0, poll_s=0.1)
pytestmark = pytest.mark.anyio


class Followed:
    """A codex of `above/code`, followed as the daemon does."""

    def __init__(self, tmp_path: Path) -> None:
        self.above = tmp_path / "above"
        self.root = fill(self.above / "code", {"a.py": "a = 1\n"})
        self.library = Library(tmp_path / "data", LibrarySettings(watch=QUICK))
        self.watching = CodexWatchers(self.library, QUICK, self._changed, on=True)

    async def _changed(self, name: str) -> None:
        await asyncio.to_thread(self.library.follow, name, count=len, changed_definitions=lambda *_: None)

    def begin(self, path: Path) -> None:
        self.library.load(request(path, name="code"))
        self.watching.follow("code")

    @property
    def state(self) -> WatchStatus:
        return self.watching.status("code")

    async def until(self, true: Callable[[], bool]) -> None:
        """Between two looks its tasks and threads go on; nobody tells when the last of them is done."""
        async with asyncio.timeout(60):
            while not true():
                await asyncio.to_thread(self.library.catalog.codices)

    async def settled(self) -> None:
        await self.until(lambda: self.is_current)

    @property
    def is_current(self) -> bool:
        state = self.state
        return state.watched and state.compared and not state.applying and not state.failing

    def told(self) -> list[str]:
        return [one.text for one in self.library.catalog.amendments("code")]


@pytest.fixture
async def followed(tmp_path: Path) -> AsyncIterator[Followed]:
    one = Followed(tmp_path)
    yield one
    await one.watching.stop()
    one.library.close()


async def test_a_folder_above_that_is_replaced_is_said_at_once_and_its_files_are_taken_in_and_followed(
    followed: Followed,
) -> None:
    followed.begin(followed.root)
    await followed.settled()
    followed.above.rename(followed.above.with_name("old"))
    fill(followed.root, {"a.py": "a = 2\n"})
    assert not followed.state.compared
    await followed.settled()
    assert "a = 2" in followed.told()[-1]
    (followed.root / "a.py").write_text("a = 3\n")
    await followed.until(lambda: "a = 3" in followed.told()[-1])


async def test_a_root_that_went_with_the_folder_above_it_is_said_to_be_gone_until_it_is_back(
    followed: Followed,
) -> None:
    followed.begin(followed.root)
    await followed.settled()
    followed.above.rename(followed.above.with_name("old"))
    assert not followed.state.compared
    await followed.until(lambda: followed.state.failing)
    assert followed.state.notice.startswith(f"{followed.root} is not there")
    followed.above.with_name("old").rename(followed.above)
    await followed.settled()
    (followed.root / "a.py").write_text("a = 4\n")
    await followed.until(lambda: any("a = 4" in text for text in followed.told()))


async def test_a_link_that_is_pointed_elsewhere_is_followed_there(followed: Followed) -> None:
    link = followed.above / "current"
    link.symlink_to("code")
    followed.begin(link)
    await followed.settled()
    fill(followed.above / "second", {"a.py": "a = 5\n"})
    link.unlink()
    link.symlink_to("second")
    assert not followed.state.compared
    await followed.settled()
    assert "a = 5" in followed.told()[-1]
    assert followed.library.catalog.codex("code").roots == (str(followed.above / "second"),)
    (followed.above / "second" / "a.py").write_text("a = 6\n")
    await followed.until(lambda: "a = 6" in followed.told()[-1])


async def test_of_a_codex_that_is_dropped_while_changes_are_taken_in_nothing_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def changed(name: str) -> None:
        asked.set()
        await go.wait()
        raise NotFound(f"no codex named {name!r}")

    root, library = fill(tmp_path / "code", {"a.py": "a = 1\n"}), Library(tmp_path / "data")
    library.load(request(root, name="code"))
    watching = CodexWatchers(library, QUICK, changed, on=True)
    watching.follow("code")
    await asked.wait()
    (task,) = (one for one in asyncio.all_tasks() if one.get_name() == "changes of code")
    watching.forget("code")
    go.set()
    await task
    assert caplog.messages == []
    library.close()
