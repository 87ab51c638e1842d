"""Model families of Transformers with attn_implementation="saccade" against "eager", padded on either side."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from transformers_families import FAMILIES, inputs_of, outputs_of

import saccade
import saccade.transformers

# Kinds that take a 2-D mask.
MASKED = ("encoder", "decoder", "encoder-decoder")
CASES = [(name, side) for name, family in FAMILIES.items() for side in (None, "left", "right")
         if side is None or family.kind in MASKED]
# Padding between tokens, which is no length.
CASES += [(name, "middle") for name in ("bert", "modernbert", "llama", "mistral", "t5")]


@pytest.fixture(scope="module")
def models():
    return {}


def error_of(model, given):
    """The largest error of an output relative to its largest element; rows of padding tokens have no meaning."""
    expected, found = (outputs_of(model, given, name) for name in ("eager", "saccade"))
    assert expected.keys() == found.keys()
    errors = []
    for name, value in expected.items():
        error = (found[name] - value).abs()
        assert error.isfinite().all()
        mask = given.get("attention_mask")
        if mask is not None and error.shape[:2] == mask.shape:
            error = error[mask.bool()]
        errors.append((error.max() / value.abs().max()).item())
    return max(errors)


@pytest.mark.parametrize(("name", "side"), CASES)
def test_family(models, name, side):
    family = FAMILIES[name]
    if name not in models:
        models[name] = family.build()
    model = models[name]
    assert error_of(model, inputs_of(family, side)) < 2e-5
    before = saccade.cache_info().compilations
    outputs_of(model, inputs_of(family, side), "saccade")
    assert saccade.cache_info().compilations == before


@pytest.mark.parametrize(("name", "dtype"), [("bert", torch.float16), ("llama", torch.bfloat16), ("t5", torch.bfloat16)])
def test_half(name, dtype):
    """In 16 bits the error is at most about that of eager attention, against f32."""
    family = FAMILIES[name]
    model, given = family.build(), inputs_of(family, "right")
    mask = given["attention_mask"].bool()
    key = "last_hidden_state" if name == "bert" else "logits"

    def norm_of(x, exact):
        difference = (x[key].float() - exact[key])
        return (difference[mask] if difference.shape[:2] == mask.shape else difference).norm()

    exact = outputs_of(model, given, "eager")
    model = model.to(dtype)
    eager, found = (outputs_of(model, given, name) for name in ("eager", "saccade"))
    assert norm_of(found, exact) < 1.3 * norm_of(eager, exact)
