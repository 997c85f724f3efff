"""The 4,096 words of the extended binary Golay code [24, 12, 8], as vectors: one for each token of the built-in models.

Any two words differ in at least 8 of 24 places. With components of ±¼ that makes the product of a vector with itself 1.5
and with any other at most 0.5, so a token is told from every other one by a product alone. All components have the same
size and are exact in f16, so equal tokens give bit-equal scores wherever they stand. Random vectors of this length would
collide.

Source: M. J. E. Golay, "Notes on digital coding" (1949); generator polynomial x^11+x^10+x^6+x^5+x^4+x^2+1 and a parity bit.
"""

import numpy as np
import numpy.typing as npt

LENGTH = 24
WORDS = 4096
COMPONENT = 0.25
SQUARE = LENGTH * COMPONENT**2  # 1.5

_GENERATOR = 0b110001110101


def vectors() -> npt.NDArray[np.float32]:
    """Shape (4096, 24), float32, every component +¼ or −¼."""
    numbers = np.arange(WORDS, dtype=np.int64)
    words = np.zeros(WORDS, dtype=np.int64)
    for bit in range(12):
        words ^= np.where(numbers >> bit & 1, _GENERATOR << bit, 0)
    bits = words[:, None] >> np.arange(LENGTH - 1) & 1
    parity = bits.sum(axis=1, keepdims=True) & 1
    signs = 1 - 2 * np.concatenate([bits, parity], axis=1)
    return (signs * COMPONENT).astype(np.float32)
