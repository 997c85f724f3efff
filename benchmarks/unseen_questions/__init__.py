"""Questions that nobody has read, made by rule from large repositories with deep test trees: see README.md."""
