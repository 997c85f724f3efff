"""The printable signs that byte-level vocabularies write bytes with: 256 bytes, 256 characters, none a space or control.

Source: the byte table of GPT-2's tokenizer, which every `gpt2` vocabulary in a GGUF file uses.
"""


def _table() -> dict[int, str]:
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}


BYTE_TO_SIGN = _table()
SIGN_TO_BYTE = {sign: byte for byte, sign in BYTE_TO_SIGN.items()}


def to_bytes(signs: str) -> bytes:
    """The bytes that a token's text stands for. Raises KeyError for a text that is not written in this alphabet."""
    return bytes(map(SIGN_TO_BYTE.__getitem__, signs))  # half a generator's time: a vocabulary has a million signs
