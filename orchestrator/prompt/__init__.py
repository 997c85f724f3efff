"""One turn's prompt, decided by pure functions: codex, coverage, strategy, evidence, budget, and its token ids."""
