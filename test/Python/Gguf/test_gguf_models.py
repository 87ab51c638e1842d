"""GGUF files of small models with random weights: the logits are those of Transformers, which has the same weights."""

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind

import gguf_models
import saccade
import saccade.gguf
from saccade.gguf import FileError

torch = pytest.importorskip("torch")
TOKENS = np.random.default_rng(1).integers(0, 96, 60).tolist()


def logits_of(model, tokens=TOKENS):
    return model(torch.tensor([tokens])).logits[0].numpy()


@pytest.fixture(scope="module", params=gguf_models.CLASSES)
def loaded(request, tmp_path_factory):
    """An architecture, the model of Transformers and the file's."""
    model = gguf_models.make(request.param)
    path = tmp_path_factory.mktemp(request.param) / "model.gguf"
    gguf_models.save(path, request.param, model)
    return request.param, model, saccade.gguf.load(path)


def assert_near(found, expected, bound=2e-6):
    """The bound is relative to the largest logit."""
    assert found.shape == expected.shape and found.dtype == np.float32
    assert abs(found - expected).max() <= bound * max(abs(expected).max(), 1)


def test_logits_of_a_prompt(loaded):
    _, model, ours = loaded
    assert_near(ours.session().logits(TOKENS), logits_of(model))


def test_chunks_and_single_tokens(loaded):
    _, model, ours = loaded
    expected, session = logits_of(model), ours.session()
    for start, end in ((0, 7), (7, 8), (8, 33), (33, 34), (34, 35), (35, 60)):
        assert session.length == start
        assert_near(session.prefill(TOKENS[start:end]), expected[end - 1])


def test_generates_the_tokens_of_transformers(loaded):
    _, model, ours = loaded
    prompt = TOKENS[:9]
    expected = model.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=None,
                              pad_token_id=0)
    assert list(ours.generate(prompt, 12, stop=())) == expected[0, len(prompt):].tolist()


def test_texts_of_different_lengths_in_one_batch(loaded):
    """The program itself takes several texts, whose new tokens are padded."""
    _, model, ours = loaded
    sizes, new = ours.settings, [TOKENS[:5], TOKENS[20:32], TOKENS[40:41]]
    caches = [np.zeros((3, sizes.kv_heads, 40, sizes.head_dim), np.float32) for _ in range(2 * sizes.layers)]
    lengths = np.zeros(3, np.int32)
    texts = [[], [], []]
    for _ in range(2):
        counts = np.array([len(each) for each in new], np.int32)
        tokens = np.full((3, counts.max()), 77, np.int32)
        for row, each in zip(tokens, new):
            row[: len(each)] = each
        logits = ours.function(tokens, lengths, counts, counts[:, None] - 1, *caches)[-1]
        lengths += counts
        texts = [text + each for text, each in zip(texts, new)]
        for found, text in zip(logits, texts):
            assert_near(found[0], logits_of(model, text)[-1])
        new = [TOKENS[5:7], TOKENS[32:33], TOKENS[41:49]]


@pytest.mark.parametrize("architecture", ["gemma2", "gemma3"])
def test_the_models_depend_on_what_the_metadata_says(architecture):
    """Windows and caps matter for the logits that the tests above compare."""
    expected = logits_of(gguf_models.make(architecture))
    changes = [{"sliding_window": 8}, {"attn_logit_softcapping": 3.0}, {"final_logit_softcapping": 2.0}]
    for change in changes if architecture == "gemma2" else changes[:1]:
        assert abs(logits_of(gguf_models.make(architecture, **change)) - expected).max() > 1e-4, change


SCALED = {
    "linear": (dict(rope_type="linear", factor=4.0), dict(rope__scaling__type="linear", rope__scaling__factor=4.0)),
    "yarn": (dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64),
             dict(rope__scaling__type="yarn", rope__scaling__factor=4.0, rope__scaling__original_context_length=64)),
}


@pytest.mark.parametrize(("architecture", "kind"), [("llama", "linear"), ("qwen2", "yarn")])
def test_scaled_rotary_positions(architecture, kind, tmp_path):
    parameters, metadata = SCALED[kind]
    model = gguf_models.make(architecture, rope_parameters={"rope_theta": 10000.0, **parameters})
    gguf_models.save(tmp_path / "model.gguf", architecture, model, **metadata)
    ours = saccade.gguf.load(tmp_path / "model.gguf")
    tokens = TOKENS * 4
    assert_near(ours.session().logits(tokens), logits_of(model, tokens), 1e-5)
    assert abs(logits_of(model) - logits_of(gguf_models.make(architecture))).max() > 1e-3


def test_factors_of_rotary_positions(tmp_path):
    """Llama 3's scaling is a tensor of factors in the file."""
    parameters = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                      original_max_position_embeddings=64)
    model = gguf_models.make("llama", rope_parameters=parameters)
    own = 10000.0 ** -(np.arange(0, 16, 2) / 16)
    factors = (own / model.model.rotary_emb.inv_freq.numpy()).astype(np.float32)
    assert factors.max() > 7
    gguf_models.save(tmp_path / "model.gguf", "llama", model, more={"rope_freqs.weight": factors})
    ours = saccade.gguf.load(tmp_path / "model.gguf")
    assert_near(ours.session().logits(TOKENS), logits_of(model), 1e-5)


