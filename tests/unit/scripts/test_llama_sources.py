"""The sources of llama.cpp are fetched whole or not at all."""

import io
import tarfile

import llama_sources


def archive(folder, name="llama_cpp_python-9.9"):
    path = folder / f"{name}.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        entry = tarfile.TarInfo(f"{name}/vendor/llama.cpp/README")
        entry.size = 4
        tar.addfile(entry, io.BytesIO(b"text"))
    return path


def test_an_archive_unpacks_to_the_folder_named_like_it(tmp_path):
    tree = llama_sources.unpack(archive(tmp_path), tmp_path)
    assert (tree / "vendor" / "llama.cpp" / "README").read_text() == "text"


def test_a_second_fetch_that_comes_late_keeps_the_first_tree(tmp_path):
    first = tmp_path / "9.9"
    first.mkdir()
    (first / "whole").touch()
    late = llama_sources.unpack(archive(tmp_path), tmp_path)
    assert llama_sources.move_into_place(late, first) == first
    assert (first / "whole").exists()


def test_sources_that_are_there_are_not_fetched_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    there = tmp_path / "lorekeep-build" / "sources" / "9.9"
    there.mkdir(parents=True)
    assert llama_sources.sources("9.9") == there


def test_the_locked_sources_hold_what_tests_and_benchmarks_need(llama_sources):
    vendor = llama_sources
    assert (vendor / "CMakeLists.txt").exists()
    assert list((vendor / "models").glob("ggml-vocab-*.gguf"))
    assert list((vendor / "models" / "templates").glob("*.jinja"))
