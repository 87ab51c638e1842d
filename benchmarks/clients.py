#!/usr/bin/env python3
"""Which attention of client libraries Saccade serves: small models of timm, x-transformers, vit-pytorch, diffusers,
open_clip, torchvision and PyTorch's own modules.

Usage: clients.py --site FOLDER [--install] [--only REGEX] [--whole] [--out FILE]
Each model is run as it is, in `saccade.torch.enabled()`, and, if that does not serve all of its attention, by
torch.compile(backend="saccade"). Outputs, and gradients of inputs and parameters, are compared. Then the whole model is
compiled, with the options whole_graph and partition. The table says what was served, and the reason for the rest. --install fills FOLDER by pip; the environment of the tests stays as it is.
"""

import argparse
import collections
import contextlib
import functools
import importlib
import importlib.metadata
import logging
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
import types

# The packages whose versions the table says.
SHOWN = ("timm", "x-transformers", "vit-pytorch", "einops", "einx", "diffusers", "sentence-transformers",
         "open_clip_torch", "torchvision")
PACKAGES = ["timm==1.0.31", "x-transformers==2.31.10", "vit-pytorch==1.26.14", "einops==0.8.2", "einx==0.4.3",
            "diffusers==0.42.1", "sentence-transformers==6.2.0", "open_clip_torch==3.3.0", "torchvision==0.28.0",
            "torch-einops-utils==0.2.0", "scipy", "scikit-learn", "joblib", "threadpoolctl", "cloudpickle", "loguru", "ftfy", "wcwidth", "frozendict", "requests", "urllib3", "idna", "certifi", "charset-normalizer",
            "importlib_metadata", "zipp", "pillow"]  # fmt: skip
TOLERANCE = 2e-3
"""The greatest difference of f32 results, relative to the greatest element."""
SECONDS = 600
"""The time limit of one run of a model."""
MEASURED = f"""\
Each model runs in f32 and in eval mode: as it is, in `saccade.torch.enabled()`, and, unless that serves all of its
attention, compiled by `torch.compile(backend="saccade")`. The column *by* says which way served more calls, and is
the second way if both served as many.

- *served*: all calls of attention that either way noticed run as kernels of Saccade, *in part* some of them, and
  *PyTorch's* none.
- *wrong*: an output or a gradient of an input or a parameter differs from the plain model's by more than {TOLERANCE} of
  its greatest element, or of a thousandth of the greatest of all results if that is more.
- *as aot_eager*: they differ, and are those of `torch.compile(backend="aot_eager")`, without Saccade.
- *error*: the model or the comparison failed, for instance after the limit of {SECONDS} s.
- The reasons are those that Saccade reports. One that starts with a way is of the other way than the row.

The column *whole graph* is of `torch.compile(backend="saccade", options={{"whole_graph": True}})` without gradients: *equal* where
each graph becomes one program. Where an operator is not supported, `"partition": True` leaves it to PyTorch, and the
column names it. Results are compared with those of `torch.compile(backend="aot_eager")`, which differ from the plain
model's in the padding of `nn.TransformerEncoder`.
"""

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from saccade_bench import client_models

# Names of cases and functions that return a module and its arguments.
CASES = {}


# --- PyTorch ----------------------------------------------------------------------------------------------------------


def torch_cases(torch):
    nn = torch.nn
    x = lambda: torch.randn(2, 9, 32)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(9)
    padding = torch.arange(9) >= torch.tensor([[9], [6]])

    class Call(nn.Module):
        def __init__(self, inner, call):
            super().__init__()
            self.inner, self.call = inner, call

        def forward(self, *inputs):
            return self.call(self.inner, *inputs)

    mha = lambda **options: nn.MultiheadAttention(32, 4, batch_first=True, **options)
    plain = {
        "MultiheadAttention, no weights": lambda: (Call(mha(), lambda m, x: m(x, x, x, need_weights=False)[0]), (x(),)),
        "MultiheadAttention, weights": lambda: (Call(mha(), lambda m, x: m(x, x, x)[0]), (x(),)),
        "MultiheadAttention, key padding": lambda: (
            Call(mha(), lambda m, x: m(x, x, x, key_padding_mask=padding, need_weights=False)[0]), (x(),)),
        "MultiheadAttention, causal": lambda: (
            Call(mha(), lambda m, x: m(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]), (x(),)),
        "MultiheadAttention, bias_kv": lambda: (
            Call(mha(add_bias_kv=True), lambda m, x: m(x, x, x, need_weights=False)[0]), (x(),)),
        "TransformerEncoderLayer": lambda: (nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), (x(),)),
        "TransformerEncoder, padding": lambda: (
            Call(nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 1),
                 lambda m, x: m(x, src_key_padding_mask=padding)), (x(),)),
        "TransformerDecoderLayer": lambda: (nn.TransformerDecoderLayer(32, 4, 64, batch_first=True), (x(), x())),
        "Transformer": lambda: (nn.Transformer(32, 4, 1, 1, 64, batch_first=True), (x(), x())),
    }
    for name, make in plain.items():
        CASES["torch.nn " + name] = make


