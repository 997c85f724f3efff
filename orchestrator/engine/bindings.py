"""llama.cpp's functions, as llama-cpp-python declares them: `from orchestrator.engine.bindings import lib`.

That package's `__init__` imports an engine, templates and a server's types of its own, a fifth of what the start of a child
takes. It is left unrun.
"""

import sys
from importlib.util import find_spec, module_from_spec


def leave_unrun(package: str) -> None:
    """Who imports it gets the functions, and the rest once a name of that is asked for."""
    spec = find_spec(package) if package not in sys.modules else None
    if spec is None or spec.loader is None:
        return
    module, loader = module_from_spec(spec), spec.loader

    def asked_for(name: str) -> object:
        if name.startswith("__"):  # asked of every module by who looks through them all
            raise AttributeError(name)
        if name in vars(lib):
            return vars(lib)[name]
        del vars(module)["__getattr__"]
        loader.exec_module(module)
        return getattr(module, name)

    vars(module)["__getattr__"] = asked_for
    sys.modules[package] = module


leave_unrun("llama_cpp")
import llama_cpp.llama_cpp as lib  # noqa: E402

__all__ = ["lib"]
