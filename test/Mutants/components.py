"""The components whose tests are measured: their sources, and the tests that must notice a mistake in them."""

import dataclasses
import fnmatch
import pathlib
import re
from typing import Any


@dataclasses.dataclass(frozen=True)
class Component:
    """A component. `sources` are folders or files, without what other components have of the folders. `lit` and `pytest`
    select its tests: regular expressions of names as lit prints them ("Import/Raise/lint.mlir", "Unit/JITTests"), and
    patterns of files in the folders of test/Python."""

    name: str
    sources: tuple[str, ...]
    lit: tuple[str, ...] = ()
    pytest: tuple[str, ...] = ()

    @property
    def is_python(self) -> bool:
        return self.sources[0].startswith(("python/", "examples/"))

    def tests(self, items: dict[str, Any]) -> list[Any]:
        """The component's tests among these, in the order of its patterns: its own come first. Items have a `kind`."""
        ranked = []
        for name, item in items.items():
            file = pathlib.PurePath(name).name
            found = ([fnmatch.fnmatch(file, f"test_{pattern}.py") for pattern in self.pytest] if item.kind == "pytest"
                     else [bool(re.search(pattern, name)) for pattern in self.lit])
            if any(found):
                ranked.append((item.kind == "pytest", item.kind == "lit", found.index(True), item.name, item))
        return [each[-1] for each in sorted(ranked, key=lambda each: each[:-1])]

    def files(self, root: pathlib.Path) -> list[str]:
        """The source files, relative to `root`."""
        suffix = "*.py" if self.is_python else "*.cpp"
        found = []
        for source in self.sources:
            path = root / source
            found += sorted(path.rglob(suffix)) if path.is_dir() else [path]
        names = [str(path.relative_to(root)) for path in found]
        return [name for name in names if component_of(name) == self.name]


_ATTENTION = r"Execution/(causal|lengths|padding|sliding|soft-cap|split-kv|ragged|flash|multi_head|head_sizes|extremes)"
_GRAPHS = r"Fuzz/random[-_]graphs(-split-kv)?\.(py|test)"
_MODELS = r"Execution/(models|raising|scaled-dot-product|softmax)"


def _modules(names: str) -> tuple[str, ...]:
    """The sources of modules of the package. A name that ends in "/" is a subpackage."""
    return tuple(f"python/saccade/{name.rstrip('/')}" + ".py" * (name[-1] != "/") for name in names.split())


