"""What crosses about embeddings. Vectors travel as the bytes of float32 in native order, one text after the other."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Embed:
    """Texts to vectors. `background` work is done beside everything else, at its own pace.

    `whole`: a text beyond the model's window is read in pieces; else only its beginning is, and what was cut is told.
    """

    call: int
    texts: tuple[str, ...]
    background: bool = False
    whole: bool = False


@dataclass(frozen=True)
class CallOff:
    """Nobody waits for this call any more."""

    call: int


@dataclass(frozen=True)
class Unload:
    """The embedding model is to leave the memory; the next text loads it again."""


ToEmbedder = Embed | CallOff | Unload


@dataclass(frozen=True)
class EmbeddedTexts:
    """`tokens` that were read of each text, and how many at its end did not fit the window and were `cut`."""

    call: int
    vectors: bytes
    dimensions: int
    tokens: tuple[int, ...]
    cut: tuple[int, ...]


@dataclass(frozen=True)
class EmbedFailed:
    """There is no embedding; asking again will not help unless the model's file changes.

    `text`: the model works, and one of the texts is what it can make nothing of.
    """

    call: int
    reason: str
    text: bool = False


@dataclass(frozen=True)
class Holds:
    """What the embedding model's weights take from now on, in bytes; 0 when it has left the memory."""

    weights: int


FromEmbedder = EmbeddedTexts | EmbedFailed | Holds
