"""An encoder with a tiny vocabulary, whose ids can be foretold."""

import re
from array import array
from collections.abc import Sequence

from orchestrator.engine.messages import Ids

CONTROL = {"<|im_start|>": 1_000, "<|im_end|>": 1_001}
_TOKEN = re.compile(r"<\|im_start\|>|<\|im_end\|>|\w+|\W", re.DOTALL)


class WordEncoder:
    """Words and single signs as ids, the same in every process; markers become control ids only when they may."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, bool]] = []
        self.characters = 0

    async def encode(self, texts: Sequence[str], control: bool) -> list[Ids]:
        self.calls.append((len(texts), control))
        self.characters += sum(map(len, texts))
        return [array("I", self._ids(text, control)).tobytes() for text in texts]

    def _ids(self, text: str, control: bool) -> list[int]:
        ids: list[int] = []
        for token in _TOKEN.findall(text):
            if token in CONTROL and control:
                ids.append(CONTROL[token])
            elif token in CONTROL:
                ids += token.encode()
            else:
                ids.append(2_000 + int.from_bytes(token.encode(), "big") % 100_003)
        return ids
