"""The models that Lorekeep makes itself: one that quotes its context, and two of random weights."""

from orchestrator.engine.builtin.files import BUILTINS, Builtin, BuiltinError, ensure, is_builtin

__all__ = ["BUILTINS", "Builtin", "BuiltinError", "ensure", "is_builtin"]
