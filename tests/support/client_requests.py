"""What editors and other clients send, written after their sources at the version that each names.

Each gives the body for a question behind a conversation; `model` is as its user has set it.
"""

from collections.abc import Callable, Sequence
from typing import Any

Body = dict[str, Any]
Talk = Sequence[tuple[str, str]]  # earlier questions and their answers

RULES = "\n".join(
    f"{number}. Keep to rule {number}: cite the file, be brief, change nothing else." for number in range(150)
)
TALK: Talk = tuple((f"What does step_{number} do?", f"It adds {number} to its argument.") for number in range(24))
LOOK = {
    "type": "object",
    "properties": {"path": {"type": "string", "description": "relative to the project"}},
    "required": ["path"],
    "additionalProperties": False,
    "$schema": "http://json-schema.org/draft-07/schema#",
}


def turns(talk: Talk) -> list[Body]:
    return [
        message
        for asked, answered in talk
        for message in ({"role": "user", "content": asked}, {"role": "assistant", "content": answered})
    ]


def tool(**more: Any) -> Body:
    return {"type": "function", "function": {"name": "read_path", "description": "Reads.", "parameters": LOOK, **more}}


def parts(*texts: str) -> list[Body]:
    return [{"type": "text", "text": text} for text in texts]


def continue_dev(model: str, question: str, talk: Talk) -> Body:
    """Continue, packages/openai-adapters 023111db and core/llm/llms/OpenAI.ts 0069b948."""
    return {
        "messages": [{"role": "system", "content": RULES}, *turns(talk), {"role": "user", "content": parts(question)}],
        "model": model,
        "max_tokens": 4096,
        "temperature": 0,
        "frequency_penalty": 0,
        "presence_penalty": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [tool()],
        "parallel_tool_calls": False,
    }


def zed(model: str, question: str, talk: Talk) -> Body:
    """Zed, crates/open_ai 04b569a4: its parts are lists, its temperature is 1.0 where nobody sets one."""
    system = {"role": "system", "content": RULES}
    said = [{**one, "content": parts(one["content"])} if one["role"] == "user" else one for one in turns(talk)]
    return {
        "model": model,
        "messages": [system, *said, {"role": "user", "content": parts("<context>\nnone\n</context>", question)}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 2048,
        "stop": [],
        "temperature": 0.0,
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "tools": [tool()],
        "prompt_cache_key": "5d0c3f9a-thread",
    }


def aider(model: str, question: str, talk: Talk) -> Body:
    """aider 0.86.2 through litellm: examples, the map of the repository, files, and a reminder that ends the request."""
    example = ("Change get_factorial() to use math.factorial", "To make this change we need to edit app.py.")
    switched = ("I switched to a new code base. Please don't consider the above files any longer.", "Ok.")
    repository = ("Here are summaries of some files present in my git repository.", "Ok, I won't edit those files.")
    return {
        "model": model,
        "messages": [
            {"role": "system", "content": RULES},
            *turns([example, switched, repository]),
            *turns(talk),
            {"role": "user", "content": question},
            {"role": "system", "content": "# *SEARCH/REPLACE block* Rules: every block must begin with its path."},
        ],
        "stream": True,
        "temperature": 0,
    }


def opencode(model: str, question: str, talk: Talk) -> Body:
    """opencode through @ai-sdk/openai-compatible, vercel/ai 03955ee6: several system messages."""
    return {
        "model": model,
        "max_tokens": 32000,
        "temperature": 0,
        "top_p": 1,
        "messages": [
            {"role": "system", "content": RULES},
            {"role": "system", "content": "<env>\n  Working directory: /work\n</env>"},
            *turns(talk),
            {"role": "user", "content": question},
        ],
        "tools": [tool()],
        "tool_choice": "auto",
        "reasoning_effort": "medium",
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def cline(model: str, question: str, talk: Talk) -> Body:
    """Cline, src/core/api/providers/openai.ts 0162b828: the question comes in parts, what it knows of the editor before."""
    said = [{**one, "content": parts(one["content"])} if one["role"] == "user" else one for one in turns(talk)]
    editor = "<environment_details>\n# Visual Studio Code Open Tabs\nsteps.py\n</environment_details>"
    return {
        "model": model,
        "messages": [
            {"role": "system", "content": RULES},
            *said,
            {"role": "user", "content": parts(editor, question)},
        ],
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [tool(strict=False)],
    }


def vscode(model: str, question: str, talk: Talk) -> Body:
    """VS Code's chat with a model of one's own, microsoft/vscode-copilot-chat 092f70e3."""
    return {
        "messages": [
            {"role": "system", "content": RULES},
            *turns(talk),
            {"role": "user", "content": question},
        ],
        "model": model,
        "temperature": 0,
        "top_p": 1,
        "n": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [tool()],
        "tool_choice": "auto",
    }


def llm(model: str, question: str, talk: Talk) -> Body:
    """llm 0.36, llm/default_plugins/openai_models.py."""
    return {
        "model": model,
        "messages": [{"role": "system", "content": RULES}, *turns(talk), {"role": "user", "content": question}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
        "logit_bias": {"50256": -100},
    }


CLIENTS: tuple[Callable[[str, str, Talk], Body], ...] = (continue_dev, zed, aider, opencode, cline, vscode, llm)

# Continue's autocompletion writes the tokens for filling in as text: AutocompleteTemplate.ts, the template of Qwen's coder.
TYPED = {
    "prompt": "<|fim_prefix|># Path: steps.py\ndef step_1(value):\n    return <|fim_suffix|>\n\n<|fim_middle|>",
    "max_tokens": 8,
    "temperature": 0.01,
    "frequency_penalty": 0,
    "stream": True,
    "stop": ["<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "\n\n"],
}
