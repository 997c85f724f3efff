"""How some models write calls of tools."""

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
