"""Where a model's chat template puts the six blocks, read from the file's header alone."""

from formatters.probe import Placement, probe
from formatters.template import ChatTemplate
from governor.errors import GgufError
from governor.gguf import Gguf


def placement_of(gguf: Gguf) -> Placement:
    return probe(ChatTemplate(gguf.text("tokenizer.chat_template"), piece(gguf, "bos"), piece(gguf, "eos"), False))


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
