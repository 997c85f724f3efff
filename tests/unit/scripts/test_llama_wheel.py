"""A wheel of llama.cpp belongs to one version, one set of flags, one CPU; it is compiled once."""

from pathlib import Path

import llama_sources
import llama_wheel
import pytest
from llama_wheel import Gpu

H100 = Gpu("NVIDIA H100 80GB HBM3", "90", "/usr/local/cuda/bin/nvcc")

# A source tree that pip builds without any network: its build backend lies in it and writes the flags it was given.
BACKEND = """
import os, zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "llama_cpp_python-0.0.1-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        info = "llama_cpp_python-0.0.1.dist-info/"
        wheel.writestr("flags.txt", os.environ["CMAKE_ARGS"])
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: llama_cpp_python\\nVersion: 0.0.1\\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", "")
    return name
"""
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def test_the_locked_version_is_read_from_the_lock_file(tmp_path):
    lock = tmp_path / "requirements.lock"
    lock.write_text("anyio==4.1\n    # via llama-cpp-python\nllama-cpp-python==0.3.36\n")
    assert llama_sources.locked_version(lock) == "0.3.36"


def test_a_lock_file_without_the_engine_is_refused_with_the_remedy(tmp_path):
    lock = tmp_path / "requirements.lock"
    lock.write_text("anyio==4.1\n")
    with pytest.raises(SystemExit, match="make lock"):
        llama_sources.locked_version(lock)


def test_a_gpu_is_read_with_the_number_that_cuda_has_for_its_architecture():
    assert llama_wheel.gpu_of("NVIDIA H100 80GB HBM3, 9.0\nNVIDIA T4, 7.5\n", H100.nvcc) == H100


def test_a_gpu_that_does_not_tell_its_architecture_is_still_a_gpu():
    assert llama_wheel.gpu_of("Tesla K80, [N/A]\n", None) == Gpu("Tesla K80", None, None)


def test_a_driver_tool_without_a_gpu_means_none():
    assert llama_wheel.gpu_of("\n", H100.nvcc) is None


def test_cuda_is_built_for_the_gpu_that_is_there():
    assert "-DGGML_CUDA=on" in llama_wheel.build_flags(H100)
    assert "-DCMAKE_CUDA_ARCHITECTURES=90" in llama_wheel.build_flags(H100)


@pytest.mark.parametrize("gpu", [None, Gpu("NVIDIA T4", "75", None)])
def test_without_gpu_or_without_nvcc_the_build_is_for_the_cpu(gpu):
    assert not any("CUDA" in flag for flag in llama_wheel.build_flags(gpu))


def test_amx_is_left_out_where_the_cpu_has_it():
    assert llama_wheel.NO_AMX in llama_wheel.build_flags(None, ["avx2", "amx_int8"])
    assert llama_wheel.NO_AMX not in llama_wheel.build_flags(None, ["avx2"])


def test_a_gpu_without_nvcc_is_told_which_package_to_install_before_anything_is_compiled():
    gpu = Gpu("NVIDIA T4", "75", None)
    said = " ".join(llama_wheel.announcement("0.3.36", gpu, llama_wheel.build_flags(gpu), cores=2))
    assert "NVIDIA T4, but no nvcc" in said
    assert "nvidia-cuda-toolkit" in said


def test_the_time_that_compiling_takes_is_said_for_cpu_and_cuda():
    cpu = " ".join(llama_wheel.announcement("0.3.36", None, llama_wheel.build_flags(None), cores=2))
    cuda = " ".join(llama_wheel.announcement("0.3.36", H100, llama_wheel.build_flags(H100), cores=2))
    assert "4 to 8 minutes" in cpu
    assert "40 to 70 minutes" in cuda


def test_wheels_for_cpu_and_gpu_and_for_versions_do_not_meet_under_one_key():
    keys = [llama_wheel.wheel_key(version, llama_wheel.build_flags(gpu)) for version in "12" for gpu in (None, H100)]
    assert len(set(keys)) == 4


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    tree = tmp_path / "sources"
    tree.mkdir()
    (tree / "backend.py").write_text(BACKEND)
    (tree / "pyproject.toml").write_text(PROJECT)
    return tree


def test_a_built_wheel_is_found_under_its_key_the_next_time(tmp_path, sources):
    folder = tmp_path / "wheels" / "key"
    made = llama_wheel.build(sources, ("-DA=1", "-DB=2"), folder)
    assert llama_wheel.wheel_in(folder) == made
    assert sorted(path.name for path in (tmp_path / "wheels").iterdir()) == ["key", "key.log"]


def test_a_failed_build_leaves_no_wheel_and_names_its_log(tmp_path, sources):
    (sources / "backend.py").write_text("def build_wheel(*a, **k): raise SystemExit('no compiler')\n")
    folder = tmp_path / "wheels" / "key"
    with pytest.raises(SystemExit, match=r"key\.log"):
        llama_wheel.build(sources, (), folder)
    assert llama_wheel.wheel_in(folder) is None
    assert "no compiler" in (tmp_path / "wheels" / "key.log").read_text()