COMPONENTS = [
    Component("Analysis", ("lib/Dialect/Attn/Analysis",),
              (r"Dialect/Attn", r"Unit/(Attn|Analysis)", r"Tiling/", r"Tools/explain",
               r"Execution/(capture|relative|window|prepack|mask_tables|GPU/visi)", _ATTENTION, _GRAPHS),
              ("mask_tiles", "masks", "scores", "regions_random")),
    Component("Derivatives", ("lib/Dialect/Attn/Derivatives",), (r"Unit/AttnDerivatives", r"Dialect/Attn/Derivatives")),
    Component("Dialect", ("lib/Dialect/Attn/IR", "lib/Dialect/Attn/Transforms"),
              (r"Dialect/Attn", r"Unit/(Attn|Shape)", r"Execution/(capture|empty|matmul|elementwise|relative|gradients|dropout)",
               r"Tools/language",
               r"Bufferize/fold", _ATTENTION, _GRAPHS, r"Fuzz/(structured|mutate)"),
              ("attention", "attention_errors", "builders", "ragged", "regions_captures")),
    Component("Raise", ("lib/Import/Raise",), (r"Import/", _MODELS, r"Fuzz/.*(rais|pattern|near)", r"Unit/.*Rais"),
              ("torch_encoders", "onnx_encoders", "jax_models")),
    Component("Onnx", ("lib/Import/Onnx",), (r"Import/Onnx", r"Fuzz/onnx", r"Python/Onnx/"),
              ("onnx_*", "importing")),
    Component("Torch", ("lib/Import/Torch",), (r"Import/Torch", r"Fuzz/torch"), ("torch_*", "importing")),
    Component("StableHLO", ("lib/Import/StableHLO",), (r"Import/StableHLO", r"Fuzz/stablehlo"),
              ("stablehlo*", "jax_*")),
    Component("Tosa", ("lib/Import/Tosa",), (r"Import/Tosa", r"Execution/models")),
    Component("Frontend", ("lib/Import/Common", "lib/Import/Pipeline.cpp"),
              (r"Import/(Onnx|Torch|StableHLO)", r"Fuzz/(onnx|torch|stablehlo)", r"Python/Onnx/"),
              ("torch_ops", "torch_algebra", "onnx_operators", "jax_ops", "stablehlo", "*_schemas", "torch_encoders")),
    Component("Schedule", ("lib/Schedule",),
                   (r"Schedule", r"Tools/debug", r"Execution/GPU/(forward|examples)", r"Fuzz/random-graphs-gpu", _ATTENTION)),
    Component("Tiling", ("lib/Tiling",),
              (r"Tiling/", r"Execution/(linear|relative|window|prepack|matmul|reductions|elementwise|empty|gradients|groups)",
               _ATTENTION,
               _GRAPHS, r"Fuzz/(linear|structured)"),
              ("linear", "ragged", "masks", "packed", "reproducible*")),
    Component("Bufferize", ("lib/Bufferize",),
              (r"Bufferize/", r"Execution/(prepack|matmul|elementwise|reductions|steady|tensor|models)",
               r"Fuzz/(prepack|structured)"),
              ("binding", "binding_torch")),
    Component("CPU", ("lib/Codegen/CPU", "lib/Codegen/Common"),
              (r"Codegen/CPU", r"Execution/(?!GPU)", r"Fuzz/(random|linear|structured|prepack|packed)", r"Unit/(.*CPU|Target)"),
              ("attention_weights", "scores", "masks", "linear", "packed", "torch_serving_rotary", "regions_random", "key_streams")),
    Component("GPU", ("lib/Codegen/GPU",), (r"Codegen/GPU", r"Execution/GPU", r"Fuzz/random-graphs-gpu", r"PtxSim/")),
    Component("Script", ("lib/Script",), (r"Script/", r"Tools/transform", r"Fuzz/random_scripts"), ("transform_script",)),
    Component("Target", ("lib/Target",),
              (r"Target/", r"Codegen/CPU/inner_loops", r"Codegen/GPU/ptxas", r"Unit/.*(Target|Assemble)",
               r"Tools/(shared|gpu-library|saccade-compile|tvm|runtime|prepack)",
               r"CAPI/exports", r"Runtime/CUDA")),
    Component("Runtime", ("lib/Runtime",),
              (r"Unit/(Runtime|Shape)", r"Runtime/", r"CAPI/", r"Tools/(calling|tvm|runtime|shared)", r"Execution/conversions"),
              ("binding", "numpy_calls", "numpy_out", "threads", "concurrency", "guards", "diagnostics", "gpu")),
    Component("JIT", ("lib/JIT",), (r"Unit/JIT", r"CAPI/", r"Tools/calling", r"Execution/scalar"), ("binding", "compiling", "concurrency")),
    Component("PtxSim", ("lib/PtxSim",), (r"Unit/PtxSim", r"PtxSim/", r"Execution/GPU")),
    Component("Reference", ("lib/Reference",),
              (r"Unit/Reference", r"Execution/(?!GPU)", r"Fuzz/(random_graphs|structured|linear)")),
    Component("CAPI", ("lib/CAPI",), (r"CAPI/",),
              ("binding", "compiling", "concurrency", "diagnostics", "torch_operator", "torch_calls")),
    Component("Tools", ("tools",), (r"Tools/", r"Runtime/CUDA/saccade-run", r"CAPI/example", r"Unit/Support")),
    Component("Pipeline", ("lib/Pipeline", "lib/Support"),
              (r"Pipeline/", r"Bufferize/fold", r"Tools/(explain|exit|saccade-compile|plugin|debug|language|stages|mlir-options)", r"Unit/Support",
               r"Unit/JIT", r"Fuzz/inserted"),
              ("run",)),
    Component("Python", ("python/saccade",),
              (r"Fuzz/random[-_]calls",),
              ("artifact", "attention*", "binding*", "builders", "compiling", "concurrency", "diagnostics", "disk_cache",
               "gpu*", "guards", "linear", "mask*", "merg*", "numpy*", "packaging", "packed", "paged", "quantized", "updated_arguments", "ragged", "run", "scores*", "threads",
               "torch_calls", "torch_distributed", "torch_operator", "torch_tracing", "tune", "torch_gradients", "torch_gradcheck", "jax_attention")),
    Component("Observe", ("python/saccade/observe",), (),
              ("collapse", "mask_tiles_of_calls", "observe_*", "report*", "zoomed_tiles")),
    Component("Regions", ("python/saccade/regions",), (r"Fuzz/random[-_]calls",), ("regions_*", "attention_functions")),
    Component("Readers", _modules(
        "_command _graph _text onnx/ torch/__init__ torch/__main__ torch/backend torch/caches torch/compiled torch/errors "
        "torch/operators torch/program torch/reader torch/whole_graph jax/__init__ jax/__main__ jax/compiled "
        "jax/constants jax/errors jax/program jax/reader"),
              (r"Fuzz/onnx_models", r"Python/Onnx/"), ("onnx_*", "torch_*", "jax_*", "graph_text", "importing")),
    Component("Frameworks", _modules("torch/ jax/ transformers/"), (),
              ("torch_flex", "torch_sdpa", "torch_enabled", "torch_nested", "torch_distributed", "torch_traced_drop_ins", "torch_*",
               "transformers_*", "jax_attention", "jax_dot_product", "attention_functions")),
    Component("Serve", ("examples/serve",), (), ("serve_scheduler", "serve_protocol", "serve_http", "serve_model")),
]


def components(names: list[str]) -> list[Component]:
    """The components of these names in any case, all without names. Raises ValueError for an unknown one."""
    known = {component.name.lower(): component for component in COMPONENTS}
    for name in names:
        if name.lower() not in known:
            raise ValueError(f"there is no component '{name}', expected one of {', '.join(r.name for r in COMPONENTS)}")
    return [known[name.lower()] for name in names] or COMPONENTS


def component_of(file: str) -> str:
    """The component of a source file: that with the longest source that is or contains it; empty if there is none."""
    held = [(len(source), each.name) for each in COMPONENTS for source in each.sources if f"{file}/".startswith(f"{source}/")]
    return max(held, default=(0, ""))[1]