# --- x-transformers ---------------------------------------------------------------------------------------------------

X_OPTIONS = {
    "encoder": {}, "flash": {"attn_flash": True}, "rotary": {"rotary_pos_emb": True},
    "alibi": {"alibi_pos_bias": True}, "relative bias": {"rel_pos_bias": True},
    "dynamic bias": {"dynamic_pos_bias": True}, "qk norm": {"attn_qk_norm": True},
    "one kv head": {"attn_one_kv_head": True}, "grouped heads": {"attn_kv_heads": 1},
    "memory": {"attn_num_mem_kv": 3}, "talking heads": {"attn_pre_talking_heads": True},
    "talking heads after": {"attn_post_talking_heads": True}, "top k": {"attn_sparse_topk": 4},
    "gated values": {"attn_gate_values": True}, "soft clamp": {"attn_softclamp_logits": True},
    "head scale": {"attn_head_scale": True}, "RMS norm": {"use_rmsnorm": True}, "zero kv": {"attn_add_zero_kv": True},
    "xpos": {"rotary_pos_emb": True, "rotary_xpos": True, "causal": True}, "decoder": {"causal": True},
    "decoder, flash": {"causal": True, "attn_flash": True},
    "decoder, alibi, flash": {"causal": True, "attn_flash": True, "alibi_pos_bias": True},
    "data dependent alibi": {"attn_data_dependent_alibi": True, "causal": True},
    "laser": {"attn_laser": True}, "attention on attention": {"attn_on_attn": True},
    "selective": {"attn_selective": True, "causal": True}, "macaron": {"macaron": True},
    "value rmsnorm": {"attn_value_rmsnorm": True},
    "residual attention": {"residual_attn": True}, "sigmoid": {"attn_sigmoid": True}, "hard": {"attn_hard": True},
}  # fmt: skip


def x_transformers_cases(torch):
    from x_transformers import TransformerWrapper
    from x_transformers.x_transformers import AttentionLayers

    def make(options):
        options = {"causal": False} | options
        layers = AttentionLayers(dim=32, depth=1, heads=2, attn_dim_head=16, **options)
        return TransformerWrapper(num_tokens=40, max_seq_len=16, attn_layers=layers), (torch.randint(0, 40, (2, 9)),)

    for name, options in X_OPTIONS.items():
        CASES["x-transformers " + name] = functools.partial(make, options)


# --- vit-pytorch ------------------------------------------------------------------------------------------------------

V = {"image_size": 32, "patch_size": 8, "num_classes": 5, "dim": 32, "depth": 1, "heads": 2, "mlp_dim": 32}
VIT = {
    "vit.ViT": V, "simple_vit.SimpleViT": V, "deepvit.DeepViT": V, "simple_flash_attn_vit.SimpleViT": V,
    "vit_for_small_dataset.ViT": V, "simple_vit_with_qk_norm.SimpleViT": V,
    "simple_vit_with_register_tokens.SimpleViT": V, "parallel_vit.ViT": V | {"num_parallel_branches": 2},
    "vit_with_patch_merger.ViT": V | {"depth": 2},
    "cait.CaiT": V | {"cls_depth": 1}, "cct.cct_2": {"img_size": 32, "num_classes": 5, "n_conv_layers": 1},
    "rvt.RvT": V, "learnable_memory_vit.ViT": V, "levit.LeViT": {
        "image_size": 64, "num_classes": 5, "dim": (32, 32), "depth": 1, "heads": 2, "mlp_mult": 2, "stages": 2},
    "pit.PiT": V | {"depth": (1, 1), "patch_size": 16},
    "max_vit.MaxViT": {"num_classes": 5, "dim_conv_stem": 8, "dim": 16, "dim_head": 8, "depth": (1,),
                       "window_size": 4, "dropout": 0.1},
    "mobile_vit.MobileViT": {"image_size": (64, 64), "dims": [16, 16, 16],
                             "channels": [8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 16], "num_classes": 5, "depths": (1, 1, 1)},
    "xcit.XCiT": V | {"cls_depth": 1, "dim_head": 16},
}  # fmt: skip


