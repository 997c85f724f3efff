"""Relevance: which parts of the context a turn needs. Pure: no model, no I/O, no clock."""
