"""Messages of the programs for caches, in terms of the functions that call them (serving.py)."""

from __future__ import annotations

import re

# Arguments of programs (`_cache_text.Append`) by the parameters of the functions.
_PARAMETERS = {"k": "k_cache", "v": "v_cache", "new_k": "k", "new_v": "v", "new_k_scale": "k", "new_v_scale": "v",
               "new_k_zero": "k", "new_v_zero": "v",
               "at": "cache_seqlens", "kv_len": "cache_seqlens", "count": "seqlens_new"}  # fmt: skip

# What a program says about pages, if each row of the cache is a page.
_ROWS = (("page table is full", "cache is full"), ("a page that is not in the pool", "a row that is not in the cache"),
         ("writes to a page twice", "writes to a row of the cache twice"),
         ("expected a page other", "expected a row other"))  # fmt: skip

_PAGES = ": give page_table for a pool of pages, cache_batch_idx for some rows of a cache"
_HINTS = (("another batch size than cache", _PAGES), ("key has another batch size", _PAGES),
          ("overlaps with v_cache", ": append to both parts by append_kvcache before"))  # fmt: skip


def translated(name: str, message: str, table: str) -> str:
    """The message of a program for a caller of the function `name`. `table` is the parameter that states the
    pages ("page_table", "block_table"), or the rows of the cache ("cache_batch_idx", "cu_seqlens_q", "cu_seqlens")."""
    found = re.search(r" op (.*)", message, re.DOTALL)
    message = found[1] if found else re.sub(r"^\w+: ", "", message)
    message = re.sub(r"argument '(\w+)'(?: \([^)]*\))?", lambda match: _PARAMETERS.get(match[1], match[1]), message)
    message = re.sub(r"^(\w+)(?= (?:has|is|requires) )", lambda match: _PARAMETERS.get(match[1], match[1]), message)
    message = message.replace("count exceeds the new rows", "count of new rows exceeds those of k")
    message = message.replace("kv_len exceeds the length of key", "cache_seqlens exceeds the rows of the cache")
    message = message.replace("kv_len is negative", "cache_seqlens is negative")
    if table not in ("page_table", "block_table"):
        for old, new in _ROWS:
            message = message.replace(old, new)
    message += next((hint for text, hint in _HINTS if text in message), "")
    return f"{name}: {message.replace('page table', table)}"


__all__ = ["translated"]
