"""Layers of linear attention of Transformers models with attn_implementation="saccade" agree with "eager": logits, padding,
caches, chunks, generation, loss and gradients, graphs; and calls that Saccade leaves to the model say why."""

import copy
import itertools
import pickle

import pytest
import torch
import transformers
from linear_families import FAMILIES
from transformers_families import LENGTH, inputs_of, padding

import saccade
import saccade.transformers

# The functions that a family calls for whole sequences and for one position.
GATED = {"torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"}
KIMI = {"chunk_kimi_delta_attention", "recurrent_kimi_delta_attention"}
CONVOLUTIONS, NORM = {"causal_conv1d_fn", "causal_conv1d_update"}, "gated RMS norm"
MAMBA = {"mamba2_chunk_scan", "mamba2_selective_state_update"}
FUNCTIONS = {"qwen3_next": GATED, "qwen3_5": GATED, "qwen3_5_moe": GATED, "olmo_hybrid": GATED, "kimi_linear": KIMI,
             "bailing_hybrid": KIMI, "mamba2": MAMBA, "bamba": MAMBA, "falcon_h1": MAMBA, "granitemoehybrid": MAMBA,
             "nemotron_h": MAMBA, "zamba2": MAMBA, "minimax": {"lightning attention"}}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    """The name of a family, and its model."""
    return request.param, FAMILIES[request.param].build()


def assert_close(found, expected, tolerance=1e-5):
    scale = expected.abs().max()
    assert (found - expected).abs().max() <= tolerance * scale


def both(model, call):
    """The results of a call of the model with Saccade and with "eager", and the report of the first."""
    model.set_attn_implementation("eager")
    with saccade.served() as report:
        expected = call(model)
    assert not [each for each in report.calls if each.function != 'attn_implementation="saccade"' and each.is_served]
    model.set_attn_implementation("saccade")
    with saccade.served() as report:
        found = call(model)
    return found, expected, report


def served_functions(report):
    return {call.function for call in report.calls if call.is_served}


@torch.no_grad()
@pytest.mark.parametrize("side", [None, "left"])
def test_logits_agree_with_eager(family, side):
    name, model = family
    given = inputs_of(FAMILIES[name], side)
    found, expected, report = both(model, lambda model: model(**given).logits)
    if side is not None:  # what padded positions return has no meaning
        visible = padding(side).bool()
        found, expected = found[visible], expected[visible]
    assert_close(found, expected)
    assert served_functions(report) & FUNCTIONS[name]
    assert not report.not_served


@torch.no_grad()
def test_steps_and_chunks_with_a_cache_agree_with_eager(family):
    name, model = family
    tokens = torch.randint(2, 99, (2, LENGTH + 9), generator=torch.Generator().manual_seed(2))
    bounds = [0, LENGTH, LENGTH + 1, LENGTH + 2, LENGTH + 9]
    cache_name = "cache_params" if name == "mamba2" else "past_key_values"

    def call(model):
        cache, logits = None, []
        for start, end in itertools.pairwise(bounds):
            result = model(tokens[:, start:end], **{cache_name: cache}, use_cache=True)
            cache = result[cache_name]
            logits.append(result.logits)
        return torch.cat(logits, 1)

    found, expected, report = both(model, call)
    assert_close(found, expected)
    assert served_functions(report) >= FUNCTIONS[name]
    if name != "minimax":
        assert served_functions(report) >= CONVOLUTIONS
        assert (NORM in served_functions(report)) == (name != "falcon_h1")  # whose norm is optional, and not of this model


@torch.no_grad()
def test_generated_tokens_agree_with_eager(family):
    name, model = family
    given = inputs_of(FAMILIES[name], "left")
    options = {"max_new_tokens": 6, "min_new_tokens": 6}
    for more in ({"do_sample": False}, {"num_beams": 2, "do_sample": False}):
        found, expected, report = both(model, lambda model: model.generate(**given, **options, **more))
        assert torch.equal(found, expected)
        assert served_functions(report) >= FUNCTIONS[name]


