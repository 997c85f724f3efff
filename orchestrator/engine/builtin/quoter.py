"""The built-in model that quotes its context: constructed weights, an induction head, nothing learnt.

It continues a prompt with what followed the same words earlier in it, and stops where the quoted line ends. The more of
the last eight tokens agree, and the nearer they are, the better a place; of equal places the latest wins, so an amended
line beats its old version.

    residual stream, 12 parts of 24                      layer 1: two heads attend 1 and 2 tokens back and copy the
    0       the token                                    token there into parts 1 and 2.
    1 – 8   the tokens 1 to 8 back                       layer 2: two heads attend 3 and 6 tokens back and copy parts
    9       what the quote says next                     0–2 there into parts 3–5 and 6–8.
    10      constant, line end?, does the quote end?     layer 3: query = parts 0–7 here, key = parts 1–8 there: the place
    11      nothing                                      behind the same eight tokens. Its token goes into part 9.
                                                         output: the token vectors again.

Content is matched by rotary pairs that stand still, distance by pairs that turn: `rope_freqs.weight` switches rotation
off for 96 of 128 pairs. Sixteen turn fast and find a neighbour exactly; sixteen turn so slowly that over the whole window
their sine is a straight line: layer 3's score falls with distance, by SLOW nats from the nearest place to the farthest.

Exact at all positions up to n_ctx_train, with f16 or f32 KV: which of two places has more equal tokens; and that the
later of two equal ones wins if they are a thousandth of their position apart (f16 rounds the slow pairs), at least 16
tokens. Not exact: the first eight tokens of a prompt, which have fewer predecessors. It does not know what the text means:
a question without equal words in the context gets the least unlike line.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import numpy.typing as npt

from orchestrator.engine.builtin.shape import N_CTX_TRAIN, BuiltinShape, Tensor, Tokens, Weights

# The 4,096 words of the extended binary Golay code [24, 12, 8], as vectors: one for each token.
LENGTH = 24
WORDS = 4096
COMPONENT = 0.25
SQUARE = LENGTH * COMPONENT**2  # 1.5

_GENERATOR = 0b110001110101


PART = LENGTH
WINDOW = 8  # tokens that are compared
TOKEN, ANSWER, EXTRA = 0, (WINDOW + 1) * PART, (WINDOW + 2) * PART
CONSTANT, IS_LINE_END, ANSWER_ENDS = EXTRA, EXTRA + 1, EXTRA + 2

SHAPE = BuiltinShape(
    title="Lorekeep quoter (self-test: quotes its context, and nothing else)",
    layers=3,
    width=12 * PART,
    heads=2,
    kv_heads=1,
    head=256,
    feed_forward=32,
    rope_base=1.0,  # the factors alone say how fast a pair turns
    epsilon=1e-9,
)

STILL = WINDOW * PART // 2  # pairs that carry content: 96
# Found by search: at every distance from 1 to 131,072 the mean cosine of these sixteen stays below WORST_COSINE.
FAST = np.geomspace(0.3, 2.2, 16)
WORST_COSINE = 0.65
# A fifth of a radian over the window, no two alike, so that they are not all rounded at the same places.
SLOW_TURNS = np.linspace(0.8, 1.2, 16) * 0.2 / N_CTX_TRAIN
STANDS_STILL = 1e30

# Nats. A wrong token costs at least 2/3 of its weight (`vectors`). SLOW is below 2/3 of the last weight, so nearness never
# outweighs an eighth equal token. All are huge for the slow score's slope, 0.12 nats a token: eight tokens make the later
# place 2.6 times heavier, which is what the answer needs to stand out of a mixture of several versions.
NEIGHBOUR_LOSES = 30.0
CONTENT = (60e3, 52e3, 46e3, 40e3, 36e3, 32e3, 29e3, 26e3)
SLOW = 16e3
LOGIT = 60.0
# Keys carry a share of these scores, so that weights, queries and products stay below the end of f16.
CONTENT_KEY, SLOW_KEY = 16.0, 8.0

# Squares of the residual stream's length before each norm. They do not depend on the token: that is why the norms can be
# undone by constants. The last holds where the quote is of one mind.
EMBEDDED = SQUARE + 2
FETCHED_2 = EMBEDDED + 2 * SQUARE
FETCHED_8 = EMBEDDED + 8 * SQUARE
QUOTED = FETCHED_8 + SQUARE + 1

Matrix = Callable[[], Weights]


def tensors(vocabulary: Tokens) -> Iterator[Tensor]:
    """All tensors of the model, in file order. Shapes are (output, input), as llama.cpp stores matrices."""
    words = len(vocabulary.texts)
    yield "token_embd.weight", (words, SHAPE.width), partial(embeddings, vocabulary)
    yield "rope_freqs.weight", (SHAPE.head // 2,), rope_factors
    yield from fetching_layer(0, parts=1, back=(1, 2), norm=EMBEDDED)
    yield from fetching_layer(1, parts=3, back=(3, 6), norm=FETCHED_2)
    yield from layer(2, FETCHED_8, matching_queries, matching_keys, token_and_line_end, quoted)
    yield "output_norm.weight", (SHAPE.width,), partial(undo_norm, QUOTED)
    yield "output.weight", (words, SHAPE.width), partial(outputs, vocabulary)


def fetching_layer(number: int, parts: int, back: tuple[int, int], norm: float) -> Iterator[Tensor]:
    """Each head copies the first `parts` parts of the position so many tokens back to the parts that count from there."""
    return layer(
        number,
        norm,
        partial(looking_back, back),
        position_keys,
        partial(first_parts, parts),
        partial(put_at, parts, back),
    )


def layer(number: int, norm: float, q: Matrix, k: Matrix, v: Matrix, out: Matrix) -> Iterator[Tensor]:
    """An attention layer without feed-forward part; `norm` is the square of what it reads."""
    name, width, head, feed = f"blk.{number}.", SHAPE.width, SHAPE.head, SHAPE.feed_forward
    queries = SHAPE.heads * head
    yield name + "attn_norm.weight", (width,), partial(undo_norm, norm)
    yield name + "attn_q.weight", (queries, width), q
    yield name + "attn_k.weight", (head, width), k
    yield name + "attn_v.weight", (head, width), v
    yield name + "attn_output.weight", (width, queries), out
    yield name + "ffn_norm.weight", (width,), partial(np.ones, width)
    yield name + "ffn_gate.weight", (feed, width), partial(np.zeros, (feed, width))
    yield name + "ffn_up.weight", (feed, width), partial(np.zeros, (feed, width))
    yield name + "ffn_down.weight", (width, feed), partial(np.zeros, (width, feed))


# ---- words in and out ------------------------------------------------------------------------------------------------


def embeddings(vocabulary: Tokens) -> Weights:
    """A token's word, the constant, and +1 or −1 for a line end: of equal length for every token."""
    table = np.zeros((len(vocabulary.texts), SHAPE.width))
    table[:, TOKEN : TOKEN + PART] = vectors()
    table[:, CONSTANT] = 1
    table[:, IS_LINE_END] = -1
    table[ending(vocabulary), IS_LINE_END] = 1
    return table


