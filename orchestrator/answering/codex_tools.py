"""Tools by which a model looks into the turn's codex. Their results go to State.

    search_archive     passages that say something about a query
    read_file          lines of a file, numbered
    symbol             where a name is defined, its callers, callees, implementors and members; a file's outline
    context_strategy   how the turn gets at what its prompt does not hold, and how much room is left

What a tool gives is the codex as questions meet it: its current generation with the log of changes. A name that is no file
of it is refused, whatever lies on the disk: a secret file was never taken in, and a path outside is no file of a codex.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field
from pydantic_ai import RunContext

from codex.documents import lines
from codex.graph.symbol_index import FoundSymbol, SymbolAnswer, What
from formatters.context import StrategyView, TurnContext
from formatters.writers import passage
from orchestrator.answering.agent import FAILED, MOST_CHARS
from orchestrator.answering.report import strategy_view
from orchestrator.codices.reading import no_file
from orchestrator.prompt.evidence import MOST_PASSAGES, Searcher, TokenCounter, gather, written
from orchestrator.prompt.strategy import advice, consulted, size_of_text

NO_CODEX = "refused: no codex was chosen for this conversation"
MOST_LINES = 200  # of one call where no end is named: three screens
ROOM = MOST_CHARS - 500  # characters for lines: the rest is for what is said of them
RESULT_TOKENS = 2_000  # of one search: a few whole functions
Passages = Annotated[int, Field(ge=0, le=MOST_PASSAGES)]
Context = RunContext[TurnContext]
TextOf = Callable[[str, str], str | None]
"""The text of a codex's file as questions meet it; None for what is no file of it. May raise LoreError."""
PathsOf = Callable[[str], Collection[str]]
SizeOf = Callable[[str, Iterable[str]], int]
"""Characters of files of a codex. May raise LoreError."""
SymbolsOf = Callable[[str, What, str], SymbolAnswer]
"""Of a codex, as `codex.graph.symbol_index` answers. May raise LoreError."""


@dataclass(frozen=True)
class SearchArchive:
    """`search_archive`; apart from the others, because tests and benchmarks have an archive alone."""

    searcher: Searcher
    tokens: TokenCounter

    async def search_archive(self, ctx: Context, query: str, n: Passages = 0, graph: bool = False) -> str:
        """Search the codebase for passages about a query: words, names of functions, text of an error message.

        Args:
            query: what to look for.
            n: most passages; 0: as many as fit.
            graph: also what calls, or is called by, what was found.
        """
        turn = ctx.deps
        if turn.codex is None:
            return NO_CODEX
        known = (*turn.state.evidence, *(one for earlier in turn.state.turns for one in earlier.evidence))
        found = await gather(
            self.searcher, self.tokens, turn.codex.name, query, RESULT_TOKENS, known, graph=graph, most=n
        )
        if found.failed:
            return f"{FAILED} {'; '.join(found.notices)}"
        return "".join(written(one) for one in found.evidence) or "nothing found that this conversation lacks"


@dataclass(frozen=True)
class CodexTools:
    """Every method may raise LoreError. They are called in worker threads."""

    text_of: TextOf
    paths_of: PathsOf
    size_of: SizeOf
    symbols_of: SymbolsOf

    @property
    def functions(self) -> tuple[Any, ...]:
        return self.read_file, self.symbol, self.context_strategy

    async def read_file(self, ctx: Context, path: str, start: int = 1, end: int = 0) -> str:
        """Read lines of a file of the codebase. Each line begins with its number.

        Args:
            path: the file, as search_archive or the codebase names it.
            start: first line, from 1.
            end: last line; 0: as many as fit.
        """
        turn = ctx.deps
        if turn.codex is None:
            return NO_CODEX
        return await asyncio.to_thread(self._read, turn.codex.name, path, start, end)

    async def symbol(self, ctx: Context, name: str, what: What = "definition") -> str:
        """Look up a name of the codebase in its symbol graph: exact, also where a text search finds too much.

        Args:
            name: of a class, function or method, such as get or Session.get; for outline the path of a file.
            what: its definition, callers, callees, implementors or members; or the outline of a file.
        """
        turn = ctx.deps
        if turn.codex is None:
            return NO_CODEX
        return symbol_lines(await asyncio.to_thread(self.symbols_of, turn.codex.name, what, name), what, name)

    async def context_strategy(
        self, ctx: Context, query: str = "", char_count: int = 0, file_paths: Sequence[str] = ()
    ) -> str:
        """Ask how this turn gets at the codebase, why, and how many tokens of the window are left; or, with a size or
        files, whether that much text should be read whole or searched.

        Args:
            query: what is to be answered; left out: the question of this turn.
            char_count: characters of the text; 0: this turn's own strategy.
            file_paths: files of the codebase that are the text.
        """
        turn = ctx.deps
        if turn.strategy is None:
            return "nothing is known of the strategy of this turn"
        if char_count <= 0 and file_paths and turn.codex is not None:
            char_count = await asyncio.to_thread(self.size_of, turn.codex.name, file_paths)
        if char_count <= 0 and not query:
            return strategy_told(turn.strategy)
        return strategy_told(of_a_text(turn, turn.strategy, query or turn.query, char_count))

    def _read(self, codex: str, path: str, start: int, end: int) -> str:
        name = path.strip().removeprefix("./")
        text = self.text_of(codex, name)
        if text is None:
            raise no_file(path, self.paths_of(codex))
        return numbered(name, lines(text), start, end)


