"""The files of the built-in models: what they hold, and what happens when they cannot be made."""

import hashlib
import itertools
import shutil
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gguf
import numpy as np
import pytest

from orchestrator.engine.builtin import BUILTINS, BuiltinError, ensure, files, quoter, shape
from orchestrator.engine.builtin.alphabet import to_bytes
from orchestrator.engine.builtin.shape import tokens


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_model_made_twice_has_the_same_bytes(tmp_path: Path) -> None:
    first, second = (ensure("builtin:quoter", tmp_path / name) for name in "ab")
    assert digest(first) == digest(second)


def test_the_quoters_tensors_have_the_shapes_its_header_says(quoter_model: Path) -> None:
    reader = gguf.GGUFReader(quoter_model)
    field = {name: reader.fields[f"llama.{name}"].contents() for name in ("block_count", "context_length")}
    assert field == {"block_count": 3, "context_length": 131072}
    shapes = {tensor.name: tuple(map(int, tensor.shape)) for tensor in reader.tensors}
    assert shapes["token_embd.weight"] == (288, 4096)
    assert shapes["blk.2.attn_k.weight"] == (288, 256)
    assert len(shapes) == 2 + 3 * 9 + 2


def test_noise_s_has_the_size_and_the_kv_of_the_model_that_was_measured(models: Path) -> None:
    path = ensure("builtin:noise-s", models)
    assert path.stat().st_size == pytest.approx(147e6, rel=0.02)
    assert shape.SMALL.kv_bytes_per_token() == 4096
    assert quoter.SHAPE.kv_bytes_per_token() == 3072


def test_noise_m_is_four_times_as_large() -> None:
    small, medium = (
        sum(np.prod(size) for _, size, _ in shape.tensors(one, tokens())) for one in (shape.SMALL, shape.MEDIUM)
    )
    assert medium / small == pytest.approx(4, rel=0.03)


def test_random_weights_come_from_their_names_alone_and_have_the_variance_of_their_width() -> None:
    weights = shape.draw("blk.0.attn_q.weight", 256, 64)
    assert hashlib.sha256(weights.tobytes()).hexdigest()[:16] == "a997d2386b50a72a"
    assert float(weights.astype(np.float64).var()) == pytest.approx(1 / 64, rel=0.03)


def test_the_golay_words_are_told_apart_by_their_products() -> None:
    vectors = quoter.vectors()
    products = vectors @ vectors.T
    others = products[~np.eye(quoter.WORDS, dtype=bool)]
    assert (np.diagonal(products) == quoter.SQUARE).all()
    assert others.max() == quoter.SQUARE / 3


def test_no_two_tokens_are_the_same_text_and_none_joins_a_line_end_with_anything_else() -> None:
    texts = [to_bytes(text) for text in tokens().texts[:-1]]
    assert len(set(texts)) == len(texts) == quoter.WORDS - 1
    mixed = [text for text in texts if text.strip(b"\r\n") and set(text) & set(b"\r\n")]
    assert mixed == []


def test_several_builders_at_once_make_one_whole_file(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: ensure("builtin:quoter", tmp_path), range(8)))
    assert len(set(paths)) == 1
    assert [path.name for path in tmp_path.glob("*.part")] == []


def test_what_a_dead_builder_left_is_written_over(tmp_path: Path) -> None:
    good = ensure("builtin:quoter", tmp_path)
    wanted = digest(good)
    good.unlink()
    good.with_suffix(".part").write_bytes(b"x" * 20_000_000)
    assert digest(ensure("builtin:quoter", tmp_path)) == wanted


@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied", "no sum", "other sum"])
def test_a_file_that_was_damaged_since_is_made_anew(tmp_path: Path, damage: str) -> None:
    good = ensure("builtin:quoter", tmp_path)
    wanted, body = digest(good), bytearray(good.read_bytes())
    if damage == "cut":
        good.write_bytes(body[:-4096])
    elif damage == "flipped":
        body[len(body) // 2] ^= 0xFF
        good.write_bytes(body)
    elif damage == "emptied":
        good.write_bytes(b"")
    elif damage == "no sum":
        files.sum_of(good).unlink()
    else:
        files.sum_of(good).write_bytes(b"\xff\xfe")
    assert digest(ensure("builtin:quoter", tmp_path)) == wanted
    assert files.sound(good)


def test_a_sound_file_is_not_made_again(tmp_path: Path) -> None:
    before = ensure("builtin:quoter", tmp_path).stat()
    assert ensure("builtin:quoter", tmp_path).stat().st_ino == before.st_ino


def test_a_full_disk_is_named_with_its_figures_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1 << 30, 1 << 30, 1 << 20))
    with pytest.raises(BuiltinError, match=r"builtin:quoter needs about 8 MiB in .*, and 1 MiB are free there"):
        ensure("builtin:quoter", tmp_path)
    assert list(tmp_path.glob("*.gguf")) == []


def test_a_write_that_fails_in_the_middle_is_an_error_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "sync", full)
    with pytest.raises(BuiltinError, match="No space left on device"):
        ensure("builtin:quoter", tmp_path)
    assert list(itertools.chain(tmp_path.glob("*.gguf"), tmp_path.glob("*.part"))) == []


def test_an_unknown_name_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(BuiltinError, match="builtin:noise-m, builtin:noise-s, builtin:quoter, builtin:words"):
        ensure("builtin:oracle", tmp_path)
    assert set(BUILTINS) == {"builtin:quoter", "builtin:noise-s", "builtin:noise-m", "builtin:words"}