def outputs(vocabulary: Tokens) -> Weights:
    """Logits: LOGIT for the token that the quote says next. A line end is never said: it ends the answer instead."""
    table = np.zeros((len(vocabulary.texts), SHAPE.width))
    table[:, ANSWER : ANSWER + PART] = vectors() * (LOGIT / SQUARE)
    table[ending(vocabulary)] = 0
    # (1 + flag) / 2 is the share of the quote's weight that stands on line ends.
    table[vocabulary.end, CONSTANT] = table[vocabulary.end, ANSWER_ENDS] = LOGIT / 2
    return table


def ending(vocabulary: Tokens) -> list[int]:
    return [*vocabulary.line_ends(), vocabulary.end]


def undo_norm(square: float) -> Weights:
    """RMS norm divides by sqrt(square / width); this weight multiplies it back."""
    return np.full(SHAPE.width, np.sqrt(square / SHAPE.width))


# ---- layers 1 and 2: fetch the tokens before -------------------------------------------------------------------------


def looking_back(back: tuple[int, int]) -> Weights:
    """Queries: the constant, in every fast pair turned back by as many steps as the head looks back."""
    matrix = np.zeros((SHAPE.heads, SHAPE.head, SHAPE.width))
    strength = per_score(NEIGHBOUR_LOSES / (1 - WORST_COSINE)) / len(FAST)
    for head, steps in enumerate(back):
        matrix[head, fast(), CONSTANT] = turned(-FAST * steps) * strength
    return matrix.reshape(-1, SHAPE.width)


def position_keys() -> Weights:
    matrix = np.zeros((SHAPE.head, SHAPE.width))
    matrix[fast(), CONSTANT] = turned(np.zeros(len(FAST)))
    return matrix


