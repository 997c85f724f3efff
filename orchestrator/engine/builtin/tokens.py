"""The vocabulary that all built-in models share: 256 bytes, 3,839 merges, one end of text.

The merges lie beside this file; `scripts/train_builtin_bpe.py` says how they were made. A token is either made of line
ends only or has none in it.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import gguf

from orchestrator.engine.builtin.alphabet import BYTE_TO_SIGN, to_bytes

END = "<|endoftext|>"
# Every message but the last ends its line, so that a quote out of an earlier turn ends where that turn ended; the last one
# stays open, to be continued.
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% if not loop.last %}\n{% endif %}{% endfor %}"
MERGES = Path(__file__).with_name("merges.txt")


@dataclass(frozen=True)
class Tokens:
    texts: tuple[str, ...]  # by id, in the byte alphabet; the last one is the end of text
    merges: tuple[str, ...]

    @property
    def end(self) -> int:
        return len(self.texts) - 1

    def line_ends(self) -> list[int]:
        """Ids of the tokens that are nothing but line ends."""
        return [n for n, text in enumerate(self.texts[:-1]) if not to_bytes(text).strip(b"\r\n")]

    def describe(self, writer: gguf.GGUFWriter) -> None:
        """Writes the tokenizer's part of a GGUF header."""
        types = [gguf.TokenType.NORMAL] * self.end + [gguf.TokenType.CONTROL]
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("llama-bpe")
        writer.add_token_list(list(self.texts))
        writer.add_token_types(types)
        writer.add_token_merges(list(self.merges))
        writer.add_bos_token_id(self.end)
        writer.add_eos_token_id(self.end)
        writer.add_add_bos_token(False)
        writer.add_chat_template(TEMPLATE)


@cache
def tokens() -> Tokens:
    merges = tuple(MERGES.read_text(encoding="utf-8").splitlines())
    single = [BYTE_TO_SIGN[byte] for byte in range(256)]
    return Tokens((*single, *(merge.replace(" ", "") for merge in merges), END), merges)
