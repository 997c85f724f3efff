"""ggml's number formats: how many values make a block, and how many bytes it takes.

Source: `type_traits` in ggml.c and the block structs in ggml-common.h of llama.cpp 0c1e5709. Knows no file and no model.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class TensorType:
    """A row of n values takes n / values * size bytes; n must be a whole number of blocks."""

    number: int
    name: str
    values: int
    size: int

    def row_bytes(self, values: int) -> int:
        assert values % self.values == 0, f"{values} values are no whole number of {self.name} blocks of {self.values}"
        return values // self.values * self.size


_TABLE = (
    (0, "f32", 1, 4),
    (1, "f16", 1, 2),
    (2, "q4_0", 32, 18),
    (3, "q4_1", 32, 20),
    (6, "q5_0", 32, 22),
    (7, "q5_1", 32, 24),
    (8, "q8_0", 32, 34),
    (9, "q8_1", 32, 36),
    (10, "q2_k", 256, 84),
    (11, "q3_k", 256, 110),
    (12, "q4_k", 256, 144),
    (13, "q5_k", 256, 176),
    (14, "q6_k", 256, 210),
    (15, "q8_k", 256, 292),
    (16, "iq2_xxs", 256, 66),
    (17, "iq2_xs", 256, 74),
    (18, "iq3_xxs", 256, 98),
    (19, "iq1_s", 256, 50),
    (20, "iq4_nl", 32, 18),
    (21, "iq3_s", 256, 110),
    (22, "iq2_s", 256, 82),
    (23, "iq4_xs", 256, 136),
    (24, "i8", 1, 1),
    (25, "i16", 1, 2),
    (26, "i32", 1, 4),
    (27, "i64", 1, 8),
    (28, "f64", 1, 8),
    (29, "iq1_m", 256, 56),
    (30, "bf16", 1, 2),
    (34, "tq1_0", 256, 54),
    (35, "tq2_0", 256, 66),
    (39, "mxfp4", 32, 17),
    (40, "nvfp4", 64, 36),
    (41, "q1_0", 128, 18),
    (42, "q2_0", 64, 18),
)
BY_NUMBER = {row[0]: TensorType(*row) for row in _TABLE}
BY_NAME = {kind.name: kind for kind in BY_NUMBER.values()}

# What llama.cpp's own command line accepts for a cache (common/arg.cpp, kv_cache_types), smallest last.
KV_TYPES = tuple(BY_NAME[name] for name in ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"))
