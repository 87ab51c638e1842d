"""The sizes and constants of a language model, from the metadata of its file.

The keys are those of docs/gguf.md of the ggml project. What the keys do not say, such as the activation, is a property
of the architecture (`FAMILIES`).
"""

from __future__ import annotations

import dataclasses
from typing import Any

from saccade.errors import warn
from saccade.gguf.container import Array, Container
from saccade.gguf.errors import FileError


@dataclasses.dataclass(frozen=True)
class Family:
    """What an architecture has that the metadata does not say."""

    is_interleaved: bool = False  # rotated pairs are elements 2n and 2n + 1 of a head, else n and n + half
    activation: str = "silu"  # of the feed-forward network: "silu" or "gelu", the approximation by tanh
    scales_embedding: bool = False  # by the square root of the width
    window: int | None = None  # of layers with a window, if the file does not say it; None: the file must say it
    pattern: int = 0  # every layer of this many has a window but the last; 0: no layer
    window_base: float | None = None  # of rotary positions in layers with a window; None: as in other layers
    wide_layers: int = 0  # a model with this number of layers scales scores by width / heads as the width of a head
    norms: tuple[str, ...] = ()  # norms that every layer must have besides attn_norm and ffn_norm


_POST = ("post_attention_norm", "post_ffw_norm")
FAMILIES = {
    "llama": Family(is_interleaved=True),
    "qwen2": Family(),
    "qwen3": Family(norms=("attn_q_norm", "attn_k_norm")),
    "gemma": Family(activation="gelu", scales_embedding=True),
    "gemma2": Family(activation="gelu", scales_embedding=True, window=4096, pattern=2, wide_layers=46, norms=_POST),
    "gemma3": Family(activation="gelu", scales_embedding=True, pattern=6, window_base=10000.0, wide_layers=62,
                     norms=("attn_q_norm", "attn_k_norm", *_POST)),
}  # fmt: skip
"""The supported architectures."""


@dataclasses.dataclass(frozen=True)
class Yarn:
    """Rotary positions scaled by YaRN (Peng et al. 2023)."""

    original: int  # the context that the model was trained with first
    fast: float = 32.0
    slow: float = 1.0


@dataclasses.dataclass(frozen=True)
class Rotary:
    """Rotary positions (Su et al. 2021): pair n is rotated by position · base^(−2n / size) / factor."""

    size: int  # the first `size` elements of a head are rotated
    base: float
    factor: float = 1.0
    magnitude: float = 1.0  # of cosines and sines
    yarn: Yarn | None = None


@dataclasses.dataclass(frozen=True)
class Settings:
    """A decoder."""

    architecture: str
    name: str
    """The model's name, or that of the architecture."""
    context: int
    """The longest text that the model was trained for."""
    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    hidden: tuple[int, ...]
    """The width of the feed-forward network of each layer."""
    head_dim: int
    epsilon: float
    """Of the norms."""
    scale: float
    """Of scores."""
    rotary: Rotary
    window_rotary: Rotary
    """That of layers with a window."""
    windows: tuple[int | None, ...]
    """The keys that each layer sees, the query's own included; None for all."""
    score_cap: float | None
    logit_cap: float | None
    end_token: int | None
    """The token that ends a text."""

    @property
    def family(self) -> Family:
        """What the architecture has."""
        return FAMILIES[self.architecture]


_NEUTRAL = {"expert_count": 0, "expert_used_count": 0, "attention.clamp_kqv": 0, "attention.max_alibi_bias": 0,
            "logit_scale": 1, "embedding_scale": 1, "residual_scale": 1, "attention.causal": True,
            "use_parallel_residual": False, "nextn_predict_layers": 0}  # fmt: skip
"""Keys that are refused with other values than these."""
_IGNORED = {"vocab_size", "rope.scaling.finetuned", "rope.scaling.original_context_length", "rope.scale_linear",
            "attention.value_length"}  # fmt: skip


