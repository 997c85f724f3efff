"""The typography that block writers share: headings and clean endings."""


def section(heading: str, body: str) -> str:
    """A Markdown section that ends with an empty line."""
    return f"# {heading}\n{ended(body)}\n"


def passage(heading: str, body: str) -> str:
    """A quoted text under a heading line that code seldom holds. The text stays whole; it only gains a last newline."""
    return f"=== {heading} ===\n{ended(body)}\n"


def ended(text: str) -> str:
    """The text with a newline at its end; an empty one stays empty."""
    return text if not text or text.endswith("\n") else text + "\n"


def counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
