"""What a model may see of the files of its codex: lines with their numbers, and nothing from outside."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formatters.context import CodexView, IdentityView, SigilView, TurnContext
from orchestrator.answering.agent import MOST_CHARS
from orchestrator.answering.codex_tools import MOST_LINES, NO_CODEX, CodexTools, numbered
from orchestrator.errors import NotFound

pytestmark = pytest.mark.anyio
LONG = "".join(f"line {n}\n" for n in range(1, 1_001))
FILES = {"src/app.py": "def run():\n    return 1\n", "src/long.py": LONG, "docs/app.md": "# App\n"}


def tools(files: dict[str, str] = FILES) -> CodexTools:
    return CodexTools(lambda codex, path: files.get(path) if codex == "demo" else None, lambda codex: list(files))


def asking(codex: str | None = "demo") -> Any:
    turn = TurnContext(
        identity=IdentityView(name="default"),
        sigil=SigilView(name="owner", uid=1000, scopes=frozenset({"admin"})),
        codex=CodexView(name=codex) if codex else None,
        query="?",
    )
    return SimpleNamespace(deps=turn)


async def test_a_file_is_read_with_its_place_and_its_lines_numbered() -> None:
    told = await tools().read_file(asking(), "src/app.py")
    assert told == "=== src/app.py:1-2 ===\n1 def run():\n2     return 1\n\n"
    assert await tools().read_file(asking(), "./src/app.py") == told


async def test_a_part_is_read_and_the_whole_named() -> None:
    told = await tools().read_file(asking(), "src/long.py", 999, 2_000)
    assert told == "=== src/long.py:999-1000 ===\n999 line 999\n1000 line 1000\n\nsrc/long.py has 1,000 lines\n"


async def test_without_an_end_a_long_file_gives_its_first_lines() -> None:
    told = await tools().read_file(asking(), "src/long.py")
    assert told.startswith(f"=== src/long.py:1-{MOST_LINES} ===\n1 line 1\n")


async def test_lines_behind_the_end_are_none() -> None:
    assert await tools().read_file(asking(), "src/app.py", 3) == "src/app.py has 2 lines, and none from 3 on"


@pytest.mark.parametrize("path", ["/etc/passwd", "../secret.py", "src/../../x", ".env", "", "src", "app.py"])
async def test_what_is_no_file_of_the_codex_is_refused_with_what_is_near(path: str) -> None:
    with pytest.raises(NotFound) as refused:
        await tools().read_file(asking(), path)
    assert "is no file of this codex; there are: " in refused.value.message
    assert "src/app.py" in refused.value.message


async def test_a_conversation_without_a_codex_has_no_files() -> None:
    assert await tools().read_file(asking(None), "src/app.py") == NO_CODEX


async def test_a_line_longer_than_a_tool_may_give_is_cut_and_says_so() -> None:
    told = await tools({"a.json": "x" * 100_000}).read_file(asking(), "a.json")
    assert told.endswith("x … cut, of 100,000 characters\n\n")
    assert len(told) < MOST_CHARS


@given(st.lists(st.integers(0, 2_000).map("a b".__mul__), max_size=60), st.integers(-5, 70), st.integers(-5, 90))
def test_what_is_read_fits_is_in_order_and_is_what_it_says(text: list[str], start: int, end: int) -> None:
    told = numbered("a.py", text, start, end)
    assert len(told) <= MOST_CHARS
    head, *shown = told.split("\n")
    if not head.startswith("=== "):
        assert max(1, start) > len(text)
        return
    first, last = map(int, head.removeprefix("=== a.py:").removesuffix(" ===").split("-"))
    assert (first, last <= len(text)) == (max(1, start), True)
    assert shown[: last - first + 1] == [f"{n} {text[n - 1]}" for n in range(first, last + 1)]
