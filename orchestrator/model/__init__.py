"""Model files: which are at hand, what their headers say, taking one into use and removing one. Loads none."""
