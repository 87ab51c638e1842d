"""Small models of `transformers`, exported and compiled by `saccade.torch`."""

import torch
from small_models import MODELS, inputs_of

import saccade.torch


def check(name, attention, raised, dynamic=False, length=12, type=torch.float32, tolerance=1e-5, left=0):
    """Compiles a model with PyTorch's `attention` (eager, sdpa), all lengths and batches open where `dynamic`. What it
    gives must have PyTorch's trees and agree with PyTorch; `raised` attentions must have been found in it, and `left`
    softmaxes that are none, each with a remark. Gives the program with all attentions."""
    model = MODELS[name]().to(type)
    if hasattr(model, "set_attn_implementation"):
        model.set_attn_implementation(attention)

    def draw(batch, length):
        return {key: each.to(type) if each.is_floating_point() else each
                for key, each in inputs_of(name, batch, length).items()}

    given, any_size = draw(2, length), torch.export.Dim.DYNAMIC
    shapes = {key: dict.fromkeys(range(2 if each.dim() == 2 else 1), any_size) for key, each in given.items()}
    compiled = saccade.torch.compile(model, (), given, dynamic_shapes=shapes if dynamic else None)
    text = compiled.module.ir("transforms")
    found = text.count("= attn.attention")
    assert found == raised, f"{name}: found {found} attentions, expected {raised}"
    assert compiled.module.explain().count("not raised to attention: ") == left, compiled.module.explain()
    worst = 0
    for size in ((2, length), (3, 29)) if dynamic else ((2, length),):
        given = draw(*size)
        with torch.no_grad():
            expected = model(**given)
        result = compiled(**given)
        assert isinstance(result, expected.__class__), (result.__class__, expected.__class__)
        if isinstance(expected, torch.Tensor):
            result, expected = {"output": result}, {"output": expected}
        assert list(result) == list(expected)
        for key in expected:
            assert result[key].dtype == expected[key].dtype and result[key].shape == expected[key].shape, key
            error = (result[key].double() - expected[key].double()).norm() / expected[key].double().norm()
            assert error <= tolerance, f"{name} {attention} {size}: {key} differs by {error:.2g}"
            worst = max(worst, error.item())
    print(f"{name} {attention} {type} {'any size' if dynamic else 'one size'}: {found} attentions, {left} softmaxes "
          f"left, differs by {worst:.2g}")
    return text
