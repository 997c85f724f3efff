"""What to do next for a strategy, in sentences that name documents, tools and the budget; only tools that there are.

Pure wording: it decides nothing.
"""

from collections.abc import Set

SEARCH_TOOL = "search_archive"


def steps_of(
    retrieval: str, budget: int, content: int, documents: tuple[str, ...], tools: Set[str], critical: bool
) -> tuple[str, ...]:
    """The steps in the order in which they are taken; `critical` adds how facts are to be handled."""
    steps = [*_first(retrieval, budget, content), *_tool_step(retrieval, tools)]
    if documents:
        steps.append(
            f"look into {', '.join(documents)} first: the question names {'it' if len(documents) == 1 else 'them'}"
        )
    if critical:
        steps.append("verify retrieved facts with a second source, and cite path:line for each")
    else:
        steps.append("cite path:line for what is quoted")
    return tuple(steps)


def _first(retrieval: str, budget: int, content: int) -> tuple[str, ...]:
    return {
        "none": (f"answer from the codex in the prefix ({content:,} tokens); retrieve nothing",),
        "verify": (
            f"answer from the codex in the prefix ({content:,} tokens)",
            f"look up at most {budget:,} tokens to check it",
        ),
        "search": (f"prefetch evidence of at most {budget:,} tokens from the archive",),
        "graph": (f"prefetch evidence of at most {budget:,} tokens from the archive and its symbols' neighbours",),
    }[retrieval]


def _tool_step(retrieval: str, tools: Set[str]) -> tuple[str, ...]:
    if retrieval == "none" or SEARCH_TOOL not in tools:
        return ()
    return (f"call {SEARCH_TOOL} where the evidence does not answer",)
