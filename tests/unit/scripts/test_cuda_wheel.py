"""What `make cuda` says of the wheel that it compiled."""

import zipfile
from pathlib import Path

import cuda_wheel
import pytest

LOG = """
[1/3] /usr/bin/nvcc -x cu -c a.cu -o ggml/src/ggml-cuda/CMakeFiles/ggml-cuda.dir/a.cu.o
[2/3] /usr/bin/nvcc -x cu -c fattn.cu -o ggml/src/ggml-cuda/CMakeFiles/ggml-cuda.dir/fattn.cu.o
fattn.cu(12): warning #177-D: variable "n" was declared but never referenced
[3/3] /usr/bin/c++ -c b.cpp -o b.cpp.o
"""


def wheel_with(folder: Path, *names: str) -> Path:
    wheel = folder / "llama_cpp_python-1-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in names:
            archive.writestr(f"llama_cpp/lib/{name}", bytes(2_000_000))
    return wheel


def test_cuda_files_and_warnings_are_counted_in_the_compilers_words(tmp_path: Path) -> None:
    said = cuda_wheel.summary(wheel_with(tmp_path, "libggml-cuda.so.0"), LOG, "13.0", "90", 600)
    assert "CUDA 13.0, architecture 90, 10 min" in said
    assert "2 CUDA files compiled, warnings: 1" in said
    assert "libggml-cuda.so has 2 MB" in said


def test_a_wheel_without_cuda_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="compiled without CUDA"):
        cuda_wheel.summary(wheel_with(tmp_path, "libggml-cpu.so.0"), LOG, "13.0", "90", 600)
