"""A server of sequences in a paged cache, as an engine for language models keeps them: the truth for serving_traces.py."""

import numpy as np


class Sequence:
    """The keys and values of one sequence, and the pages that hold them."""

    def __init__(self, pages=(), tokens=()):
        self.pages = list(pages)
        self.tokens = list(tokens)  # pairs of key and value, each heads × depth

    def __len__(self):
        return len(self.tokens)


class Server:
    """A page pool. Pages are shared between sequences with a common prefix, and copied before they are written."""

    def __init__(self, rng, page_size, heads, depth, depth_v, dtype, capacity):
        self.rng, self.page_size, self.heads, self.depth, self.depth_v = rng, page_size, heads, depth, depth_v
        # Free pages have NaN: an element that is not valid must not be read.
        self.k = np.full((capacity, page_size, heads, depth), np.nan, dtype)
        self.v = np.full((capacity, page_size, heads, depth_v), np.nan, dtype)
        self.owners = [0] * capacity
        self.sequences: list[Sequence] = []

    def free_pages(self):
        return self.owners.count(0)

    def allocate(self):
        page = int(self.rng.choice([i for i, count in enumerate(self.owners) if count == 0]))
        self.owners[page] = 1
        return page

    def release(self, page):
        self.owners[page] -= 1
        if self.owners[page] == 0:
            self.k[page] = self.v[page] = np.nan

    def append(self, sequence, count, *, write=True):
        """Adds `count` random tokens. Without `write` their pages are reserved, and a program writes them."""
        for _ in range(count):
            slot = len(sequence) % self.page_size
            if slot == 0:
                sequence.pages.append(self.allocate())
            elif self.owners[sequence.pages[-1]] > 1:
                self.move(sequence, len(sequence.pages) - 1)
            key, value = (self.rng.standard_normal((self.heads, depth)).astype(self.k.dtype)
                          for depth in (self.depth, self.depth_v))
            if write:
                self.k[sequence.pages[-1], slot], self.v[sequence.pages[-1], slot] = key, value
            sequence.tokens.append((key, value))

    def check(self):
        """Raises AssertionError if the pools do not contain the tokens, or a free page was written."""
        for sequence in self.sequences:
            for i, token in enumerate(sequence.tokens):
                place = sequence.pages[i // self.page_size], i % self.page_size
                for pool, expected in zip((self.k, self.v), token):
                    if not np.array_equal(pool[place], expected):
                        raise AssertionError(f"page {place[0]}, position {place[1]} does not contain token {i}")
        free = np.array(self.owners) == 0
        if not all(np.isnan(pool[free, :, 0, 0]).all() for pool in (self.k, self.v)):
            raise AssertionError("a free page was written")

    def move(self, sequence, entry):
        """Copies a page of a sequence to another place."""
        old, new = sequence.pages[entry], self.allocate()
        self.k[new], self.v[new] = self.k[old], self.v[old]
        sequence.pages[entry] = new
        self.release(old)

    def truncate(self, sequence, length):
        """Drops the tokens from `length` on, such as rejected drafts."""
        del sequence.tokens[length:]
        while len(sequence.pages) > -(-length // self.page_size):
            self.release(sequence.pages.pop())

    def fork(self, sequence, length):
        """A new sequence with the first `length` tokens of another one."""
        pages = sequence.pages[: -(-length // self.page_size)]
        for page in pages:
            self.owners[page] += 1
        return Sequence(pages, sequence.tokens[:length])

    def table(self, sequences, entries):
        """The page table; entries without a page are invalid."""
        table = np.full((len(sequences), entries), -1, np.int32)
        for row, sequence in zip(table, sequences):
            row[: len(sequence.pages)] = sequence.pages
        return table


def oracle(q, sequence, mask=None):
    """Attention of the last len(q) tokens in float64; q is queries × heads × depth. `mask`: which of the last tokens a
    query attends to; by default those up to its own."""
    count, length = len(q), len(sequence)
    k = np.array([key for key, _ in sequence.tokens], np.float64)
    v = np.array([value for _, value in sequence.tokens], np.float64)
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scores = np.einsum("qhd,khd->hqk", q.astype(np.float64), k) / np.sqrt(q.shape[-1])
    scores[:, :, length - count:][:, ~(np.tri(count, dtype=bool) if mask is None else mask)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), v)
