"""What the tests of this room share: an encoder with a tiny vocabulary, a chat template, builders with defaults."""

import re
from array import array
from collections.abc import Callable, Sequence

import pytest

from formatters.context import CodexPiece, CodexView, IdentityView, SigilView, StateView, TurnContext
from formatters.probe import probe
from formatters.registry import builtin
from formatters.template import ChatTemplate
from orchestrator.context.assembly import Assembler
from orchestrator.context.composing import Composer
from orchestrator.context.tokens import TokenCache
from orchestrator.engine.messages import Ids

TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{{ '<|im_start|>assistant\\n' }}"
)
CONTROL = {"<|im_start|>": 1_000, "<|im_end|>": 1_001}
_TOKEN = re.compile(r"<\|im_start\|>|<\|im_end\|>|\w+|\W", re.DOTALL)


class WordEncoder:
    """Words and single signs as ids, the same in every process; markers become control ids only when they may."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, bool]] = []

    async def encode(self, texts: Sequence[str], control: bool) -> list[Ids]:
        self.calls.append((len(texts), control))
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


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def marks() -> dict[str, int]:
    """The vocabulary's control tokens."""
    return CONTROL


@pytest.fixture
def encoder() -> WordEncoder:
    return WordEncoder()


@pytest.fixture
def tokens(encoder: WordEncoder) -> TokenCache:
    return TokenCache(encoder)


@pytest.fixture
def assembler(tokens: TokenCache) -> Assembler:
    return Assembler(tokens, "root")


@pytest.fixture
def composer(assembler: Assembler) -> Composer:
    template = ChatTemplate(TEMPLATE)
    return Composer(builtin(), template, probe(template), assembler)


@pytest.fixture(name="a_turn")
def builder_of_turns() -> Callable[..., TurnContext]:
    return _turn


def _turn(query: str = "Where is main?", scopes: frozenset[str] = frozenset({"admin"}), **parts: object) -> TurnContext:
    pieces = (CodexPiece(path="a.py", text="def main():\n    pass\n"), CodexPiece(path="b.py", text="x = 1\n"))
    defaults: dict[str, object] = {
        "identity": IdentityView(name="keeper", text="You keep the lore."),
        "sigil": SigilView(name="owner", uid=1000, scopes=scopes),
        "codex": CodexView(name="demo", pieces=pieces),
        "state": StateView(),
    }
    return TurnContext.model_validate({**defaults, "query": query, **parts})
