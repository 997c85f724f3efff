"""Everything but answering: codices are loaded and searched, conversations listed, renamed and forgotten."""
