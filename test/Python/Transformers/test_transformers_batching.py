"""`generate_batch` with attn_implementation="saccade": the tokens of `generate` with "eager"."""

import warnings

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from transformers_families import FAMILIES

import saccade.transformers

NAMES = ("llama", "mistral", "gemma2", "gpt_oss")  # GPT-OSS has no support for SDPA
LENGTHS = (9, 3, 6)


@pytest.fixture
def calls(monkeypatch):
    """Counts calls of the attention function, in whatever thread."""
    count = []

    def attention_forward(*args, **kwargs):
        count.append(kwargs.get("cache"))
        return saccade.transformers.attention_forward(*args, **kwargs)

    mapping = transformers.AttentionInterface._global_mapping
    monkeypatch.setitem(mapping, saccade.transformers.NAME, attention_forward)
    return count


def generated(model, prompts):
    config = transformers.GenerationConfig(max_new_tokens=8, do_sample=False, eos_token_id=None, pad_token_id=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sizes = transformers.ContinuousBatchingConfig(page_size=16, num_blocks=16, max_batch_tokens=32)
        return config, model.generate_batch(prompts, generation_config=config, continuous_batching_config=sizes, warmup=False)


@pytest.mark.parametrize(("name", "implementation"), [*((name, "saccade") for name in NAMES), ("gpt_oss", "paged|saccade")])
@pytest.mark.filterwarnings("ignore:The `paged|:FutureWarning")
def test_generate_batch_gives_the_tokens_of_generate(calls, name, implementation):
    """Prompts of several lengths are packed. Each token comes from a call of the attention function with the cache."""
    model = FAMILIES[name].build()
    torch.manual_seed(3)
    prompts = [torch.randint(3, 99, (length,)).tolist() for length in LENGTHS]
    model.set_attn_implementation(implementation)
    config, results = generated(model, prompts)
    assert model.config._attn_implementation == "saccade"
    assert len(calls) >= 2 * 8 and all(cache is not None for cache in calls)
    model.set_attn_implementation("eager")
    found = {tuple(each.prompt_ids): each.generated_tokens for each in results.values()}
    for prompt in prompts:
        with torch.no_grad():
            expected = model.generate(torch.tensor([prompt]), generation_config=config)[0, len(prompt) :].tolist()
        assert found[tuple(prompt)] == expected
