"""The tools that a model may call while it answers, and what of them the sigil allows.

The list is one for all and part of Identity; a tool outside the scopes is refused when it is called. A tool answers with
text, also when it has nothing to say: the run goes on.
"""

from pydantic_ai import RunContext
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ExternalToolset, FunctionToolset

from formatters.context import ToolView, TurnContext
from orchestrator.prompt.evidence import Searcher, TokenCounter, gather, written
from orchestrator.prompt.situation import may_use
from orchestrator.prompt.steps import SEARCH_TOOL

RESULT_TOKENS = 2_000  # of one search: a few whole functions


class SearchArchive:
    """`search_archive`: passages of the turn's codex that say something about a query."""

    def __init__(self, searcher: Searcher, tokens: TokenCounter, budget: int = RESULT_TOKENS) -> None:
        self._searcher = searcher
        self._tokens = tokens
        self._budget = budget

    async def search_archive(self, ctx: RunContext[TurnContext], query: str) -> str:
        """Search the codebase for passages about a query: words, names of functions, text of an error message.

        Args:
            query: what to look for.
        """
        turn = ctx.deps
        if not may_use(turn.sigil, SEARCH_TOOL):
            return f"refused: the sigil {turn.sigil.name} lacks the scope tools:{SEARCH_TOOL}"
        if turn.codex is None:
            return "refused: no codex was chosen for this conversation"
        told = (*turn.state.evidence, *(one for earlier in turn.state.turns for one in earlier.evidence))
        found = await gather(self._searcher, self._tokens, turn.codex.name, query, self._budget, told)
        if found.failed:
            return f"failed: {'; '.join(found.notices)}"
        return "".join(written(one) for one in found.evidence) or "nothing found that was not told before"


def toolset_of(search: SearchArchive) -> FunctionToolset[TurnContext]:
    """Our own tools, made once."""
    tools: FunctionToolset[TurnContext] = FunctionToolset(id="lorekeep")
    tools.add_function(search.search_archive, name=SEARCH_TOOL, takes_ctx=True)
    return tools


def views_of(tools: FunctionToolset[TurnContext]) -> tuple[ToolView, ...]:
    """The tools as Identity tells the model of them."""
    definitions = (tool.tool_def for tool in tools.tools.values())
    return tuple(
        ToolView(
            name=definition.name,
            description=definition.description or "",
            parameters_json_schema=definition.parameters_json_schema,
        )
        for definition in definitions
    )


def offered(ours: FunctionToolset[TurnContext], turn: TurnContext) -> list[AbstractToolset[TurnContext]]:
    """Our tools and the client's own, which end the answer when they are called; on equal names the client's is meant."""
    theirs = turn.environment.client_tools
    if not theirs:
        return [ours]
    names = {tool.name for tool in theirs}
    definitions = [
        ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=dict(tool.parameters_json_schema) or {"type": "object", "properties": {}},
        )
        for tool in theirs
    ]
    return [ours.filtered(lambda _, tool: tool.name not in names), ExternalToolset(definitions, id="client")]
