"""Relevance: which parts of the context a turn needs. Pure, but for the files of its rules: no model, no clock."""
