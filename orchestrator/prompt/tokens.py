"""Token ids of texts, computed once per text: the floor's files, the turns of a conversation, the template's own literals.

Knows no block and no vocabulary; who encodes is a port.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from orchestrator.engine.token_ids import Ids

ID_BYTES = 4
BUDGET = 64 * 2**20  # bytes of ids: 16 million tokens
ENTRY_BYTES = 150  # of a key and its place in the map, about


class Encoder(Protocol):
    """Turns texts into ids, one result for each, in order; changes nothing. LoreError when the engine is gone.

    `control`: the text is the template's own and may hold control tokens. Otherwise no text ever becomes one.
    """

    async def encode(self, texts: Sequence[str], control: bool) -> list[Ids]: ...


class TokenCache:
    """Ids by the digest of text and `control`, least recently used out first. Valid for one vocabulary: make a new one."""

    def __init__(self, encoder: Encoder, budget: int = BUDGET) -> None:
        self._encoder = encoder
        self._budget = budget
        self._held = 0
        self._ids: OrderedDict[bytes, Ids] = OrderedDict()

    async def encode(self, texts: Sequence[str], control: bool = False) -> list[Ids]:
        """Ids of each text. Texts that are not known yet cross to the encoder in one call, each once."""
        keys = [_key(text, control) for text in texts]
        known = {key: self._touched(key) for key in keys if key in self._ids}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        if missing:
            encoded = await self._encoder.encode(list(missing.values()), control)
            for key, ids in zip(missing, encoded, strict=True):
                known[key] = ids
                self._keep(key, ids)
        return [known[key] for key in keys]

    async def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, as content."""
        return [len(ids) // ID_BYTES for ids in await self.encode(texts)]

    def learn(self, text: str, ids: Ids) -> None:
        """The ids of a text that was generated: encoding it again need not give the same ones."""
        self._keep(_key(text, control=False), ids)

    @property
    def held(self) -> int:
        """Bytes held, ids and entries."""
        return self._held

    def _touched(self, key: bytes) -> Ids:
        self._ids.move_to_end(key)
        return self._ids[key]

    def _keep(self, key: bytes, ids: Ids) -> None:
        self._forget(key)
        self._ids[key] = ids
        self._held += len(ids) + ENTRY_BYTES
        while self._held > self._budget and len(self._ids) > 1:
            self._forget(next(iter(self._ids)))

    def _forget(self, key: bytes) -> None:
        old = self._ids.pop(key, None)
        if old is not None:
            self._held -= len(old) + ENTRY_BYTES


def _key(text: str, control: bool) -> bytes:
    """surrogatepass: a text may hold a lone surrogate that a client's JSON escaped; it still has one name."""
    return hashlib.sha256((b"c" if control else b"t") + text.encode("utf-8", "surrogatepass")).digest()
