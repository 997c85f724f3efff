"""What a type of KV changes is kept by model and type, and shown; a file that is damaged is empty."""

from pathlib import Path

import pytest
from support.shapes import LLAMA_8B, shape

from orchestrator.model.kv_losses import KV_LOSSES, KvLosses
from orchestrator.wire.answers import KvLoss

LOSS = KvLoss(tokens=2048, mean=0.001, worst=0.01, changed=0.004, codex="demo")
MODEL = Path("/models/llama.gguf")


def test_it_is_found_again_by_model_and_type_wherever_the_file_lies(tmp_path: Path) -> None:
    losses = KvLosses(tmp_path)
    assert losses.of(MODEL, LLAMA_8B) == {}
    losses.keep(MODEL, LLAMA_8B, "q8_0", LOSS)
    losses.keep(MODEL, LLAMA_8B, "q4_0", LOSS.model_copy(update={"mean": 0.1}))
    again = KvLosses(tmp_path)
    assert again.of(Path("/elsewhere/llama.gguf"), LLAMA_8B)["q8_0"] == LOSS
    assert set(again.of(MODEL, LLAMA_8B)) == {"q8_0", "q4_0"}
    assert again.of(MODEL, shape(input=7)) == {}, "other weights under the same name"


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"llama.gguf 1": 3}', b'{"K": {"q8_0": {"mean": "x"}}}'])
def test_a_damaged_file_says_nothing_and_is_written_anew(content: bytes, tmp_path: Path) -> None:
    key = f"llama.gguf {LLAMA_8B.weights}".encode()
    (tmp_path / KV_LOSSES).write_bytes(content.replace(b"K", key).replace(b"llama.gguf 1", key))
    losses = KvLosses(tmp_path)
    assert losses.of(MODEL, LLAMA_8B) == {}
    losses.keep(MODEL, LLAMA_8B, "q8_0", LOSS)
    assert losses.of(MODEL, LLAMA_8B) == {"q8_0": LOSS}