def vit_pytorch_cases(torch):
    def make(path, options):
        module, _, name = path.rpartition(".")
        kind = getattr(importlib.import_module("vit_pytorch." + module), name)
        size = options.get("image_size", options.get("img_size", 16))
        size = size[0] if isinstance(size, tuple) else size
        return kind(**options), (torch.randn(2, 3, size, size),)

    for path, options in VIT.items():
        CASES["vit-pytorch " + path] = functools.partial(make, path, options)


# --- timm, open_clip, torchvision, diffusers --------------------------------------------------------------------------

T = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 1, "num_heads": 2, "num_classes": 5}
TIMM = {
    "vision_transformer.VisionTransformer": T, "eva.Eva": T, "beit.Beit": T, "cait.Cait": T | {"depth_token_only": 1},
    "vision_transformer_relpos.VisionTransformerRelPos": T, "xcit.Xcit": T | {"cls_attn_layers": 1, "patch_size": 8},
    "swin_transformer.SwinTransformer": {
        "img_size": 32, "patch_size": 4, "embed_dim": 16, "depths": (2,), "num_heads": (2,), "window_size": 4,
        "num_classes": 5},
    "swin_transformer_v2.SwinTransformerV2": {
        "img_size": 32, "patch_size": 4, "embed_dim": 16, "depths": (2,), "num_heads": (2,), "window_size": 4,
        "num_classes": 5},
    "levit.Levit": {"img_size": 64, "embed_dim": (32,), "key_dim": 16, "depth": (1,), "num_heads": (2,),
                    "num_classes": 5},
    "mvitv2.MultiScaleVit": {},
    "pvt_v2.PyramidVisionTransformerV2": {"embed_dims": (16, 16, 16, 16), "depths": (1, 1, 1, 1),
                                          "num_heads": (2, 2, 2, 2), "num_classes": 5},
    "hiera.Hiera": {"img_size": (32, 32), "embed_dim": 16, "num_heads": 1, "stages": (1, 1, 1, 1),
                    "num_classes": 5},
    "twins.Twins": {"img_size": 32, "embed_dims": (16, 16), "num_heads": (2, 2), "depths": (1, 1),
                    "mlp_ratios": (2, 2), "sr_ratios": (2, 1), "wss": (2, 2), "num_classes": 5},
    "visformer.Visformer": {"img_size": 32, "init_channels": 8, "embed_dim": 32, "depth": (1, 1, 1), "num_heads": 2,
                            "num_classes": 5},
    "convit.ConVit": T | {"local_up_to_layer": 1},
    "crossvit.CrossVit": {"img_size": 48, "img_scale": (1.0, 1.0), "patch_size": (8, 12), "embed_dim": (16, 16),
                          "depth": ((1, 1, 1),), "num_heads": (2, 2), "mlp_ratio": (2.0, 2.0, 2.0), "num_classes": 5},
}  # fmt: skip


def timm_cases(torch):
    def make(path, options):
        module, _, name = path.rpartition(".")
        models = importlib.import_module("timm.models." + module)
        if name == "MultiScaleVit":
            config = models.MultiScaleVitCfg(depths=(1, 1), embed_dim=(16, 32), num_heads=(1, 2), pool_first=False)
            return models.MultiScaleVit(config, img_size=32, num_classes=5), (torch.randn(2, 3, 32, 32),)
        size = options.get("img_size", 32)
        size = size[0] if isinstance(size, tuple) else size
        return getattr(models, name)(**options), (torch.randn(2, 3, size, size),)

    for path, options in TIMM.items():
        CASES["timm " + path] = functools.partial(make, path, options)


