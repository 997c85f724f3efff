"""What a model may see of the files of its codex: lines with their numbers, and nothing from outside."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codex.documents import document_from
from codex.graph.symbol_index import SymbolIndex, packed_file
from codex.outline.facts import facts, to_bytes
from formatters.context import CodexView, IdentityView, SigilView, StrategyView, TurnContext
from orchestrator.answering.agent import MOST_CHARS
from orchestrator.answering.codex_tools import MOST_LINES, NO_CODEX, CodexTools, numbered
from orchestrator.errors import NotFound

pytestmark = pytest.mark.anyio
LONG = "".join(f"line {n}\n" for n in range(1, 1_001))
FILES = {"src/app.py": "def run():\n    return 1\n", "src/long.py": LONG, "docs/app.md": "# App\n"}


def tools(files: dict[str, str] = FILES) -> CodexTools:
    found = [facts(document_from(path, text.encode())) for path, text in files.items()]  # type: ignore[arg-type]
    index = SymbolIndex({one.path: packed_file(one, to_bytes(one)) for one in found})
    return CodexTools(
        lambda codex, path: files.get(path) if codex == "demo" else None,
        lambda codex: list(files),
        lambda codex, paths: sum(len(files[path]) for path in paths),
        lambda codex, what, name: index.answer(what, name),
    )


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


async def test_a_conversation_without_a_codex_has_no_files_and_no_symbols() -> None:
    assert await tools().read_file(asking(None), "src/app.py") == NO_CODEX
    assert await tools().symbol(asking(None), "run") == NO_CODEX


CODE = {
    "a.py": "class Shop:\n    def sell(self, x):\n        '''Sells it.'''\n        return x\n\n\n"
    "class Stall(Shop):\n    pass\n",
    "b.py": "from a import Shop\n\n\ndef run(shop: Shop):\n    shop.sell(1)\n    shop.sell(2)\n",
}


async def test_a_symbol_is_told_with_its_place_its_signature_and_its_calls() -> None:
    look = tools(CODE)
    assert await look.symbol(asking(), "sell") == "a.py:2 method def sell(self, x) in Shop: Sells it."
    assert await look.symbol(asking(), "sell", "callers") == (
        "b.py:4 function def run(shop: Shop) (calls in lines 5, 6)"
    )
    assert await look.symbol(asking(), "Shop", "implementors") == "a.py:7 class Stall(Shop)"
    assert await look.symbol(asking(), "a.py", "outline") == (
        "a.py:1 class Shop\na.py:2 method def sell(self, x) in Shop: Sells it.\na.py:7 class Stall(Shop)"
    )


async def test_what_is_not_found_says_so_with_what_is_like_it() -> None:
    look = tools(CODE)
    assert await look.symbol(asking(), "Shopp") == "'Shopp' is no name of this codex; names like it: Shop"
    assert (
        await look.symbol(asking(), "x.py", "outline") == "'x.py' is no file of this codex; names like it: b.py, a.py"
    )
    assert await look.symbol(asking(), "run", "callers") == (
        "nothing of this codex is found as callers of\nb.py:4 function def run(shop: Shop)"
    )


FULL = StrategyView(
    name="CAG",
    reason="CAG, because all 900 tokens of the codex are in the prefix",
    confidence=0.95,
    content=900,
    window=8_000,
    used=2_000,
    steps=("answer from the codex in the prefix",),
)


def planned(strategy: StrategyView | None = FULL) -> Any:
    one = asking()
    return SimpleNamespace(deps=one.deps.model_copy(update={"strategy": strategy}))


async def test_the_strategy_of_the_turn_is_told_with_its_reason_and_the_room() -> None:
    assert (await tools().context_strategy(planned())).splitlines() == [
        "CAG (confidence 0.95): CAG, because all 900 tokens of the codex are in the prefix",
        "content: 900 tokens; window: 8,000, used 2,000 (25%), left 6,000; for retrieval: 0",
        "answer from the codex in the prefix",
    ]
    assert await tools().context_strategy(planned(None)) == "nothing is known of the strategy of this turn"


async def test_a_text_is_to_be_read_whole_where_it_fits_what_is_left_and_searched_where_not() -> None:
    small, large = [await tools().context_strategy(planned(), "", size) for size in (8_000, 80_000)]
    assert small.startswith("CAG (confidence 0.95): a text of 2,000 tokens fits whole: read it; task unknown\n")
    assert large.startswith(
        "RAG (confidence 0.80): a text of 20,000 tokens does not fit: search it, or read parts of it"
    )
    files = tools({"a.py": "x" * 5_000, "b.py": "y" * 3_000, "c.py": "z"})
    named = await files.context_strategy(planned(), file_paths=["a.py", "b.py"])
    assert named.startswith("CAG (confidence 0.95): a text of 2,000 tokens fits whole: read it")
    asked = await tools().context_strategy(planned(), "explain how it works")
    assert "a text of 64,000 tokens does not fit: search it, or read parts of it; task hybrid" in asked
    assert "left 6,000; for retrieval: 4,200" in large


async def test_more_symbols_than_a_tool_may_give_are_counted() -> None:
    look = tools({"a.py": "".join(f"def a_function_of_some_length_{n}(): pass\n" for n in range(500))})
    told = await look.symbol(asking(), "a.py", "outline")
    assert len(told) <= MOST_CHARS
    shown = told.splitlines()
    assert shown[-1] == f"… and {500 - len(shown) + 1} more"


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
