"""The header reader: whole files, damaged files, foreign files, shards."""

import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from governor.gguf import BY_NUMBER, ArrayAt, GgufError, read_gguf


def written(path: Path, **strings: object) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_float32("llama.rope.freq_base", 500_000.0)
    writer.add_array("tokenizer.ggml.tokens", [f"token {number}" for number in range(10_000)])
    writer.add_array("tokenizer.ggml.scores", [float(number) for number in range(10_000)])
    writer.add_array("llama.attention.head_count_kv", [4, 8])
    writer.add_tensor("token_embd.weight", np.zeros((10, 64), dtype=np.float32))
    writer.add_tensor("output.weight", np.zeros((3, 34), dtype=np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("gguf") / "whole.gguf")


def test_metadata_and_tensors_are_what_was_written(whole: Path) -> None:
    header = read_gguf(whole)
    assert header.text("general.architecture") == "llama"
    assert header.number("llama.block_count") == 2
    assert header.metadata["llama.rope.freq_base"] == 500_000.0
    assert header.metadata["llama.attention.head_count_kv"] == (4, 8)
    assert [(tensor.name, tensor.shape, tensor.kind.name, tensor.size) for tensor in header.tensors] == [
        ("token_embd.weight", (64, 10), "f32", 2_560),
        ("output.weight", (32, 3), "q8_0", 102),
    ]
    assert header.size == whole.stat().st_size


def test_long_arrays_stay_in_the_file_and_are_read_on_request(whole: Path) -> None:
    header = read_gguf(whole)
    assert isinstance(header.metadata["tokenizer.ggml.tokens"], ArrayAt)
    assert header.array("tokenizer.ggml.tokens")[9_999] == "token 9999"
    assert header.array("tokenizer.ggml.scores")[17] == 17.0
    assert header.array("llama.attention.head_count_kv") == (4, 8)


@pytest.mark.parametrize("name", ["bert-bge", "phi-3", "llama-spm"])
def test_a_real_vocabulary_reads_as_the_formats_own_package_reads_it(llama_sources: Path, name: str) -> None:
    path = llama_sources / "models" / f"ggml-vocab-{name}.gguf"
    header, foreign = read_gguf(path), read_by_package(path)
    assert list(header.metadata) == [field for field in foreign.fields if not field.startswith("GGUF.")]
    tokens = foreign.fields["tokenizer.ggml.tokens"]
    ours = header.array("tokenizer.ggml.tokens")
    assert len(ours) == len(tokens.data)
    assert ours[1_000] == bytes(tokens.parts[tokens.data[1_000]]).decode()


def read_by_package(path: Path) -> gguf.GGUFReader:
    """From a plain array: three of a memory map's slices a token take most of the package's time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "memmap", lambda path, mode: np.fromfile(path, np.uint8))
        return gguf.GGUFReader(path)


def test_every_real_vocabulary_can_be_read(llama_sources: Path) -> None:
    paths = sorted((llama_sources / "models").glob("ggml-vocab-*.gguf"))
    assert len(paths) > 10
    assert all(read_gguf(path).text("general.architecture") for path in paths)


def test_block_sizes_agree_with_the_formats_own_package() -> None:
    # the package gives q8_1 with two full-precision scales, which ggml dropped; it is no type of a file
    foreign = {kind.value: sizes for kind, sizes in gguf.GGML_QUANT_SIZES.items() if kind.name != "Q8_1"}
    ours = {number: (kind.values, kind.size) for number, kind in BY_NUMBER.items() if number in foreign}
    assert ours == {number: sizes for number, sizes in foreign.items() if number in BY_NUMBER}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "0 bytes are too few"),
        (b"GGUF", "4 bytes are too few"),
        (b"PK\x03\x04" + bytes(60), "is no GGUF: it begins with 50 4b 03 04"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "GGUF version 1; versions 2 and 3"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + bytes(100), "GGUF version 0; versions 2 and 3"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 40, 0), "claims 1,099,511,627,776 tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 60), "a string of"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q1sI", 1, b"k", 99), "metadata type 99"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q1sIIQ", 1, b"k", 9, 9, 5), "an array of arrays"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q1sIIQ", 1, b"k", 9, 4, 1 << 60), "is cut off"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q1sIIQ", 1, b"k", 9, 8, 1 << 60), "is cut off"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q1sI", 1, b"t", 9), "has 9 dimensions"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q1sIQIQ", 1, b"t", 1, 32, 77, 0), "has type 77"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q1sIQIQ", 1, b"t", 1, 33, 8, 0), "q8_0 blocks"),
    ],
)
def test_what_is_no_gguf_is_refused_with_its_reason_and_byte(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(GgufError, match=said.replace("(", r"\(")) as refused:
        read_gguf(path)
    assert refused.value.path == path
    assert refused.value.offset is not None
    assert 0 <= refused.value.offset <= max(len(content), 8)


def test_a_missing_file_and_a_folder_are_refused_by_name(tmp_path: Path) -> None:
    for path in (tmp_path / "none.gguf", tmp_path):
        with pytest.raises(GgufError, match="cannot be read"):
            read_gguf(path)


def test_data_shorter_than_the_tensor_table_says_is_told_with_the_missing_bytes(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "short.gguf"
    path.write_bytes(whole.read_bytes()[:-40])
    with pytest.raises(GgufError, match=r"is cut off, .*: tensor 'output.weight' lacks its last \d+ bytes"):
        read_gguf(path)


@given(st.data())
def test_a_damaged_header_is_read_or_refused_and_never_anything_else(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(whole.read_bytes()[:400])
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(bytes(content) + whole.read_bytes()[400:])
    with suppress(GgufError):  # any other exception fails the test
        read_gguf(path)


@given(cut=st.integers(0, 2_000))
def test_a_header_cut_at_any_byte_is_refused(whole: Path, tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.gguf"
    path.write_bytes(whole.read_bytes()[:cut])
    with pytest.raises(GgufError):
        read_gguf(path)


# ---- shards --------------------------------------------------------------------------------------------------------


def shard(folder: Path, no: int, count: int, tensors: int, **changed: Any) -> Path:
    path = folder / f"model-{no + 1:05d}-of-{count:05d}.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint16("split.no", changed.get("says", no))
    writer.add_uint16("split.count", count)
    writer.add_int32("split.tensors.count", changed.get("promised", tensors))
    writer.add_tensor(f"blk.{no}.attn_q.weight", np.zeros((4, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_all_shards_are_read_through_the_first(tmp_path: Path) -> None:
    paths = [shard(tmp_path, no, 3, 3) for no in range(3)]
    header = read_gguf(paths[0])
    assert header.paths == tuple(paths)
    assert [tensor.name for tensor in header.tensors] == [
        "blk.0.attn_q.weight",
        "blk.1.attn_q.weight",
        "blk.2.attn_q.weight",
    ]
    assert header.size == sum(path.stat().st_size for path in paths)


def test_another_shard_than_the_first_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    paths = [shard(tmp_path, no, 2, 2) for no in range(2)]
    with pytest.raises(GgufError, match=r"give the one named model-00001-of-00002\.gguf"):
        read_gguf(paths[1])


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    first = shard(tmp_path, 0, 2, 2)
    with pytest.raises(GgufError, match=r"model-00002-of-00002.gguf: cannot be read"):
        read_gguf(first)


def test_a_shard_of_another_split_and_a_missing_tensor_are_refused(tmp_path: Path) -> None:
    first = shard(tmp_path, 0, 2, 2)
    shard(tmp_path, 1, 2, 2, says=0)
    with pytest.raises(GgufError, match="is not shard 2 of 2"):
        read_gguf(first)
    first = shard(tmp_path, 0, 2, 2, promised=5)
    shard(tmp_path, 1, 2, 2)
    with pytest.raises(GgufError, match="promises 5 tensors, its shards hold 2"):
        read_gguf(first)


def test_a_tiny_model_of_each_recipe_is_read(tiny_model: Callable[..., Path]) -> None:
    assert read_gguf(tiny_model("qwen2")).text("general.architecture") == "qwen2"