def test_loss_and_gradients_agree_with_eager(family):
    name, model = family
    given = inputs_of(FAMILIES[name])
    model.train()

    def call(model):
        model.zero_grad()
        torch.manual_seed(0)
        loss = model(**given, labels=given["input_ids"], use_cache=False).loss
        loss.backward()
        return loss.detach(), {key: x.grad.clone() for key, x in model.named_parameters() if x.grad is not None}

    try:
        (loss, found), (other, expected), report = both(model, call)
    finally:
        model.eval()
    assert_close(loss, other)
    assert found.keys() == expected.keys()
    scale = max(x.norm() for x in expected.values())
    for key, x in expected.items():
        assert (found[key] - x).norm() <= 1e-4 * x.norm() + 1e-6 * scale, key
    assert served_functions(report) & FUNCTIONS[name]
    assert not report.not_served


@torch.no_grad()
@pytest.mark.parametrize("name", ["qwen3_next", "kimi_linear", "mamba2", "minimax"])
def test_whole_graphs_agree_with_eager(name):
    torch._dynamo.reset()
    model = FAMILIES[name].build()
    tokens = inputs_of(FAMILIES[name])["input_ids"]
    expected = model(tokens, use_cache=False).logits
    model.set_attn_implementation("saccade")
    # Experts are chosen by their numbers, which breaks graphs.
    compiled = torch.compile(model, backend="aot_eager", fullgraph=name == "mamba2")
    assert_close(compiled(tokens, use_cache=False).logits, expected)


@torch.no_grad()
def test_a_graph_has_the_operator():
    torch._dynamo.reset()
    seen = []

    def backend(graph, inputs):
        seen.extend([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return graph

    model = FAMILIES["mamba2"].build()
    model.set_attn_implementation("saccade")
    tokens = inputs_of(FAMILIES["mamba2"])["input_ids"]
    torch.compile(model, backend=backend, fullgraph=True)(tokens, use_cache=False)
    assert sum("saccade.linear_attention" in name for name in seen) == 2


@torch.no_grad()
def test_copies_and_pickles_of_a_model_are_served():
    family = FAMILIES["qwen3_next"]
    model = family.build()
    model.set_attn_implementation("saccade")
    given = inputs_of(family)
    for made in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        with saccade.served() as report:
            made(**given)
        assert served_functions(report) & GATED
        made.set_attn_implementation("eager")
        with saccade.served() as report:
            made(**given)
        assert not report.total


@torch.no_grad()
def test_a_model_that_is_made_with_saccade_is_served():
    family = FAMILIES["bamba"]
    config = getattr(transformers, family.config)(**family.settings)
    model = getattr(transformers, family.model)._from_config(config, attn_implementation="saccade").eval()
    with saccade.served(require=True) as report:
        model(**inputs_of(family))
    assert served_functions(report) & MAMBA


@torch.no_grad()
def test_mamba_1_is_left_to_the_model_in_words():
    config = transformers.MambaConfig(vocab_size=100, hidden_size=32, num_hidden_layers=1, state_size=8)
    model = transformers.MambaForCausalLM._from_config(config, attn_implementation="saccade").eval()
    with saccade.served() as report:
        model(torch.arange(2, 12)[None])
    (call, count), = [each for each in report.calls.items() if not each[0].is_served]
    assert served_functions(report) == {"causal_conv1d_fn"}
    assert call.function == "mamba_selective_scan"
    assert call.reason == "Mamba-1 decays each element of its state in its own way, expected Mamba-2"
    assert "mixer" in call.module
    assert count == 1


@torch.no_grad()
def test_an_export_has_the_operators_of_pytorch():
    family = FAMILIES["mamba2"]
    model = family.build()
    tokens = inputs_of(family)["input_ids"]
    expected = model(tokens, use_cache=False).logits
    model.set_attn_implementation("saccade")
    exported = torch.export.export(model, (tokens,), {"use_cache": False})
    assert not [node for node in exported.graph.nodes if "saccade" in str(node.target)]
    assert_close(exported.module()(tokens, use_cache=False).logits, expected)
