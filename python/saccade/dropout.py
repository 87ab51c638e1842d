"""`saccade.dropout.dropout_mask`: which attention weights dropout keeps.

A NumPy form of the random bits that compiled programs compute (`dropout` in the language reference), independent of the
compiler. Tests compare compiled programs with it.
"""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING

from saccade import _parameters

if TYPE_CHECKING:
    import numpy

_UNIFORM_BITS = 24


def philox(counter: tuple[numpy.ndarray, ...], key: tuple[int, int]) -> tuple[numpy.ndarray, ...]:
    """The four words of Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").

    Args:
        counter: four arrays of 32-bit words, of shapes that broadcast.
        key: two 32-bit words.

    Returns:
        Four arrays of 32-bit words as uint64.
    """
    import numpy as np

    def words(x: numpy.ndarray | int) -> numpy.ndarray:
        return np.asarray(x).astype(np.uint64) & np.uint64(0xFFFFFFFF)

    (a, b, c, d), (k0, k1), high = (words(x) for x in counter), key, np.uint64(32)
    for _ in range(10):
        first, second = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (second >> high) ^ b ^ words(k0), words(second), (first >> high) ^ d ^ words(k1), words(first)
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return a, b, c, d


def dropout_mask(shape: tuple[int, int, int, int], rate: float, seed: int, *, heads: int | None = None,
                 at: tuple[int, int, int, int] = (0, 0, 0, 0)) -> numpy.ndarray:
    """The attention weights that dropout keeps.

    Args:
        shape: the numbers of batches, query heads, queries and keys.
        rate: the probability with which a weight becomes 0; it is rounded to f32.
        seed: a 64-bit integer.
        heads: the number of query heads of the whole attention; that of `shape` by default.
        at: the position of the first element: batch, head, query and key.

    Returns:
        A bool array of this shape. Kept weights are multiplied by 1 / (1 − rate), the others by 0.

    Raises:
        ValueError: a rate that is no probability, such as NaN.
        TypeError: a rate that is no number, or a seed that is no integer.
    """
    import numpy as np

    rate = _parameters.rate("rate", rate)
    if not isinstance(seed, numbers.Integral) or isinstance(seed, bool):
        raise TypeError(f"seed is {seed!r:.80}, expected an integer")
    if not isinstance(shape, (tuple, list)) or len(shape) != 4:
        raise TypeError(f"shape is {shape!r:.80}, expected the numbers of batches, heads, queries and keys")
    shape = tuple([_parameters.integer("shape", extent, 0) for extent in shape])
    b, h, q, k = (np.arange(start, start + extent) for start, extent in zip(at, shape, strict=True))
    row = b[:, None, None, None] * (shape[1] if heads is None else heads) + h[:, None, None]
    words = philox((row, q[:, None], k >> 2, np.zeros(1, int)), (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF))
    word = np.choose(k & 3, np.broadcast_arrays(*words))
    uniform = (word >> np.uint64(32 - _UNIFORM_BITS)).astype(np.float64) / 2**_UNIFORM_BITS
    return np.broadcast_to(uniform >= float(np.float32(rate)), shape)
