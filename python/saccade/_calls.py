"""The options of observed calls (`_served.observe`) by name, whatever function was called."""

from __future__ import annotations

from typing import Any

from saccade import _arrays, _served

SDPA = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
"""The arguments of `F.scaled_dot_product_attention` that may be given by position."""
_INTERFACE = ("module", "query", "key", "value", "attn_mask", "dropout_p", "scale", "is_causal", "position_bias",
              "softcap", "s_aux", "sliding_window")  # fmt: skip


def options_of(call: _served.Observed) -> dict[str, Any]:
    """The options of a call with the names of `saccade.attention` or `F.scaled_dot_product_attention`; empty if they
    are not known."""
    args, kwargs = call.arguments
    if call.function == "saccade.attention":
        return dict(kwargs)
    if call.function == "scaled_dot_product_attention":
        return {"is_causal": False, **dict(zip(SDPA[3:], args[3:])), **kwargs}
    return _of_transformers(dict(zip(_INTERFACE, args))) if args and args[0] is call.module else {}


def log_of_keys_seen(query: Any, key: Any, layout: str, options: dict[str, Any]) -> Any:
    """The logarithm of the number of keys that each query sees under options of `saccade.attention` that are no scores:
    the log-sum-exp of equal scores."""
    from saccade.attention import attention

    first = (slice(None),) * layout.index("d") + (slice(1),)
    query, key = (_arrays.library_of(query).zeros_like(x[first]) for x in (query, key))
    return attention(query, key, key, scale=0.0, return_lse=True, layout=layout, **options)[1]


def _of_transformers(given: dict[str, Any]) -> dict[str, Any]:
    """The options of a call of the attention function of Transformers models."""
    from saccade.transformers import interface

    if given["attn_mask"] is not None:
        return {name: given[name] for name in ("attn_mask", "scale", "dropout_p")}
    queries, keys, is_causal = given["query"].shape[2], given["key"].shape[2], given["is_causal"]
    if is_causal is None:
        is_causal = interface.is_causal_module(given["module"])
    options = {"is_causal": is_causal and queries > 1, "scale": given["scale"], "dropout_p": given["dropout_p"]}
    if given["sliding_window"] is not None:
        options |= interface.window_options(given["sliding_window"], is_causal, queries, keys)
    return options