def other_cases(torch):
    def clip():
        from open_clip.transformer import VisionTransformer

        model = VisionTransformer(image_size=32, patch_size=8, width=32, layers=1, heads=2, mlp_ratio=2.0,
                                  output_dim=16)
        return model, (torch.randn(2, 3, 32, 32),)

    def clip_text():
        from open_clip.transformer import TextTransformer

        return TextTransformer(context_length=9, vocab_size=40, width=32, heads=2, layers=1, output_dim=16), (
            torch.randint(0, 40, (2, 9)),)

    def torchvision_vit():
        from torchvision.models import VisionTransformer

        return VisionTransformer(32, 8, 1, 2, 32, 32, num_classes=5), (torch.randn(2, 3, 32, 32),)

    def torchvision_swin():
        from torchvision.models import SwinTransformer

        return SwinTransformer([4, 4], 16, [2], [2], [4, 4], num_classes=5, stochastic_depth_prob=0.0), (
            torch.randn(2, 3, 32, 32),)

    def diffusers_attention(processor, **options):
        from diffusers.models import attention_processor

        attention = attention_processor.Attention(32, heads=2, dim_head=16, **options)
        attention.set_processor(getattr(attention_processor, processor)())
        return attention, (torch.randn(2, 9, 32),)

    CASES["open_clip VisionTransformer"] = clip
    CASES["open_clip TextTransformer"] = clip_text
    CASES["torchvision VisionTransformer"] = torchvision_vit
    CASES["torchvision SwinTransformer"] = torchvision_swin
    CASES["diffusers AttnProcessor2_0"] = functools.partial(diffusers_attention, "AttnProcessor2_0")
    CASES["diffusers AttnProcessor"] = functools.partial(diffusers_attention, "AttnProcessor")
    CASES["diffusers AttnProcessor2_0, qk norm"] = functools.partial(
        diffusers_attention, "AttnProcessor2_0", qk_norm="rms_norm")


# --- runs -------------------------------------------------------------------------------------------------------------


def run(torch, module, inputs, function=None):
    """The output and the gradients of a call."""
    torch.manual_seed(1)
    fresh = lambda x: x.clone().requires_grad_() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
    inputs = torch.utils._pytree.tree_map(fresh, inputs)
    module.zero_grad()
    output = (module if function is None else function)(*inputs)
    tensors = [x for x in torch.utils._pytree.tree_leaves(output) if isinstance(x, torch.Tensor) and x.requires_grad]
    torch.manual_seed(2)
    sum((x * torch.randn(x.shape)).sum() for x in tensors).backward()
    given = [x for x in torch.utils._pytree.tree_leaves(inputs) if isinstance(x, torch.Tensor)]
    gradients = [x.grad for x in (*given, *module.parameters()) if x.grad is not None]
    return [x.detach().clone() for x in (*tensors, *gradients)]


def differs(found, expected):
    """Whether results are not those expected."""
    if len(found) != len(expected):
        return True
    # A gradient that is small next to the others is that of rounding.
    largest = max(float(x.abs().max()) for x in expected if x.numel())
    return any(not bool(torch_close(x, y, largest)) for x, y in zip(found, expected))


def torch_close(x, y, largest):
    scale = max(float(y.abs().max()) if y.numel() else 0.0, largest * 1e-3)
    return x.shape == y.shape and (x - y).abs().max() <= TOLERANCE * scale if x.numel() else True


