"""What the model is told in one turn: which codex, which strategy, which evidence, and the tokens of it."""
