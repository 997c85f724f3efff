"""Law: whatever is asked in whatever order, over restarts and trims, the store answers as the tokenizer would."""

from array import array
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from support.examples import few

from codex.catalog.tokens import TokenStore

TEXTS = st.lists(st.text(alphabet="ab \ud800é", max_size=4), max_size=5)


class Letters:
    def __init__(self, name: str) -> None:
        self.name = name

    def encode_many(self, texts: Sequence[str]) -> list["array[int]"]:
        shift = int(self.name)
        return [array("I", [ord(letter) + shift for letter in text]) for text in texts]


TOKENIZERS = st.sampled_from([Letters("0"), Letters("1000")])


class StoreAgainstTokenizer(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.path = Path(self.folder.name) / "tokens.sqlite"
        self.store = TokenStore(self.path)

    @rule(tokenizer=TOKENIZERS, texts=TEXTS)
    def ids_are_those_of_the_tokenizer(self, tokenizer: Letters, texts: list[str]) -> None:
        assert self.store.ids(tokenizer, texts) == tokenizer.encode_many(texts)

    @rule(tokenizer=TOKENIZERS, texts=TEXTS)
    def counts_are_those_of_the_tokenizer(self, tokenizer: Letters, texts: list[str]) -> None:
        assert self.store.counts(tokenizer, texts) == [len(ids) for ids in tokenizer.encode_many(texts)]

    @rule(limit=st.integers(0, 40))
    def a_trim_bounds_the_bytes(self, limit: int) -> None:
        self.store.trim(limit)
        assert self.store.bytes() <= limit

    @rule()
    def a_restart_changes_nothing(self) -> None:
        self.store.close()
        self.store = TokenStore(self.path)

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


TestStoreAgainstTokenizer = StoreAgainstTokenizer.TestCase
TestStoreAgainstTokenizer.settings = settings(few(8), stateful_step_count=12)
