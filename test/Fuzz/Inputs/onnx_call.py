"""Random nodes of ONNX's Attention, and their values in float64 by ONNX's reference evaluator."""

import random
import warnings

import ml_dtypes
import numpy as np
import onnx
import onnx.inliner
from onnx import helper
from onnx.reference import ReferenceEvaluator

TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
NAMES = ("q", "k", "v", "m", "pk", "pv", "n")
SHIFTS = [1e4, -1e4, 1e9, -1e9, 1e30, -1e30, float(np.finfo(np.float32).min)]
OPSET_OF_PADDING = 24  # masks that are shorter than the keys are padded from here on


class Call:
    """The node of a seed. A variant has other lengths, batch and numbers."""

    def __init__(self, seed):
        draw = random.Random(seed)
        self.seed = seed
        self.opset = draw.choice([23, 24, 24, 25])
        self.type = draw.choice(["f32", "f32", "f32", "f64", "f16", "bf16"])
        self.rank = draw.choice([3, 4, 4])
        self.kv_heads, self.group = draw.choice([(1, 1), (2, 1), (2, 2), (1, 3)])
        self.depth, self.value_depth = draw.choice([(8, 8), (16, 16), (5, 5), (8, 20)])
        self.cache = draw.choice(["none", "none", "past", "lengths"])
        if self.opset < 24 and self.cache == "lengths":
            self.cache = "past"
        self.mask = draw.choice(["none", "bool", "own", "own", "f32"])
        self.mask_rank = draw.choice([1, 2, 2, 3, 4, 4])
        self.mask_axes = [draw.random() < 0.7 for _ in range(3)]
        self.columns = draw.choice(["all", "all", "all", "some", "one", "none"])
        self.shift = draw.choice([None, None, "rows", "one value"])
        self.hides = draw.choice(["some", "rows", "nothing"])
        self.is_causal = draw.random() < 0.4
        self.windows = [draw.choice([-1, 0, 1, 3]) for _ in range(2)] if self.opset >= 25 else [-1, -1]
        self.softcap = draw.choice([0.0, 0.0, 2.0, 30.0])
        self.scale = draw.choice([None, None, None, 0.0, 0.3, 2.0])
        self.mode = draw.choice([None, 0, 1, 2, 3])
        self.gives_present = self.cache == "past" or (self.cache == "none" and draw.random() < 0.2)
        self.is_dynamic = draw.random() < 0.75
        if self.is_dynamic and self.columns == "none" and (self.mode or 0) >= 2:
            self.columns = "all"  # elements of an empty mask are not read, which has to be known to compute scores

    @property
    def features(self):
        """Names of what this node has."""
        features = [f"opset-{self.opset}", self.type, f"rank-{self.rank}", f"cache-{self.cache}", f"mask-{self.mask}",
                    f"softcap-{self.softcap}", f"scale-{self.scale}", f"mode-{self.mode}", f"group-{self.group}",
                    f"windows-{[each >= 0 for each in self.windows]}", f"causal-{self.is_causal}",
                    f"dynamic-{self.is_dynamic}"]
        if self.mask != "none":
            features += [f"mask-rank-{self.mask_rank}", f"columns-{self.columns}", f"hides-{self.hides}"]
        return features + ([f"shift-{self.shift}"] if self.mask in ("own", "f32") else [])

    def __str__(self):
        return f"seed {self.seed}: {vars(self)}"

    def arrays(self, variant):
        """The operands by name."""
        rng = np.random.default_rng([self.seed, variant])
        dtype = TYPES[self.type]
        batch, queries, keys = rng.integers(2, 4), rng.integers(2 if self.is_dynamic else 1, 9), rng.integers(2, 40)
        past = rng.integers(0, 20) if self.cache == "past" else 0
        size = 1 if self.shift else rng.choice([1, 1, 4])

        def real(heads, length, depth):
            array = (rng.standard_normal((batch, heads, length, depth)) * size).astype(dtype)
            return array if self.rank == 4 else array.transpose(0, 2, 1, 3).reshape(batch, length, heads * depth)

        arrays = {"q": real(self.kv_heads * self.group, queries, self.depth),
                  "k": real(self.kv_heads, keys, self.depth), "v": real(self.kv_heads, keys, self.value_depth)}
        if self.mask != "none":
            arrays["m"] = self._mask(rng, (batch, self.kv_heads * self.group, queries, keys + past))
        if self.cache == "past":
            for name, depth in (("pk", self.depth), ("pv", self.value_depth)):
                arrays[name] = (rng.standard_normal((batch, self.kv_heads, past, depth)) * size).astype(dtype)
        if self.cache == "lengths":
            arrays["n"] = rng.integers(0, keys + 1, batch)
        return arrays

    def _mask(self, rng, scores):
        """A mask that broadcasts to `scores`, or is shorter."""
        shape = [extent if is_whole else 1 for extent, is_whole in zip(scores, self.mask_axes)] + [scores[-1]]
        shape[-1] = {"all": scores[-1], "some": max(scores[-1] * 2 // 3, 2), "one": 1, "none": 0}[self.columns]
        shape = tuple(shape[4 - self.mask_rank:])
        hidden = np.zeros(shape, bool)
        if self.hides != "nothing":
            hidden = rng.random(shape) < 0.3
        if self.hides == "rows" and len(shape) > 1:
            hidden |= rng.random((*shape[:-1], 1)) < 0.5
        if self.mask == "bool":
            return ~hidden
        values = rng.standard_normal(shape)
        if self.shift:
            shifts = rng.choice(SHIFTS, (*shape[:-1], 1) if self.shift == "rows" else ())
            values = np.where(rng.random((*shape[:-1], 1)) < 0.5, shifts, values) if self.shift == "rows" else shifts + 0 * values
        dtype = TYPES[self.type] if self.mask == "own" else np.float32
        limit = float(ml_dtypes.finfo(dtype).max)
        return np.where(hidden, -np.inf, values.clip(-limit, limit)).astype(dtype)

    def node(self, names, outputs, **changes):
        """The node, with some attributes changed."""
        attributes = {"is_causal": int(self.is_causal), "softcap": self.softcap, "scale": self.scale,
                      "qk_matmul_output_mode": self.mode, **changes}
        if self.rank == 3:
            attributes |= {"q_num_heads": self.kv_heads * self.group, "kv_num_heads": self.kv_heads}
        if self.opset >= 25:
            attributes |= dict(zip(("left_window_size", "right_window_size"), self.windows))
        inputs = [name if name in names else "" for name in NAMES]
        while not inputs[-1]:
            inputs.pop()
        attributes = {name: value for name, value in attributes.items() if value is not None}
        return helper.make_node("Attention", inputs, outputs, **attributes)

    @property
    def exact_scale(self):
        return 1 / np.sqrt(self.depth) if self.scale is None else float(np.float32(self.scale))

    @property
    def outputs(self):
        return ["y", *(["key", "value"] if self.gives_present else ["", ""]), *(["s"] if self.mode is not None else [])]

    def model(self, arrays, **changes):
        """A model of the node, for arrays of these types; with symbols as extents if the call has them."""
        element = helper.np_dtype_to_tensor_dtype(arrays["q"].dtype)
        values = []
        for name, array in arrays.items():
            shape = list(array.shape)
            if self.is_dynamic:
                for dim in range(len(shape)):
                    # Heads and depths are known, and the extents of a mask that are 1, except that of its columns.
                    is_known = dim in ((2,) if len(shape) == 3 else (1, 3))
                    if name == "m":
                        is_known = shape[dim] == 1 and dim < len(shape) - 1
                    if not is_known:
                        shape[dim] = f"{name}{dim}"
            values.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape))
        outputs = [helper.make_tensor_value_info(name, element, None) for name in self.outputs if name]
        graph = helper.make_graph([self.node(list(arrays), self.outputs, **changes)], "g", values, outputs)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=11)

    def reference(self, arrays, expands=False, **changes):
        """The outputs in float64 by ONNX's reference evaluator, or by the operator's function body with `expands`."""
        wide = {name: each.astype(np.float64) if each.dtype not in (bool, np.int64) else each for name, each in arrays.items()}
        if not expands:  # the operator rounds the scale's root to f32
            wide["q"], changes["scale"] = wide["q"] * self.exact_scale, 1.0
        model = self.model(wide, **changes)
        if expands:
            model = onnx.inliner.inline_selected_functions(model, [("", "Attention")], exclude=False,
                                                           inline_schema_functions=True)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = ReferenceEvaluator(model).run(None, wide)
        return dict(zip([name for name in self.outputs if name], found))

    def follows_body(self, arrays):
        """The operands with a mask that the reference evaluator treats as the function body does. With a causal mask, the
        evaluator takes every query for the first one if the mask has one row, and fails if it has one dimension. In
        operator set 23 the body does not pad masks, and one column applies to all keys."""
        if "m" not in arrays:
            return arrays
        mask, axis = np.atleast_2d(arrays["m"]), 1 if self.rank == 3 else 2
        if mask.shape[-2] == 1:
            mask = np.repeat(mask, arrays["q"].shape[axis], axis=-2)
        if self.opset < OPSET_OF_PADDING and mask.shape[-1] == 1:
            mask = np.repeat(mask, arrays["k"].shape[axis] + (arrays["pk"].shape[2] if "pk" in arrays else 0), axis=-1)
        return arrays | {"m": mask}

    def bias(self, arrays, shape):
        """What the masks add to scores of this shape, −inf for hidden keys: the biased scores of queries of zeros."""
        if "m" not in arrays and not self.is_causal and self.cache != "lengths" and max(self.windows) < 0:
            return np.zeros(shape)
        zeros = self.follows_body(arrays) | {"q": np.zeros_like(arrays["q"])}
        other = Call(self.seed)
        other.mode, other.gives_present = 2, False
        return np.broadcast_to(other.reference(zeros)["s"], shape)
