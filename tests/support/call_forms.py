"""How some models write calls of tools."""

from pathlib import Path

from formatters.calls import CallFormat, read_calls
from formatters.sandbox import compiled, rendered
from orchestrator.engine.calling import ArgumentForm, CallForm

HERMES = CallForm(
    trigger="<tool_call>",
    begin='<tool_call>\n{"name": "',
    before='", "arguments": ',
    end="}\n</tool_call>",
    between='\n<tool_call>\n{"name": "',
)
CODER = CallForm(
    "<tool_call>",
    "<tool_call>\n<function=",
    ">\n",
    "</function>\n</tool_call>",
    "\n<tool_call>\n<function=",
    style=ArgumentForm("<parameter=", ">\n", "\n</parameter>\n", quote=""),
)
WORDS = ("True", "False", "None")
PYTHONIC = CallForm("[", "[", "(", ")", ", ", "]", ArgumentForm(equals="=", between=", ", words=WORDS))


def form_of(file: Path) -> CallFormat:
    """As a chat template writes them."""
    template = compiled(file.read_text(encoding="utf-8"))
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    return read_calls(lambda messages: rendered(template, messages, tokens, opening=False))[0]
