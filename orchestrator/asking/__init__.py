"""One question, from its arrival to its answer and what is kept of it."""
