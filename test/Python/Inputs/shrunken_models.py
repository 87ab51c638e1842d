"""Models of any type of Transformers from a shrunken configuration, with random weights, and inputs for them.

A configuration keeps its default head counts and options. Its sizes are divided by one power of two, so that sizes that
belong together still do, and it keeps one layer of each kind.
"""

import inspect
import itertools
import math
import os
import re

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

VOCABULARY = 512
LENGTH = 12
BATCH = 2
_FIRST_SPECIAL = 480  # token ids from here on replace special tokens that are outside the vocabulary

_LAYERS = re.compile(r"^(num_(hidden_|encoder_|decoder_|transformer_)?layers|n_layers?|\w*(encoder|decoder|hidden|transformer)"
                     r"_layers|num_hidden_layers|depth|num_block|\w*_depth|layers|n_blocks)$")  # fmt: skip
_NO_LAYERS = re.compile(r"feat|conv|adapter_layers|position|every|mtp|nextn")
_SIZE = re.compile(r"(hidden|dim|_size$|width|embd|d_model|d_ff|d_kv|d_inner|channels|ffn|_rank|section|filters|d_state)")
_NO_SIZE = re.compile(r"image|patch|vocab|window|max|kernel|^num_channels|in_chan|input_chan|token|block_size|chunk|mel|num_h|merge"
                      r"|num_dim|conv_size|group|pool|stride|grid|bins|_scale|codebook_size|temporal|dims$|drop|^(in|out)put_size|"
                      r"n_dim|type_|queue|context|memory_size|local|sample|frame|mask_feature|num_|state_size|d_conv|n_channels")
_WINDOW = {"sliding_window", "attention_chunk_size", "local_attention", "attention_window_size", "window_attention_size"}
_DEPTHS = {"depths", "num_block_repeats", "layer_depths", "encoder_depths"}
_LIMITS = {"num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "moe_num_experts": 4, "n_group": 1, "topk_group": 1,
           "num_experts_per_tok": 2, "moe_k": 2, "moe_topk": 2, "top_k_experts": 2, "first_k_dense_replace": 1,
           "max_source_positions": 16, "vocab_size_per_layer_input": VOCABULARY, "num_queries": 12, "n_mels": 16,
           "index_topk": 4, "index_n_heads": 4, "num_nextn_predict_layers": 0}  # fmt: skip
_PREFERRED = ("MODEL", "MODEL_FOR_CAUSAL_LM", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM", "MODEL_FOR_IMAGE_TEXT_TO_TEXT",
              "MODEL_FOR_BACKBONE", "MODEL_FOR_DEPTH_ESTIMATION", "MODEL_FOR_OBJECT_DETECTION",
              "MODEL_FOR_UNIVERSAL_SEGMENTATION")  # fmt: skip


def model_types():
    """All types; those of parts of other models last."""
    return sorted(CONFIG_MAPPING_NAMES, key=lambda each: (each not in modeling_auto.MODEL_MAPPING_NAMES, each))


def classes_of(model_type):
    """(configuration class, model class) of a type. Raises LookupError if no model takes the configuration."""
    config_class = transformers.CONFIG_MAPPING[model_type]
    for mapping in _PREFERRED:
        name = getattr(modeling_auto, f"{mapping}_MAPPING_NAMES").get(model_type)
        if name is not None:
            return config_class, getattr(transformers, name if isinstance(name, str) else name[0])
    name = config_class.__module__.replace("configuration_", "modeling_")
    module = __import__(name, fromlist=["x"])
    found = [each for each in vars(module).values() if inspect.isclass(each)
             and issubclass(each, transformers.PreTrainedModel) and each.config_class is config_class
             and "forward" in vars(each)]  # fmt: skip
    if not found:
        raise LookupError(f"no model class takes {config_class.__name__}")
    return config_class, found[0]


def shrunken(config_class, *, sizes=True, images=True):
    """A small configuration. `sizes`: divide sizes; `images`: images of 4 x 4 patches."""
    settings = config_class().to_dict()
    if "prediction_length" in settings:
        settings["prediction_length"] = 6
    factor = _factor(settings) if sizes else 1
    ids = {}
    _shrink(settings, factor, images, ids)
    for each in _each_dict(settings):
        for name in ("transformers_version", "out_features", "out_indices", "stage_names"):
            each.pop(name, None)
    return config_class.from_dict(settings)


def _each_dict(settings):
    yield settings
    for value in settings.values():
        if isinstance(value, dict):
            yield from _each_dict(value)


