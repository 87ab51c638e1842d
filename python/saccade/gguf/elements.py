"""The element types of tensors in GGUF files: numbers, and blocks of quantized numbers.

The numbers of types and the sizes of blocks are those of the file format (ggml.h, enum ggml_type).
"""

from __future__ import annotations

from typing import NamedTuple


class Element(NamedTuple):
    """An element type of a tensor. Elements of a row are stored in blocks."""

    name: str
    block: int
    """The elements of a block; 1 for plain numbers."""
    size: int
    """The bytes of a block."""
    served: str | None = None
    """MLIR's element type of plain numbers, or the format of blocks in `attn.dequantize`; None: not supported."""

    @property
    def is_quantized(self) -> bool:
        """Whether the elements are blocks."""
        return self.block > 1


ELEMENTS = {
    0: Element("F32", 1, 4, "f32"), 1: Element("F16", 1, 2, "f16"), 30: Element("BF16", 1, 2, "bf16"),
    2: Element("Q4_0", 32, 18, "q4_0"), 3: Element("Q4_1", 32, 20, "q4_1"), 8: Element("Q8_0", 32, 34, "q8_0"),
    12: Element("Q4_K", 256, 144, "q4_k"), 14: Element("Q6_K", 256, 210, "q6_k"),
    6: Element("Q5_0", 32, 22), 7: Element("Q5_1", 32, 24), 9: Element("Q8_1", 32, 36), 10: Element("Q2_K", 256, 84),
    11: Element("Q3_K", 256, 110), 13: Element("Q5_K", 256, 176), 15: Element("Q8_K", 256, 292),
    16: Element("IQ2_XXS", 256, 66), 17: Element("IQ2_XS", 256, 74), 18: Element("IQ3_XXS", 256, 98),
    19: Element("IQ1_S", 256, 50), 20: Element("IQ4_NL", 32, 18), 21: Element("IQ3_S", 256, 110),
    22: Element("IQ2_S", 256, 82), 23: Element("IQ4_XS", 256, 136), 24: Element("I8", 1, 1), 25: Element("I16", 1, 2),
    26: Element("I32", 1, 4), 27: Element("I64", 1, 8), 28: Element("F64", 1, 8), 29: Element("IQ1_M", 256, 56),
    34: Element("TQ1_0", 256, 54), 35: Element("TQ2_0", 256, 66), 39: Element("MXFP4", 32, 17),
    40: Element("NVFP4", 64, 36), 41: Element("Q1_0", 128, 18),
}  # fmt: skip
"""The element types by their numbers in a file."""

SERVED = ", ".join(element.name for element in ELEMENTS.values() if element.served)
"""The names of the supported types, for messages."""
