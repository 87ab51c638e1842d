"""`generate` with attn_implementation="saccade": the tokens of "eager" with every cache, without compiling at each step."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from transformers_families import FAMILIES, inputs_of, padding

import saccade
import saccade.transformers

# Transformers' sliding caches are the dynamic and static caches of models with windows.
CACHES = {"dynamic": {}, "static": {"cache_implementation": "static"}, "none": {"use_cache": False}}
DECODERS = ("llama", "mistral", "gpt_oss")
CASES = [(name, cache) for name in DECODERS for cache in ("dynamic", "static")]
CASES += [("gemma2", "static"), ("llama", "none"), ("mistral", "none"), ("t5", "dynamic"), ("t5", "static"), ("whisper", "dynamic"),
          ("bart", "static"), ("deepseek_v4", "dynamic")]


@pytest.fixture(scope="module")
def models():
    return {}


def built(models, name):
    if name not in models:
        models[name] = FAMILIES[name].build()
    return models[name]


def tokens_of(model, given, implementation, **options):
    """Sampled from a fixed seed: the most likely tokens of random weights repeat."""
    model.set_attn_implementation(implementation)
    torch.manual_seed(0)
    with torch.no_grad():
        return model.generate(**given, do_sample=True, temperature=3.0, top_k=0, **{"max_new_tokens": 9, **options})


def prompt_of(name, side="left"):
    given = inputs_of(FAMILIES[name], side)
    given.pop("decoder_input_ids", None)
    return given


@pytest.mark.parametrize(("name", "cache"), CASES)
def test_tokens(models, name, cache):
    model, given = built(models, name), prompt_of(name)
    expected, found = (tokens_of(model, given, each, **CACHES[cache]) for each in ("eager", "saccade"))
    assert expected.tolist() == found.tolist()
    assert len(set(found[0, -9:].tolist())) > 3


@pytest.mark.parametrize("options", [{"num_beams": 2}, {"prefill_chunk_size": 5},
                                     {"cache_implementation": "static", "prefill_chunk_size": 5}], ids=str)
def test_options_of_generate(models, options):
    model, given = built(models, "mistral"), prompt_of("mistral")
    expected, found = (tokens_of(model, given, each, **options) for each in ("eager", "saccade"))
    assert expected.tolist() == found.tolist()


def test_number_of_compilations(models):
    """Steps, prompt lengths, batches and padding take no compilation of their own."""
    model = built(models, "llama")
    tokens_of(model, prompt_of("llama"), "saccade")
    tokens_of(model, prompt_of("llama", "right"), "saccade")  # new tokens come after padding: no length
    before = saccade.cache_info().compilations
    tokens_of(model, prompt_of("llama"), "saccade", max_new_tokens=30)
    for batch, length in ((1, 5), (3, 9)):
        mask = padding("left", range(2, 2 + batch))[:, -length:]
        given = {"input_ids": torch.randint(2, 99, (batch, length)), "attention_mask": mask}
        tokens_of(model, given, "saccade")
    assert saccade.cache_info().compilations == before


def test_continued_cache(models):
    """Queries after keys of a cache: three tokens at once after seven, then one."""
    model = built(models, "mistral")
    given = prompt_of("mistral")
    results = []
    for implementation in ("eager", "saccade"):
        model.set_attn_implementation(implementation)
        cache = transformers.DynamicCache(config=model.config)
        with torch.no_grad():
            for start, end in ((0, 7), (7, 10), (10, 11)):
                logits = model(given["input_ids"][:, start:end], attention_mask=given["attention_mask"][:, :end],
                               past_key_values=cache).logits
        results.append(logits)
    assert torch.allclose(*results, atol=1e-4)


@pytest.mark.parametrize("name", ["deepseek_v4", "mistral"])
def test_a_sliding_cache_is_filled_in_chunks(models, name):
    """Chunks that are longer and shorter than the window (4 keys), then single tokens."""
    model = built(models, name)
    given = prompt_of(name)
    results = []
    for implementation in ("eager", "saccade"):
        model.set_attn_implementation(implementation)
        cache, start, logits = transformers.DynamicCache(config=model.config), 0, []
        with torch.no_grad():
            for length in (3, 5, 1, 2, 1):
                part = given["input_ids"][:, start : start + length]
                start += length
                logits.append(model(part, past_key_values=cache).logits)
        results.append(torch.cat(logits, 1))
    assert torch.allclose(*results, atol=1e-4)


# --- GrowingCache -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "mistral"])
@pytest.mark.parametrize("options", [{}, {"num_beams": 2}, {"prefill_chunk_size": 5}], ids=str)
def test_a_growing_cache_gives_the_same_tokens(models, name, options):
    model, given = built(models, name), prompt_of(name)
    expected = tokens_of(model, given, "eager", **options)
    cache = saccade.transformers.GrowingCache(config=model.config)
    assert tokens_of(model, given, "saccade", past_key_values=cache, **options).tolist() == expected.tolist()


def test_a_growing_cache_is_not_copied_at_each_step():
    from saccade.transformers.caches import _SPARE

    cache, dynamic = saccade.transformers.GrowingCache(), transformers.DynamicCache()
    random = torch.Generator().manual_seed(0)
    kept, addresses = [], []  # a kept tensor's address is not given to another

    def append(n, batch=2):
        new = torch.randn(2, batch, 3, n, 8, generator=random)
        for x, y in zip(cache.update(*new, 0), dynamic.update(*new, 0)):
            assert torch.equal(x, y)
        kept.append(cache.layers[0].keys)
        addresses.append(kept[-1].data_ptr())

    for n in (10, *[1] * _SPARE):
        append(n)
    assert len(set(addresses)) == 1
    append(5)  # the memory is full
    assert len(set(addresses)) == 2
    for each in (cache, dynamic):
        each.crop(-7)
    append(3)
    assert len(set(addresses)) == 2
    for each in (cache, dynamic):
        each.reorder_cache(torch.tensor([1, 0]))
    append(1)
    assert len(set(addresses)) == 3
    for each in (cache, dynamic):
        each.reset()
    append(4, batch=1)
    assert cache.get_seq_length() == 4


def test_a_growing_cache_records_gradients():
    cache = saccade.transformers.GrowingCache()
    x, y = (torch.randn(1, 2, 3, 8, requires_grad=True) for _ in range(2))
    cache.update(x, x, 0)
    keys, _ = cache.update(y, y, 0)
    keys.square().sum().backward()
    torch.testing.assert_close(x.grad, 2 * x)
    torch.testing.assert_close(y.grad, 2 * y)


def test_a_growing_cache_records_gradients_of_old_rows():
    cache = saccade.transformers.GrowingCache()
    x, y = torch.randn(1, 2, 3, 8, requires_grad=True), torch.randn(1, 2, 3, 8)
    cache.update(x, x, 0)
    keys, _ = cache.update(y, y, 0)
    loss = keys.square().sum()
    cache.update(y, y, 0)
    loss.backward()
    torch.testing.assert_close(x.grad, 2 * x)


def test_a_growing_cache_after_inference_mode():
    cache, new = saccade.transformers.GrowingCache(), torch.randn(1, 2, 3, 8)
    with torch.inference_mode():
        cache.update(new, new, 0)
    with torch.no_grad():
        keys, _ = cache.update(new, new, 0)
    assert torch.equal(keys, torch.cat([new, new], 2))


def test_a_growing_cache_neither_broadcasts_nor_converts():
    cache, new = saccade.transformers.GrowingCache(), torch.randn(2, 2, 3, 8)
    cache.update(new.half(), new.half(), 0)
    keys, _ = cache.update(new * 1e6, new * 1e6, 0)
    assert torch.equal(keys[:, :, 3:], new * 1e6)
    with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
        cache.update(new[:1], new[:1], 0)