def _factor(settings):
    """The largest power of two that leaves heads of 8 and sizes of 32."""
    limit = 64
    for each in _each_dict(settings):
        heads = _first(each, "num_attention_heads", "n_head", "encoder_attention_heads", "num_heads", "n_heads")
        hidden = _first(each, "hidden_size", "d_model", "n_embd", "dim", "embed_dim")
        if isinstance(hidden, int):
            limit = min(limit, max(hidden // 32, 1))
            if isinstance(heads, int) and heads and hidden % heads == 0 and not isinstance(each.get("head_dim"), int):
                limit = min(limit, max(math.gcd(hidden // heads, 1024) // 8, 1))
        for name in ("head_dim", "qk_rope_head_dim"):
            if isinstance(each.get(name), int):
                limit = min(limit, max(each[name] // 8, 1))
    return 2 ** int(math.log2(limit))


def _first(settings, *names):
    return next((settings[name] for name in names if settings.get(name) is not None), None)


def _shrink(settings, factor, images, ids):
    layers = next((settings[name] for name in ("num_hidden_layers", "n_layer", "num_layers") if isinstance(settings.get(name), int)), 0)
    kept = _kept_layers(settings, layers)
    for name, value in list(settings.items()):
        if not isinstance(name, str):
            continue
        if isinstance(value, dict):
            _shrink(value, factor, images, ids)
        elif isinstance(value, list) and layers > 2 and len(value) == layers and "section" not in name:
            settings[name] = [value[i] for i in kept]
        elif name in _DEPTHS and isinstance(value, list):
            settings[name] = [min(each, 2) if isinstance(each, int) else each for each in value]
        elif isinstance(value, list):
            settings[name] = [_size(name, each, factor) for each in value]
        elif isinstance(value, int) and not isinstance(value, bool):
            settings[name] = _number(name, value, factor, ids, len(kept))
    patch = _first(settings, "patch_size", "patch_stride")
    if images and isinstance(settings.get("image_size"), int):
        settings["image_size"] = min(settings["image_size"], 4 * patch if isinstance(patch, int) else 64)


def _kept_layers(settings, layers):
    """The indices of the layers that are kept: the first of each kind, and two at least."""
    kinds = next((settings[name] for name in ("layer_types", "layers_block_type") if isinstance(settings.get(name), list)), [])
    if len(kinds) != layers:
        return list(range(min(layers, 2)))
    kept = [kinds.index(each) for each in dict.fromkeys(kinds)]
    kept += [i for i in range(layers) if i not in kept][: max(2 - len(kept), 0)]
    return sorted(kept)


def _number(name, value, factor, ids, layers):
    if _LAYERS.search(name) and not _NO_LAYERS.search(name):
        return min(value, max(layers, 2))
    if name in _WINDOW:
        return min(value, 4)
    if name in _LIMITS:
        return min(value, _LIMITS[name])
    if name == "vocab_size" or name.endswith("_vocab_size"):
        return min(value, VOCABULARY)
    if re.search(r"token_(id|index)$|_token$", name) and value >= VOCABULARY:
        return ids.setdefault(value, _FIRST_SPECIAL + len(ids) % (VOCABULARY - _FIRST_SPECIAL))
    return _size(name, value, factor)


def _size(name, value, factor):
    is_size = isinstance(value, int) and not isinstance(value, bool) and _SIZE.search(name) and not _NO_SIZE.search(name)
    is_section = "section" in name and isinstance(value, int)
    if (is_size and value >= 2 * factor or is_section) and value % factor == 0:
        return value // factor
    return value


def build(model_class, config):
    """The model with random weights that give attention other weights than the mean, in evaluation mode."""
    torch.manual_seed(0)
    model = model_class._from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim >= 2 and parameter.is_floating_point() and "A_log" not in name:
                fan_in = parameter[0].numel() if parameter.ndim != 3 else parameter.shape[-2]
                parameter.normal_(std=min(1.0, 1.5 * max(fan_in, 1) ** -0.5))
            elif parameter.is_floating_point() and "A_log" not in name and "dt_bias" not in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def candidate_inputs(model, config):
    """Inputs that the model may take, those with more parts first."""
    names = inspect.signature(model.forward).parameters
    torch.manual_seed(1)
    texts = _texts(names, config)
    pictures = _pictures(names, config)
    sounds = _sounds(names, config)
    parts = [texts, pictures, sounds]
    for chosen in sorted(itertools.product(*([*each, {}] for each in parts)), key=lambda each: -sum(map(bool, each))):
        given = {name: value for part in chosen for name, value in part.items()}
        if given:
            yield given


def _texts(names, config):
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    top = getattr(text, "vocab_size", None)
    top = min(top, _FIRST_SPECIAL) if isinstance(top, int) else 30
    given = {}
    if "input_ids" in names:
        given["input_ids"] = torch.randint(min(6, top - 1), top, (BATCH, LENGTH))
    elif "inputs_embeds" in names:
        size = getattr(text, "hidden_size", None) or getattr(text, "d_model", None) or 64
        given["inputs_embeds"] = torch.randn(BATCH, LENGTH, size)
    if "decoder_input_ids" in names:
        given["decoder_input_ids"] = torch.randint(min(6, top - 1), top, (BATCH, 7))
    if "query_embeds" in names and "input_ids" not in names:
        given = {"query_embeds": torch.randn(BATCH, LENGTH, config.hidden_size)}
        if "encoder_hidden_states" in names:
            given["encoder_hidden_states"] = torch.randn(BATCH, 9, getattr(config, "encoder_hidden_size", config.hidden_size))
    if "bbox" in names:
        given["bbox"] = torch.randint(0, 50, (BATCH, LENGTH, 2)).repeat(1, 1, 2)
    return [given] if given else []


def _pictures(names, config):
    vision = next((getattr(config, name) for name in ("vision_config", "backbone_config", "image_config")
                   if getattr(config, name, None) is not None), config)  # fmt: skip
    size = getattr(vision, "image_size", None) or getattr(config, "image_size", None) or 64
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    channels = getattr(vision, "num_channels", None) or getattr(vision, "in_channels", None) or 3
    frames = getattr(vision, "num_frames", None) or 4
    found = []
    for name in ("pixel_values", "pixel_values_videos"):
        if name in names:
            found += [{name: torch.randn(BATCH, channels, height, width)},
                      {name: torch.randn(BATCH, frames, channels, height, width)}]  # fmt: skip
            patch = getattr(vision, "patch_size", None)
            if isinstance(patch, int):
                found.append({name: torch.randn(BATCH, 16, channels * patch * patch)})
                for each in found[-1:]:
                    if "spatial_shapes" in names:
                        each["spatial_shapes"] = torch.tensor([[4, 4]] * BATCH)
                        each["pixel_attention_mask"] = torch.ones(BATCH, 16, dtype=torch.int64)
                        each["pixel_attention_mask"][1, 12:] = 0
                        each["spatial_shapes"][1, 0] = 3
    grids = [name for name in ("grid_thw", "image_grid_thw") if name in names]
    if "hidden_states" in names and grids:
        patch, temporal = getattr(vision, "patch_size", 14), getattr(vision, "temporal_patch_size", 1)
        rows = torch.randn(2 * 16, channels * temporal * patch * patch)
        found.append({"hidden_states": rows, grids[0]: torch.tensor([[1, 4, 4]] * 2)})
    return found


def _sounds(names, config):
    mels = next((getattr(config, name) for name in ("num_mel_bins", "feature_size", "input_feat_per_channel", "n_mels", "input_dim",
                                                    "feature_projection_input_dim") if isinstance(getattr(config, name, None), int)), 80)
    audio = getattr(config, "audio_config", None)
    mels = getattr(audio, "num_mel_bins", None) or mels
    length = 2 * (getattr(config, "max_source_positions", None) or getattr(audio, "max_source_positions", None) or 32)
    found = []
    if "input_features" in names:
        found += [{"input_features": torch.randn(BATCH, mels, length)}, {"input_features": torch.randn(BATCH, length, mels)},
                  {"input_features": torch.randn(BATCH, 1, 1024, 64)}]  # fmt: skip
    if "input_values" in names:
        found += [{"input_values": torch.randn(BATCH, 4000)}, {"input_values": torch.randn(BATCH, getattr(config, "max_length", 0) or length, mels)},
                  {"input_values": torch.randn(BATCH, 1, 4000)}]  # fmt: skip
    return found


def paddings(model, given):
    """The masks of padding that the inputs may have, by name: None, and those of a text padded on the left or right."""
    masks = {"none": None}
    text = given.get("input_ids", given.get("inputs_embeds"))
    if text is not None and "attention_mask" in inspect.signature(model.forward).parameters:
        for side, part in (("right", slice(LENGTH - 5, None)), ("left", slice(0, 5))):
            masks[side] = torch.ones(BATCH, LENGTH, dtype=torch.int64)
            masks[side][1, part] = 0
    return masks


def tensors_of(result, prefix=""):
    """The floating-point tensors of a result by name, nested ones included."""
    if isinstance(result, torch.Tensor):
        return {prefix: result} if result.is_floating_point() else {}
    items = result.items() if hasattr(result, "items") else enumerate(result) if isinstance(result, (list, tuple)) else []
    return {name: value for key, each in items for name, value in tensors_of(each, f"{prefix}.{key}").items()}