@contextlib.contextmanager
def limited():
    """Raises TimeoutError after the limit."""

    def stop(*_):
        raise TimeoutError(f"more than {SECONDS} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def built(torch, make):
    """A module in eval mode and its inputs, the same ones at each call."""
    torch.manual_seed(0)
    module, inputs = make()
    return module.eval(), inputs


def judge(torch, saccade, make):
    """(verdict, way, calls served, calls, reasons) of a case."""
    module, inputs = built(torch, make)
    with limited():
        expected = run(torch, module, inputs)
    best = None
    for way in ("enabled()", "torch.compile"):
        torch._dynamo.reset()
        inside = saccade.torch.enabled if way == "enabled()" else contextlib.nullcontext
        mine, inputs = built(torch, make)  # some modules cannot be copied
        function = None if way == "enabled()" else torch.compile(
            mine, backend="saccade", options={"inner": "aot_eager"})
        try:
            with limited(), saccade.served() as report, inside():
                found = run(torch, mine, inputs, function)
        except Exception as error:  # such as gradients that the backend "aot_eager" has not
            if best is None:
                raise
            best[3].append(f"{way}: {error}".replace("\n", " ")[:160])
            break
        if differs(found, expected):
            if function is None or differs(found, by_pytorch(torch, make)):
                return "wrong", way, report.served, report.total, ["results differ"]
            return "as aot_eager", way, report.served, report.total, ["PyTorch's aot_eager differs from the model too"]
        # Each way notices attention that the other may not.
        total, reasons = max(report.total, best[2] if best else 0), list(report.reasons)
        if total and report.served == total:
            return "served", way, report.served, total, reasons
        if best is None or report.served >= best[1]:
            other = [f"{best[0]}: {reason}" for reason in best[3]] if best else []
            best = way, report.served, total, reasons or other
    return ("in part" if best[1] else "PyTorch's" if best[2] else "no attention seen"), *best


def by_pytorch(torch, make):
    """The output and gradients of a case compiled by PyTorch alone."""
    torch._dynamo.reset()
    module, inputs = built(torch, make)
    with limited():
        return run(torch, module, inputs, torch.compile(module, backend="aot_eager"))


def judge_whole(torch, make):
    """What the column "whole graph" says of a case."""
    tensors = lambda found: [x for x in torch.utils._pytree.tree_leaves(found) if isinstance(x, torch.Tensor)]
    module, inputs = built(torch, make)
    torch._dynamo.reset()
    with torch.no_grad(), limited():
        try:
            expected = tensors(torch.compile(module, backend="aot_eager")(*inputs))
        except Exception:  # it fails for group norms of tensors that are not contiguous
            expected = tensors(module(*inputs))
    for partition in (False, True):
        torch._dynamo.reset()
        with torch.no_grad(), limited(), plans() as texts:
            options = {"whole_graph": True, "partition": partition}
            try:
                found = tensors(torch.compile(module, backend="saccade", options=options)(*inputs))
            except Exception as error:
                message = str(error).replace("\n", " ")
                if partition:
                    return f"error: {message[:160]}"
                continue
        if differs(found, expected):
            return "wrong"
        left = sorted({re.sub(r" \(\d+\)$", "", name) for text in texts for name in text.split(", ")} - {"none"})
        return f"in parts; PyTorch's: {', '.join(left)}" if partition else "equal"


@contextlib.contextmanager
def plans():
    """What the log says of graphs that were divided."""
    texts, logger = [], logging.getLogger("saccade")
    handler = logging.Handler()
    mark = "run by PyTorch: "
    handler.emit = lambda record: texts.extend(
        [record.getMessage().rpartition(mark)[2].rpartition(": ")[0]] if mark in record.getMessage() else [])
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield texts
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--site", type=pathlib.Path, required=True, help="the folder of the client libraries")
    parser.add_argument("--install", action="store_true", help="install them there")
    parser.add_argument("--only", default="", help="the cases whose name has a match of this")
    parser.add_argument("--whole", action="store_true", help="the column of whole graphs only")
    parser.add_argument("--out", type=pathlib.Path, help="write the table to this file")
    args = parser.parse_args()
    if args.install:
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", args.site,
                        *PACKAGES], check=True)
    sys.path.append(str(args.site))
    import torch

    import saccade
    import saccade.torch
    import saccade.torch.backend

    # Builds of torchvision for other builds of torch have no operators, of which this module registers properties.
    sys.modules["torchvision._meta_registrations"] = types.ModuleType("torchvision._meta_registrations")
    CASES.update(client_models.cases(torch))
    for add in (torch_cases, x_transformers_cases, vit_pytorch_cases, timm_cases, other_cases):
        try:
            add(torch)
        except ImportError as error:
            print(f"{add.__name__}: {error}", file=sys.stderr)
    rows = []
    for name, make in CASES.items():
        if not re.search(args.only, name):
            continue
        told = lambda error: f"{type(error).__name__}: {error}".replace("\n", " ")[:240]
        try:  # the table says what fails
            whole = judge_whole(torch, make)
        except Exception as error:
            whole = f"error: {told(error)}"
        try:
            row = (name, *(("", "", 0, 0, []) if args.whole else judge(torch, saccade, make)), whole)
        except Exception as error:
            row = (name, "error", "", 0, 0, [told(error)], whole)
        rows.append(row)
        print(*row, flush=True)
    counts = collections.Counter(row[1] for row in rows)
    installed = {found.name: found.version for found in importlib.metadata.distributions(path=[str(args.site)])}
    versions = [f"{name} {installed[name]}" for name in SHOWN if name in installed]
    lines = [f"torch {torch.__version__} on a CPU with", textwrap.fill(", ".join(versions), 120) + ".", "", MEASURED,
             f"{len(rows)} models: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()) + ".",
             f"Whole graphs: {sum(row[-1] == 'equal' for row in rows)} equal, "
             f"{sum(row[-1].startswith('in parts') for row in rows)} in parts, "
             f"{sum(row[-1] == 'wrong' for row in rows)} wrong, {sum(row[-1].startswith('error') for row in rows)} errors.",
             "", "| model | attention | by | calls served | reason for the rest | whole graph |", "|---|---|---|---|---|---|"]
    for name, verdict, way, served, total, reasons, whole in rows:
        reason = "; ".join(reasons).replace("|", "\\|") if verdict != "served" else ""
        reason = reason.replace(os.path.abspath(args.site), "")
        lines.append(f"| {name} | {verdict} | {way} | {served} of {total} | {reason} | {whole} |")
    print("\n".join(lines))
    if args.out:
        args.out.write_text("# Attention of client libraries\n\n`benchmarks/clients.py`: " + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