def of_a_text(turn: TurnContext, now: StrategyView, query: str, char_count: int) -> StrategyView:
    """For a text of this size beside what the prompt has already."""
    content = size_of_text(char_count)
    tools = frozenset(turn.environment.available_tools or ())
    decision = consulted(query, content, now.window, now.used, tools)
    return strategy_view(decision, now.used).model_copy(update={"reason": advice(decision, content), "steps": ()})


def strategy_told(one: StrategyView) -> str:
    """The decision, the room, and what to do, a line each."""
    share = f" ({100 * one.used // one.window}%)" if one.window else ""
    lines_of = (
        f"{one.name} (confidence {one.confidence:.2f}): {one.reason}",
        f"content: {one.content:,} tokens; window: {one.window:,}, used {one.used:,}{share}, "
        f"left {max(0, one.window - one.used):,}; for retrieval: {one.retrieval_budget:,}",
        *one.steps,
    )
    return "\n".join(lines_of)


def numbered(path: str, text: list[str], start: int, end: int) -> str:
    """These lines as a passage, as many as a tool may give; what was left out is said."""
    first = max(1, start)
    last = min(len(text), end if end >= first else first + MOST_LINES - 1)
    if first > last:
        return f"{path} has {len(text):,} lines, and none from {first:,} on"
    shown = list(_as_many_as_fit(text[first - 1 : last], first))
    until = first + len(shown) - 1
    more = f"{path} has {len(text):,} lines\n" if (first, until) != (1, len(text)) else ""
    return passage(f"{path}:{first}-{until}", "".join(f"{line}\n" for line in shown)) + more


def _as_many_as_fit(text: list[str], first: int) -> Iterator[str]:
    """At least one line, which may be cut."""
    left = ROOM
    for number, line in enumerate(text, start=first):
        whole = f"{number} {line}"
        left -= len(whole) + 1
        if left < 0 and number > first:
            return
        yield whole if left >= 0 else f"{whole[:ROOM]} … cut, of {len(line):,} characters"


def symbol_lines(answer: SymbolAnswer, what: What, name: str) -> str:
    """One line a symbol, with its place: as many as a tool may give."""
    if not answer.symbols:
        if answer.meant:
            return "\n".join([f"nothing of this codex is found as {what} of", *map(_line, answer.meant)])
        near = f"; names like it: {', '.join(answer.near)}" if answer.near else ""
        return f"{name!r} is no {'file' if what == 'outline' else 'name'} of this codex{near}"
    several = [f"{name} may mean {len(answer.meant)} definitions:", *map(_line, answer.meant), f"{what}:"]
    head = several if len(answer.meant) > 1 and what != "definition" else []
    return "\n".join([*answer.notices, *_fitting([*head, *map(_line, answer.symbols)])])


def _line(one: FoundSymbol) -> str:
    """`src/a.py:10 method Session.get(self, url): Sends a GET request. (calls in lines 12, 14; not certain)`."""
    said = f": {one.doc}" if one.doc else ""
    calls = f"calls in line{'s' * (len(one.uses) > 1)} {', '.join(map(str, one.uses))}" if one.uses else ""
    notes = "; ".join(
        filter(None, (calls, f"of {one.which}" if one.which else "", "" if one.certain else "not certain"))
    )
    head = one.signature or one.name
    kind = "" if head.startswith(f"{one.kind} ") else f"{one.kind} "
    inside = f" in {one.qualified.rpartition('.')[0]}" if "." in one.qualified and one.kind != "module" else ""
    return f"{one.path}:{one.line} {kind}{head}{inside}{said}{f' ({notes})' if notes else ''}"


def _fitting(rows: list[str]) -> list[str]:
    left, shown = ROOM, 0
    while shown < len(rows) and len(rows[shown]) < left:
        left -= len(rows[shown]) + 1
        shown += 1
    return rows if shown == len(rows) else [*rows[:shown], f"… and {len(rows) - shown:,} more"]
