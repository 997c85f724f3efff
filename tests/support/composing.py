"""Prompts for tests: an encoder with a tiny vocabulary, a chat template, builders with defaults."""

from collections.abc import Callable

import pytest
from support.word_encoder import CONTROL, WordEncoder

from formatters.context import CodexPiece, CodexView, IdentityView, SigilView, StateView, TurnContext
from formatters.registry import builtin
from formatters.template import ChatTemplate, probe
from orchestrator.prompt.composing import Assembler, Composer, TokenCache

TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{{ '<|im_start|>assistant\\n' }}"
)


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


@pytest.fixture
def a_turn() -> Callable[..., TurnContext]:
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