def first_parts(parts: int) -> Weights:
    matrix = np.zeros((SHAPE.head, SHAPE.width))
    matrix[: parts * PART, : parts * PART] = np.eye(parts * PART)
    return matrix


def put_at(parts: int, back: tuple[int, int]) -> Weights:
    matrix = np.zeros((SHAPE.width, SHAPE.heads, SHAPE.head))
    for head, steps in enumerate(back):
        at = steps * PART
        matrix[at : at + parts * PART, head, : parts * PART] = np.eye(parts * PART)
    return matrix.reshape(SHAPE.width, -1)


# ---- layer 3: find the place and quote it ----------------------------------------------------------------------------


def matching_queries() -> Weights:
    """Head 0 alone: our last eight tokens, weighted, and the slow pairs a quarter turn ahead, where the sine is a line."""
    matrix = np.zeros((SHAPE.heads, SHAPE.head, SHAPE.width))
    for place, nats in enumerate(CONTENT):
        at = place * PART
        matrix[0, at : at + PART, at : at + PART] = np.eye(PART) * per_score(nats) / SQUARE / CONTENT_KEY
    strength = per_score(SLOW) / np.sin(SLOW_TURNS * N_CTX_TRAIN).sum() / SLOW_KEY
    matrix[0, slow(), CONSTANT] = turned(np.full(len(SLOW_TURNS), np.pi / 2)) * strength
    return matrix.reshape(-1, SHAPE.width)


def matching_keys() -> Weights:
    """The eight tokens before a position stand in its parts 1 to 8."""
    matrix = np.zeros((SHAPE.head, SHAPE.width))
    matrix[: WINDOW * PART, PART : PART + WINDOW * PART] = np.eye(WINDOW * PART) * CONTENT_KEY
    matrix[slow(), CONSTANT] = turned(np.zeros(len(SLOW_TURNS))) * SLOW_KEY
    return matrix


def token_and_line_end() -> Weights:
    matrix = first_parts(1)
    matrix[PART, IS_LINE_END] = 1
    return matrix


def quoted() -> Weights:
    matrix = np.zeros((SHAPE.width, SHAPE.heads, SHAPE.head))
    matrix[ANSWER : ANSWER + PART, 0, :PART] = np.eye(PART)
    matrix[ANSWER_ENDS, 0, PART] = 1
    return matrix.reshape(SHAPE.width, -1)


# ---- rotary pairs ----------------------------------------------------------------------------------------------------


def rope_factors() -> Weights:
    """llama.cpp divides a position by these to get a pair's angle."""
    return np.concatenate([np.full(STILL, STANDS_STILL), 1 / FAST, 1 / SLOW_TURNS])


def fast() -> slice:
    return slice(2 * STILL, 2 * (STILL + len(FAST)))


def slow() -> slice:
    return slice(2 * (STILL + len(FAST)), SHAPE.head)


def turned(angles: Weights) -> Weights:
    """Unit vectors at these angles, one rotary pair after the other."""
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).reshape(-1)


def per_score(nats: float) -> float:
    """llama.cpp divides products of queries and keys by the root of the head's size."""
    return nats * float(np.sqrt(SHAPE.head))


def vectors() -> npt.NDArray[np.float32]:
    """The words of the Golay code, one for each token: shape (4096, 24), float32, every component +¼ or −¼.

    Any two words differ in at least 8 of 24 places. With components of ±¼ that makes the product of a vector with itself
    1.5 and with any other at most 0.5, so a token is told from every other one by a product alone. All components have the
    same size and are exact in f16, so equal tokens give bit-equal scores wherever they stand. Random vectors of this length
    would collide.

    Source: M. J. E. Golay, "Notes on digital coding" (1949); generator polynomial x^11+x^10+x^6+x^5+x^4+x^2+1 and a parity
    bit.
    """
    numbers = np.arange(WORDS, dtype=np.int64)
    words = np.zeros(WORDS, dtype=np.int64)
    for bit in range(12):
        words ^= np.where(numbers >> bit & 1, _GENERATOR << bit, 0)
    bits = words[:, None] >> np.arange(LENGTH - 1) & 1
    parity = bits.sum(axis=1, keepdims=True) & 1
    signs = 1 - 2 * np.concatenate([bits, parity], axis=1)
    return (signs * COMPONENT).astype(np.float32)
