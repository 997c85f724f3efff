"""llama.cpp's log as lines; and which compiled llama.cpp it is: by what lies in its folder, not by names of files."""

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.engine.llama.native import CONTINUES, DETAIL, WHOLE, LogLines, digest, digest_of, identity


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "libllama.so").write_bytes(b"graphs of models")
    (tmp_path / "libggml-cpu.so").write_bytes(b"kernels")
    return tmp_path


def test_the_loaded_library_is_identified_and_its_files_are_found():
    assert len(identity()) == 64
    assert identity() != digest_of(Path(__file__).parent)


def test_the_same_code_under_the_names_of_other_versions_is_the_same_library(folder: Path):
    before = digest_of(folder)
    (folder / "libllama.so.0.5.0").write_bytes(b"graphs of models")
    (folder / "README").write_text("not code")
    assert digest_of(folder) == before


@pytest.mark.parametrize("name", ["libllama.so", "libggml-cpu.so"])
def test_the_same_version_compiled_in_another_way_is_another_library(folder: Path, name: str):
    before, code = digest_of(folder), (folder / name).read_bytes()
    (folder / name).write_bytes(code[:-1] + b"!")
    assert digest_of(folder) != before


def test_kernels_for_a_gpu_make_another_library(folder: Path):
    before = digest_of(folder)
    (folder / "libggml-cuda.so").write_bytes(b"more kernels")
    assert digest_of(folder) != before


def test_of_a_very_large_file_size_and_samples_count(tmp_path: Path):
    path, digests = tmp_path / "libggml-cuda.so", set()
    with path.open("wb") as file:
        for size in (WHOLE + 1, WHOLE + 2):
            file.truncate(size)
            digests.add(digest(path))
        file.seek(WHOLE // 2)
        file.write(b"kernel")
        file.flush()
        digests.add(digest(path))
    assert len(digests) == 3


def test_what_two_threads_log_at_once_stays_two_lines(caplog: pytest.LogCaptureFixture):
    lines = LogLines()
    with caplog.at_level(logging.DEBUG, "llama.cpp"), ThreadPoolExecutor(1) as other:
        lines(2, b"a context ")
        other.submit(lines, 4, b"an error\n").result()
        lines(CONTINUES, b"of 512 tokens\n")
        assert other.submit(lambda: lines.last_error).result() == "an error"
    assert [record.getMessage() for record in caplog.records] == ["an error", "a context of 512 tokens"]
    assert lines.last_error == ""


def test_details_are_logged_where_they_are_wanted_and_dropped_with_what_continues_them_elsewhere(
    caplog: pytest.LogCaptureFixture,
):
    lines = LogLines()
    for wanted in (logging.INFO, logging.DEBUG):
        with caplog.at_level(wanted, "llama.cpp"):
            lines(DETAIL, b"a tensor ")
            lines(CONTINUES, b"of a graph\n")
            lines(3, b"a warning\n")
    assert [record.getMessage() for record in caplog.records] == ["a warning", "a tensor of a graph", "a warning"]
