"""The pairs that the lists of a BlockMask and its mask_mod show, evaluated block by block as PyTorch documents them."""

import torch
from torch.nn.attention.flex_attention import noop_mask


def dense_lists(block_mask, batch, heads):
    """Booleans [batch, heads, queries, keys]: true in full blocks, `mask_mod` in partial blocks, otherwise false."""
    queries, keys = block_mask.seq_lengths
    rows, columns = block_mask.BLOCK_SIZE
    made_for = block_mask.kv_num_blocks.shape[:2]
    i, j = torch.arange(queries)[:, None], torch.arange(keys)[None]
    shown = torch.zeros(batch, heads, queries, keys, dtype=torch.bool)
    for b in range(batch):
        for h in range(heads):
            place = b * made_for[0] // batch, h * made_for[1] // heads
            mask = torch.ones(queries, keys, dtype=torch.bool)
            if block_mask.mask_mod is not noop_mask:
                mask = torch.as_tensor(block_mask.mask_mod(torch.tensor(b), torch.tensor(h), i, j)).expand(queries, keys)
            for lists, seen in (((block_mask.kv_num_blocks, block_mask.kv_indices), mask),
                                ((block_mask.full_kv_num_blocks, block_mask.full_kv_indices), torch.ones_like(mask))):
                if lists[0] is None:
                    continue
                counts, indices = lists[0][place].tolist(), lists[1][place].tolist()
                for row, count in enumerate(counts):
                    for column in indices[row][:count]:
                        block = slice(row * rows, (row + 1) * rows), slice(column * columns, (column + 1) * columns)
                        shown[b, h][block] = seen[block]
    return shown
