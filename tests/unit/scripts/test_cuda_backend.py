"""What `make cuda` says of what it compiled."""

import cuda_backend

LOG = """
[1/3] /usr/bin/nvcc -x cu -c a.cu -o ggml/src/ggml-cuda/CMakeFiles/ggml-cuda.dir/a.cu.o
[2/3] /usr/bin/nvcc -x cu -c fattn.cu -o ggml/src/ggml-cuda/CMakeFiles/ggml-cuda.dir/fattn.cu.o
fattn.cu(12): warning #177-D: variable "n" was declared but never referenced
[3/3] /usr/bin/c++ -c b.cpp -o b.cpp.o
"""


def test_cuda_files_and_warnings_are_counted_in_the_compilers_words() -> None:
    said = cuda_backend.summary(LOG, "13.0", "90", 2_000_000)
    assert "CUDA 13.0, architecture 90: 2 CUDA files compiled, warnings: 1" in said
    assert "libggml-cuda.so has 2 MB" in said
