"""llama-cpp-python's own package runs for who asks for what it gathers, and in no child."""

import subprocess
import sys

ASKED = """
import sys
import orchestrator.engine.child.worker, orchestrator.engine.llama.backend, orchestrator.engine.embedding.llama
assert "llama_cpp.llama_cpp" in sys.modules
assert not {"llama_cpp.llama", "jinja2"} & sys.modules.keys()
import llama_cpp
import llguidance.llamacpp
assert llama_cpp.llama_decode is llama_cpp.llama_cpp.llama_decode
assert not hasattr(llama_cpp, "__nothing__")
assert "llama_cpp.llama" not in sys.modules
assert llama_cpp.Llama.__module__ == "llama_cpp.llama"
assert not hasattr(llama_cpp, "nothing")
"""


def test_the_engine_is_imported_without_the_one_that_the_bindings_bring_and_who_asks_for_that_has_it() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", ASKED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
