"""Where a model's chat template puts the six blocks, read from the file's header alone."""

from typing import Any

from formatters.conversation import Way
from formatters.probe import Placement, probe
from formatters.template import ChatTemplate
from governor.errors import GgufError
from governor.gguf import Gguf

WORDS = {
    Way.SYSTEM: "one system message holds Identity to Karma",
    Way.FIRST_USER: "Identity to Karma stand at the head of the first user message",
    Way.NONE: "the template is not used; plain role lines stand in for it",
}


def placement_of(gguf: Gguf) -> Placement:
    return probe(ChatTemplate(gguf.text("tokenizer.chat_template"), piece(gguf, "bos"), piece(gguf, "eos"), False))


def placement_report(placement: Placement) -> dict[str, Any]:
    return {
        "way": placement.way.value,
        "words": WORDS[placement.way],
        "reason": placement.reason,
        "keeps_answers": placement.keeps_answers,
        "no_think": placement.no_think.value,
    }


def piece(gguf: Gguf, which: str) -> str:
    """The text of a special token; "" where the file names none."""
    number = gguf.number(f"tokenizer.ggml.{which}_token_id")
    if number is None:
        return ""
    try:
        tokens = gguf.array("tokenizer.ggml.tokens")
    except (KeyError, GgufError):
        return ""
    return str(tokens[number]) if 0 <= number < len(tokens) else ""