def read(container: Container) -> Settings:
    """The settings of a file. Raises FileError, which names the key, if one is missing or has a value that is not
    supported. Keys of the architecture that are not known are a `saccade.Warning`."""
    return _Reader(container).settings()


class _Reader:
    def __init__(self, container: Container):
        self.file = container
        self.used = set(_NEUTRAL) | _IGNORED
        self.architecture = self.text("general.architecture")
        if self.architecture not in FAMILIES:
            raise self.error(f"the architecture is '{self.architecture}', expected one of {', '.join(FAMILIES)}")
        self.family = FAMILIES[self.architecture]
        if (parts := container.metadata.get("split.count", 1)) not in (0, 1):
            raise self.error(f"the file is one of {parts} of a model, expected a model in one file")

    def error(self, message: str) -> FileError:
        return FileError(f"{self.file.path}: {message}")

    def wrong(self, key: str, found: Any, expected: str) -> FileError:
        """The error for the value of a key of the architecture."""
        is_value = "is missing" if found is None else f"is {found!r:.80}"
        return self.error(f"{self.architecture}.{key} {is_value}, expected {expected}")

    def settings(self) -> Settings:
        for key, value in _NEUTRAL.items():
            found = self.file.metadata.get(f"{self.architecture}.{key}", value)
            if found != value:
                raise self.wrong(key, found, f"{value}: others are not supported")
        layers = self.integer("block_count", 1, 10_000)
        width, heads = self.integer("embedding_length"), self.same("attention.head_count", layers)
        head_dim = self.integer("attention.key_length", default=width // heads)
        values = self.integer("attention.value_length", default=width // heads)
        if values != head_dim:
            raise self.wrong("attention.value_length", values, f"{head_dim}, the length of keys")
        kv_heads = self.same("attention.head_count_kv", layers, heads)
        if heads % kv_heads:
            raise self.wrong("attention.head_count", heads, f"a multiple of {kv_heads}, the heads of keys")
        context = self.integer("context_length")
        rotary = self.rotary(head_dim, context)
        windows = self.windows(layers)
        base = self.family.window_base
        local = self.number("rope.freq_base_swa", rotary.base if base is None else base)
        of_window = dataclasses.replace(rotary, base=local) if base is None else Rotary(rotary.size, local)
        is_wide = layers == self.family.wide_layers
        scale = self.number("attention.scale", 0.0) or (width // heads if is_wide else head_dim) ** -0.5
        embedding = self.file.tensors.get("token_embd.weight")
        if embedding is None or len(embedding.shape) != 2:
            raise self.error("the file has no matrix 'token_embd.weight'")
        result = Settings(
            self.architecture, self.text("general.name", self.architecture), context, embedding.shape[0], width, layers,
            heads, kv_heads, self.each("feed_forward_length", layers), head_dim,
            self.number("attention.layer_norm_rms_epsilon"), scale, rotary, of_window, windows,
            self.cap("attn_logit_softcapping"), self.cap("final_logit_softcapping"), self.end_token())
        self.check_unknown()
        return result

    def check_unknown(self) -> None:
        prefix = f"{self.architecture}."
        known = {prefix + key for key in self.used}
        unknown = [key for key in self.file.metadata if key.startswith(prefix) and key not in known]
        if unknown:
            warn(f"{self.file.path}: {', '.join(unknown[:8])}{' ...' if len(unknown) > 8 else ''}: not known, ignored")

    def find(self, key: str) -> Any:
        self.used.add(key)
        return self.file.metadata.get(f"{self.architecture}.{key}")

    def text(self, key: str, default: str | None = None) -> str:
        found = self.file.metadata.get(key, default)
        if not isinstance(found, str):
            raise self.error(f"{key} is {'missing' if found is None else repr(found)[:80]}, expected a text")
        return found

    def integer(self, key: str, least: int = 1, most: int = 1 << 30, default: int | None = None) -> int:
        found = self.find(key)
        return self.checked(key, default if found is None else found, least, most)

    def checked(self, key: str, found: Any, least: int = 1, most: int = 1 << 30) -> int:
        if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
            raise self.wrong(key, found, f"an integer from {least} to {most}")
        return found

    def number(self, key: str, default: float | None = None) -> float:
        found = self.find(key)
        found = default if found is None else found
        if isinstance(found, bool) or not isinstance(found, (int, float)) or not abs(found) < 1e30:
            raise self.wrong(key, found, "a number")
        return float(found)

    def each(self, key: str, layers: int, default: int | None = None) -> tuple[int, ...]:
        """A number for each layer, or one for all."""
        found = self.find(key)
        found = default if found is None else found
        numbers = self.file.numbers(found) if isinstance(found, Array) else (found,) * layers
        if numbers is None or len(numbers) != layers:
            raise self.wrong(key, numbers, f"{layers} numbers, one for each layer")
        return tuple(self.checked(key, number) for number in numbers)

    def same(self, key: str, layers: int, default: int | None = None) -> int:
        numbers = self.each(key, layers, default)
        if len(set(numbers)) > 1:
            raise self.error(f"{self.architecture}.{key} differs between layers, which is not supported")
        return numbers[0]

    def cap(self, key: str) -> float | None:
        return self.number(key, 0.0) or None

    def rotary(self, head_dim: int, context: int) -> Rotary:
        size = self.integer("rope.dimension_count", 2, head_dim, head_dim)
        if size % 2:
            raise self.wrong("rope.dimension_count", size, "an even number")
        base = self.number("rope.freq_base", 10000.0)
        kind = self.find("rope.scaling.type")
        factor = self.number("rope.scaling.factor", self.number("rope.scale_linear", 0.0)) or 1.0
        magnitude = self.number("rope.scaling.attn_factor", 1.0)
        if base <= 1:
            raise self.wrong("rope.freq_base", base, "more than 1")
        if factor <= 0:
            raise self.wrong("rope.scaling.factor", factor, "more than 0")
        if kind in (None, "linear"):
            return Rotary(size, base, factor, magnitude)
        if kind == "none":
            return Rotary(size, base, 1.0, magnitude)
        if kind == "yarn" and not self.number("rope.scaling.yarn_log_multiplier", 0.0):
            yarn = Yarn(self.integer("rope.scaling.original_context_length", default=context),
                        self.number("rope.scaling.yarn_beta_fast", Yarn.fast),
                        self.number("rope.scaling.yarn_beta_slow", Yarn.slow))
            if (extent := self.number("rope.scaling.yarn_ext_factor", 1.0)) != 1.0:
                raise self.wrong("rope.scaling.yarn_ext_factor", extent, "1: others are not supported")
            return Rotary(size, base, factor, magnitude, yarn)
        if kind == "yarn":
            raise self.wrong("rope.scaling.yarn_log_multiplier", self.find("rope.scaling.yarn_log_multiplier"), "none")
        raise self.wrong("rope.scaling.type", kind, "'none', 'linear' or 'yarn'")

    def windows(self, layers: int) -> tuple[int | None, ...]:
        pattern = self.family.pattern
        if not pattern:
            return (None,) * layers
        if self.find("attention.sliding_window") is None and self.family.window is None:
            return (None,) * layers
        window = self.integer("attention.sliding_window", 0, default=self.family.window) or None
        found = self.find("attention.sliding_window_pattern")
        if isinstance(found, Array):
            flags = self.file.numbers(found)
            if flags is None or len(flags) != layers:
                raise self.wrong("attention.sliding_window_pattern", flags, f"{layers} flags, one for each layer")
        else:
            pattern = self.integer("attention.sliding_window_pattern", 0, default=pattern)
            flags = tuple(pattern == 0 or layer % pattern < pattern - 1 for layer in range(layers))
        return tuple(window if flag else None for flag in flags)

    def end_token(self) -> int | None:
        found = self.file.metadata.get("tokenizer.ggml.eos_token_id")
        return found if isinstance(found, int) and not isinstance(found, bool) else None
