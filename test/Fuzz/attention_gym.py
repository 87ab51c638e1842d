#!/usr/bin/env python3
# REQUIRES: torch, attn_gym
# UNSUPPORTED: asan, tsan
# RUN: %python %s
"""The score and mask functions of attention-gym, unmodified, with saccade.torch.flex_attention against PyTorch's.

Usage: attention_gym.py [PATH] [--verbose]
PATH is the folder that contains the package attn_gym, of a checkout or of an unpacked wheel (`pip download --no-deps attn-gym`).
Without PATH it is the installed one. A function is also run under saccade.torch.enabled() and in
torch.compile. Functions that Saccade refuses are listed with its message; the exit code is 1 if a result differs, or if the
refused functions are not those of REFUSED.
"""

import argparse
import importlib.util
import pathlib
import sys
import types
import warnings

import torch
import torch.nn.functional as F
from torch.nn.attention import flex_attention as pytorch

import saccade
import saccade.torch

BATCH, HEADS, SIDE = 2, 4, 8
LENGTH = SIDE * SIDE
REFUSED = {
    "mods.latent_attention": "a dot product of rows of two tensors",
    "masks.vsa": "a search one after the other of a tensor",
}
"""Why Saccade does not trace these functions."""


def cases(gym):
    """(name, score_mod, mask_mod) of every function; `gym` imports a module of the package."""
    draw = torch.Generator().manual_seed(3)
    offsets = torch.tensor([0, 10, 35, LENGTH])
    causal = gym("masks.causal").causal_mask
    scores = {
        "mods.activation": gym("mods.activation").generate_activation_score_mod(),
        "mods.activation, relu": gym("mods.activation").generate_activation_score_mod(F.relu, 0.5),
        "mods.activation, sigmoid": gym("mods.activation").generate_activation_score_mod(torch.sigmoid, 0.5),
        "mods.alibi": gym("mods.alibi").generate_alibi_bias(HEADS),
        "mods.latent_attention": gym("mods.latent_attention").generate_mla_rope_score_mod(
            torch.randn(BATCH, HEADS, LENGTH, 8, generator=draw), torch.randn(BATCH, 1, LENGTH, 8, generator=draw), HEADS),
        "mods.softcapping": gym("mods.softcapping").generate_tanh_softcap(20),
        "mods.softcapping, approximate": gym("mods.softcapping").generate_tanh_softcap(20, approx=True),
    }
    if graphs := gym("mods.graphormer"):
        adjacency = torch.rand(BATCH, LENGTH, LENGTH, generator=draw) > 0.9
        adjacency = adjacency | adjacency.mT
        distances = graphs.shortest_path_distances(adjacency, 5)
        kinds = torch.randint(0, 3, (BATCH, LENGTH, LENGTH), generator=draw)
        edges, lengths = graphs.shortest_path_edge_types(adjacency, kinds, 3)
        scores["mods.graphormer, spatial"] = graphs.generate_graphormer_spatial_bias(
            torch.randn(HEADS, 7, generator=draw), distances)
        scores["mods.graphormer, edges"] = graphs.generate_graphormer_edge_bias(
            torch.randn(HEADS, 3, 3, generator=draw), edges, lengths)
    if sandwich := gym("mods.sandwich"):
        scores["mods.sandwich"] = sandwich.generate_sandwich_bias(HEADS, LENGTH, 32)
    tree = torch.eye(LENGTH // 2, dtype=torch.bool)
    masks = {
        "masks.batchify": lambda: gym("masks.batchify").batchify_mask_mod(causal, 16),
        "masks.block_diffusion": lambda: gym("masks.block_diffusion").generate_block_diffusion_mask(LENGTH // 2, 8),
        "masks.causal": lambda: causal,
        "masks.dilated_sliding_window": lambda: gym("masks.dilated_sliding_window").generate_dilated_sliding_window(5, 2),
        "masks.document_mask": lambda: gym("masks.document_mask").generate_doc_mask_mod(causal, offsets),
        "masks.document_mask, packed": lambda: gym("masks.document_mask").generate_packed_causal_doc_mask_mod(offsets),
        "masks.flamingo": lambda: gym("masks.flamingo").generate_vision_cross_attention_mask_mod(
            torch.tensor([[0, 20], [10, 50], [40, LENGTH], [0, LENGTH]]), LENGTH // 4),
        "masks.global_sliding_window": lambda: gym("masks.global_sliding_window").generate_global_sliding_window(
            4, torch.arange(LENGTH) % 9 == 0),
        "masks.jetspec, tree": lambda: gym("masks.jetspec").generate_jetspec_tree_causal_mask_mod(LENGTH // 2, tree),
        "masks.jetspec, training": lambda: gym("masks.jetspec").generate_jetspec_training_mask_mod(LENGTH // 2, 8),
        "masks.natten": lambda: gym("masks.natten").generate_natten(SIDE, SIDE, 3, 3),
        "masks.natten, tiled": lambda: gym("masks.natten").generate_tiled_natten(SIDE, SIDE, 3, 3, 4, 4),
        "masks.natten, Morton": lambda: gym("masks.natten").generate_morton_natten(SIDE, SIDE, 3, 3),
        "masks.prefix_lm": lambda: gym("masks.prefix_lm").generate_prefix_lm_mask(9),
        "masks.shared_prefix": lambda: gym("masks.shared_prefix").generate_shared_prefix_mask_mod(
            offsets, torch.tensor([0, 0, 0])),
        "masks.sliding_window": lambda: gym("masks.sliding_window").generate_sliding_window(7),
        "masks.sta, 2d": lambda: gym("masks.sta").generate_sta_mask_mod_2d((SIDE, SIDE), (4, 4), (2, 2)),
        "masks.sta, 3d": lambda: gym("masks.sta").generate_sta_mask_mod_3d((4, 4, 4), (2, 2, 2), (2, 2, 2)),
        "masks.svg, spatial": lambda: gym("masks.svg").generate_spatial_head_mask_mod(4, 4, 15, 1, round_width=8),
        "masks.svg, temporal": lambda: gym("masks.svg").generate_temporal_head_mask_mod(4, 4, 15, 1),
        "masks.vsa": lambda: gym("masks.vsa").generate_vsa_mask_mod(
            torch.randint(0, 8, (BATCH, HEADS, 8, 3), generator=draw), 8),
        "masks.vsa, padding": lambda: gym("masks.vsa").generate_vsa_padding_mask_mod(torch.randint(1, 9, (8,)), 8),
    }
    for name, score_mod in scores.items():
        yield name, score_mod, None
    for name, make in masks.items():
        if gym(name.partition(",")[0]):
            yield name, None, make()


def check(score_mod, mask_mod, tensors):
    """None, or what is wrong with the results. Raises saccade.TraceError for a function that is refused."""
    queries, keys = tensors[0].shape[2], tensors[1].shape[2]
    blocks = mask_mod and pytorch.create_block_mask(mask_mod, BATCH, HEADS, queries, keys, device="cpu", BLOCK_SIZE=16)
    # The last bits of an output depend on whether the log-sum-exp is computed.
    arguments = dict(score_mod=score_mod, block_mask=blocks, return_lse=True)
    expected, lse = pytorch.flex_attention(*[x.double() for x in tensors], **arguments)
    found, found_lse = saccade.torch.flex_attention(*tensors, **arguments)
    with saccade.torch.enabled():
        replaced, _ = pytorch.flex_attention(*tensors, **arguments)
    torch._dynamo.reset()
    compiled, _ = torch.compile(lambda q, k, v: saccade.torch.flex_attention(q, k, v, **arguments), backend="eager")(*tensors)
    close = lambda x, y: torch.allclose(x.double(), y, atol=1e-5, rtol=1e-5)
    if not close(found, expected) or not close(found_lse, lse):
        return f"differs from PyTorch by {(found - expected).abs().max():.2g}"
    if not torch.equal(found, replaced):
        return "differs under enabled()"
    return None if torch.equal(found, compiled) else "differs in torch.compile"


def importer(path):
    """A function that imports a module of attn_gym, without the package's own imports; None for one that it lacks."""
    package = types.ModuleType("attn_gym")
    package.__path__ = [str(path / "attn_gym")]
    for name in ("masks", "mods"):
        inner = types.ModuleType(f"attn_gym.{name}")
        inner.__path__ = [str(path / "attn_gym" / name)]
        # Modules import the functions of other modules from the package.
        inner.__getattr__ = lambda needed, name=name: find(name, needed)
        sys.modules[inner.__name__] = inner
    sys.modules["attn_gym"] = package

    def find(name, needed):
        for file in sorted((path / "attn_gym" / name).glob("[a-z]*.py")):
            if f"def {needed}(" in file.read_text():
                return getattr(importlib.import_module(f"attn_gym.{name}.{file.stem}"), needed)
        raise AttributeError(needed)

    def gym(name):
        return importlib.import_module(f"attn_gym.{name}") if (path / "attn_gym" / (name.replace(".", "/") + ".py")).exists() else None

    return gym


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", nargs="?", type=pathlib.Path)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    path = args.path
    if path is None:
        path = pathlib.Path(importlib.util.find_spec("attn_gym").origin).parent.parent
    warnings.simplefilter("ignore")
    pytorch._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True  # PyTorch evaluates its functions directly
    tensors = torch.randn(3, BATCH, HEADS, LENGTH, 16, generator=torch.Generator().manual_seed(1))
    count, refused, wrong = 0, {}, {}
    for name, score_mod, mask_mod in cases(importer(path)):
        count += 1
        try:
            queries = LENGTH // 2 if name == "masks.jetspec, tree" else LENGTH
            if problem := check(score_mod, mask_mod, (tensors[0][:, :, :queries], *tensors[1:])):
                wrong[name] = problem
        except saccade.TraceError as error:
            refused[name] = str(error)
        except Exception as error:
            wrong[name] = f"{type(error).__name__}: {error}"
        if args.verbose:
            print(name, wrong.get(name) or refused.get(name) or "agrees")
    print(f"{count} functions: {count - len(refused) - len(wrong)} agree, {len(refused)} refused, {len(wrong)} wrong")
    for name, message in {**refused, **wrong}.items():
        print(f"  {name}: {message}")
    unexpected = [name for name in refused if name not in REFUSED]
    return 1 if wrong or unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
