"""One step of generation for many sequences, whose keys and values are in the pages of pools.

All ranges of a step (scheduler.Range) are one ragged batch, so attention is one call a layer. The compiled step gives a
range the same bits in any batch, so a sequence has the same tokens alone and among others.
"""

import pathlib
import sys

import torch

import saccade.torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "generate"))

import model


class RaggedStep(model.Step):
    """The decoder's step over ranges one after another."""

    def __init__(self, decoder):
        super().__init__(decoder, self.attend_to_pages)

    def forward(self, tokens, places, offsets, lengths, tables, pools):
        """The logits [ranges, 256] after the last token of each range.

        `tokens` and `places` are the tokens of all ranges and their positions, range i from offsets[i] to
        offsets[i + 1]. `lengths` are the tokens before each range, `tables` its pages.
        """
        x = self.output(tokens, places, pools, offsets, lengths, tables)
        return self.decoder.logits(x[offsets[1:].long() - 1])

    @staticmethod
    def attend_to_pages(q, k, v, k_pool, v_pool, offsets, lengths, tables):
        return saccade.torch.flash_attn_with_kvcache(
            q, k_pool, v_pool, k, v, cache_seqlens=lengths, cu_seqlens_q=offsets, page_table=tables, causal=True)


def compiled(step, pools):
    """The step as one program for any number of tokens, ranges, and pages."""
    tokens, ranges, pages = (torch.export.Dim(name, min=1) for name in ("tokens", "ranges", "pages"))
    numbers = torch.zeros(3, dtype=torch.int64), torch.arange(3)
    offsets, lengths = torch.tensor([0, 2, 3], dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    tables = torch.tensor([[0], [1]], dtype=torch.int32).expand(2, entries_of(step, pools)).contiguous()
    shapes = {0: tokens}, {0: tokens}, {0: ranges + 1}, {0: ranges}, {0: ranges}, [{0: pages}] * len(pools)
    with torch.no_grad():
        exported = torch.export.export(step, (*numbers, offsets, lengths, tables, pools), dynamic_shapes=shapes)
        return saccade.torch.compile(exported)


def entries_of(step, pools):
    """The pages of the longest sequence."""
    return -(-step.decoder.shape.positions // pools[0].shape[1])


class PagedModel:
    """The compiled step, with pools of `pages` pages of `page_size` positions for each layer."""

    def __init__(self, decoder, pages, page_size=16):
        shape = decoder.shape
        step = RaggedStep(decoder).eval()
        self.context, self.page_size = shape.positions, page_size
        self.pools = [torch.zeros(pages, page_size, shape.kv_heads, shape.head_dim) for _ in range(2 * shape.layers)]
        self.entries = entries_of(step, self.pools)
        self.step = compiled(step, self.pools)

    def __call__(self, ranges):
        """The logits after each range, as NumPy's array. New keys and values are written to the pages."""
        counts = torch.tensor([0, *(len(each.tokens) for each in ranges)])
        offsets = counts.cumsum(0).to(torch.int32)
        tokens = torch.tensor(list(b"".join(each.tokens for each in ranges)))
        places = torch.cat([torch.arange(each.start, each.start + len(each.tokens)) for each in ranges])
        lengths = torch.tensor([each.start for each in ranges], dtype=torch.int32)
        rows = [each.pages + [-1] * (self.entries - len(each.pages)) for each in ranges]
        with torch.inference_mode():
            tables = torch.tensor(rows, dtype=torch.int32)
            return self.step(tokens, places, offsets, lengths, tables, self.pools).numpy()
