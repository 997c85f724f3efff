"""A package whose own module runs when a name of it is first asked for, not when a module below it is imported.

For packages of others whose `__init__` gathers far more than the one module that is used. Knows none of them.
"""

import sys
from importlib.util import find_spec, module_from_spec


def late(name: str) -> None:
    """Does nothing where the package is not there or was imported already. `name` is a top-level one."""
    spec = find_spec(name) if name not in sys.modules else None
    if spec is None or spec.loader is None or not spec.submodule_search_locations:
        return
    module, loader = module_from_spec(spec), spec.loader

    def asked_for(attribute: str) -> object:
        if attribute.startswith("__"):  # asked of every module by who looks through them all
            raise AttributeError(attribute)
        if "__getattr__" in vars(module):
            del vars(module)["__getattr__"]
            loader.exec_module(module)
        return getattr(module, attribute)

    vars(module)["__getattr__"] = asked_for
    sys.modules[name] = module
