"""Prompts are composed with a tiny vocabulary and a plain template."""

from support.composing import a_turn, assembler, composer, encoder, marks, tokens  # noqa: F401