@pytest.mark.parametrize(("kind", "prepack"), [(Kind.F16, False), (Kind.BF16, True)])
def test_weights_of_16_bits(kind, prepack, tmp_path):
    """Rounded weights are those of the file: Transformers gets them as f32."""
    model, path = gguf_models.make("qwen2", tie_word_embeddings=True), tmp_path / "model.gguf"
    types = {name: kind for name, value in gguf_models.tensors("qwen2", model).items() if value.ndim == 2}
    meant = gguf_models.save(path, "qwen2", model, types)
    gguf_models.assign("qwen2", model, meant)
    ours = saccade.gguf.load(path, prepack=prepack)
    assert_near(ours.session().logits(TOKENS), logits_of(model))
    assert_near(ours.session().prefill(TOKENS[:1]), logits_of(model, TOKENS[:1])[0])


@pytest.mark.parametrize("cache", ["f16", "bf16"])
def test_caches_of_16_bits(cache, tmp_path):
    """Keys and values are rounded when they are appended, and by nothing else: the error is that of their rounding."""
    model, path = gguf_models.make("llama"), tmp_path / "model.gguf"
    gguf_models.save(path, "llama", model)
    exact, ours = logits_of(model), saccade.gguf.load(path, cache=cache)
    assert ours.function.inputs[4].dtype == {"f16": "float16", "bf16": "bfloat16"}[cache]
    error = abs(ours.session().logits(TOKENS) - exact).max()
    assert 1e-5 < error < {"f16": 5e-3, "bf16": 4e-2}[cache]


def test_bias_of_any_matrix(tmp_path):
    """Llama files may have biases that other models of the architecture do not have."""
    model = gguf_models.make("llama", attention_bias=True, mlp_bias=True)
    gguf_models.save(tmp_path / "model.gguf", "llama", model)
    assert_near(saccade.gguf.load(tmp_path / "model.gguf").session().logits(TOKENS), logits_of(model))


REFUSED = {
    "moe": ({"expert_count": 8}, {}, "llama.expert_count is 8, expected 0: others are not supported"),
    "longrope": ({"rope__scaling__type": "longrope"}, {}, "llama.rope.scaling.type is 'longrope', expected "
                 "'none', 'linear' or 'yarn'"),
    "values": ({"attention__value_length": 8}, {}, "attention.value_length is 8, expected 16, the length of keys"),
    "heads": ({"attention__head_count_kv": 3}, {}, "attention.head_count is 4, expected a multiple of 3"),
    "each layer": ({"attention__head_count_kv": [2, 4]}, {}, "attention.head_count_kv differs between layers"),
    "layers": ({"feed_forward_length": [96, 96, 96]}, {}, "feed_forward_length is (96, 96, 96), expected 2 numbers"),
    "type": ({"context_length": "many"}, {}, "llama.context_length is 'many', expected an integer from 1"),
    "shape": ({"feed_forward_length": 97}, {}, "'blk.0.ffn_gate.weight' has shape (96, 64), expected (97, 64)"),
    "missing": ({"block_count": 3}, {}, "the file has no tensor 'blk.2.attn_norm.weight', expected one of shape (64,)"),
    "unused": ({}, {"blk.0.attn_sinks.weight": np.zeros(4, np.float32)}, "1 tensors are not those of the architecture "
               "llama: 'blk.0.attn_sinks.weight'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_supported_is_refused_by_name(case, tmp_path):
    metadata, more, message = REFUSED[case]
    path = tmp_path / "model.gguf"
    gguf_models.save(path, "llama", gguf_models.make("llama"), more=more, replaced=metadata)
    with pytest.raises(FileError) as error:
        saccade.gguf.load(path)
    assert str(error.value).startswith(f"{path}: ") and message in str(error.value)


def test_another_architecture(tmp_path):
    path = tmp_path / "model.gguf"
    gguf_models.save(path, "mamba", gguf_models.make("llama"))
    with pytest.raises(FileError, match="the architecture is 'mamba', expected one of llama, qwen2, qwen3, gemma"):
        saccade.gguf.load(path)


def test_a_part_of_a_model(tmp_path):
    path = tmp_path / "model.gguf"
    out = gguf.GGUFWriter(path, "llama")
    out.add_key_value("split.count", 3, gguf.GGUFValueType.UINT16)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.close()
    with pytest.raises(FileError, match="the file is one of 3 of a model, expected a model in one file"):
        saccade.gguf.load(path)


def test_unknown_keys_are_a_warning(tmp_path):
    path = tmp_path / "model.gguf"
    gguf_models.save(path, "llama", gguf_models.make("llama"), attention__new_feature=3)
    with pytest.warns(saccade.Warning, match="llama.attention.new_feature: not known, ignored"):
        saccade.gguf.load(path)
