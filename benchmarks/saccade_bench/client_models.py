"""Small models of diffusers, timm and sentence-transformers for `clients.py`: the class, its configuration, its inputs."""

import functools

T, F, I, ONE, MASK = "tensor", "floats", "integers", "one", "mask"  # kinds of inputs, see `_made`

_UNET = {"sample_size": 16, "layers_per_block": 1, "block_out_channels": (32, 32), "norm_num_groups": 8}
_VAE = {"block_out_channels": (32, 32), "down_block_types": ("DownEncoderBlock2D",) * 2, "norm_num_groups": 8,
        "up_block_types": ("UpDecoderBlock2D",) * 2, "latent_channels": 4}  # fmt: skip
_LATENT = {"hidden_states": (T, 1, 4, 8, 8)}
_TEXT = {"encoder_hidden_states": (T, 1, 5, 16)}
_HEADS = {"num_attention_heads": 2, "attention_head_dim": 8, "in_channels": 4, "num_layers": 1}
_TIME = {"timestep": (I, 1)}

DIFFUSERS = {
    "UNet2DModel": (
        _UNET | {"in_channels": 3, "out_channels": 3, "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
                 "up_block_types": ("AttnUpBlock2D", "UpBlock2D"), "attention_head_dim": 8},
        {"sample": (T, 1, 3, 16, 16)} | _TIME),
    "UNet2DConditionModel": (
        _UNET | {"cross_attention_dim": 16, "attention_head_dim": 4,
                 "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
                 "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D")},
        {"sample": (T, 1, 4, 16, 16)} | _TIME | _TEXT),
    "AutoencoderKL": (_VAE, {"sample": (T, 1, 3, 32, 32)}),
    "AutoencoderDC": (
        {"in_channels": 3, "latent_channels": 4, "attention_head_dim": 2,
         "encoder_block_types": ("ResBlock", "EfficientViTBlock"), "decoder_block_types": ("ResBlock", "EfficientViTBlock"),
         "encoder_block_out_channels": (8, 8), "decoder_block_out_channels": (8, 8),
         "encoder_qkv_multiscales": ((), (5,)), "decoder_qkv_multiscales": ((), (5,)), "encoder_layers_per_block": (1, 1),
         "decoder_layers_per_block": [1, 1], "downsample_block_type": "conv", "upsample_block_type": "interpolate",
         "decoder_norm_types": "rms_norm", "decoder_act_fns": "silu"},
        {"sample": (T, 1, 3, 32, 32)}),
    "DiTTransformer2DModel": (
        _HEADS | {"sample_size": 8, "patch_size": 2, "num_embeds_ada_norm": 8, "norm_num_groups": 8},
        _LATENT | _TIME | {"class_labels": (I, 1)}),
    "PixArtTransformer2DModel": (
        _HEADS | {"out_channels": 8, "sample_size": 8, "caption_channels": 16, "cross_attention_dim": 16,
                  "use_additional_conditions": False, "norm_num_groups": 8},
        _LATENT | _TEXT | _TIME),
    "SD3Transformer2DModel": (
        _HEADS | {"num_attention_heads": 4, "sample_size": 8, "patch_size": 1, "joint_attention_dim": 16,
                  "caption_projection_dim": 32, "pooled_projection_dim": 64, "out_channels": 4},
        _LATENT | _TEXT | {"pooled_projections": (T, 1, 64)} | _TIME),
    "FluxTransformer2DModel": (
        {"patch_size": 1, "in_channels": 4, "num_layers": 1, "num_single_layers": 1, "attention_head_dim": 16,
         "num_attention_heads": 2, "joint_attention_dim": 16, "pooled_projection_dim": 32, "axes_dims_rope": [4, 4, 8]},
        {"hidden_states": (T, 1, 16, 4)} | _TEXT | {"pooled_projections": (T, 1, 32), "timestep": (F, 1),
                                                    "img_ids": (T, 16, 3), "txt_ids": (T, 5, 3)}),
    "AuraFlowTransformer2DModel": (
        {"sample_size": 8, "patch_size": 2, "in_channels": 4, "num_mmdit_layers": 1, "num_single_dit_layers": 1,
         "attention_head_dim": 8, "num_attention_heads": 4, "caption_projection_dim": 32, "joint_attention_dim": 16,
         "out_channels": 4, "pos_embed_max_size": 64},
        _LATENT | _TEXT | {"timestep": (F, 1)}),
    "SanaTransformer2DModel": (
        _HEADS | {"patch_size": 1, "out_channels": 4, "num_cross_attention_heads": 2, "cross_attention_head_dim": 8,
                  "cross_attention_dim": 16, "caption_channels": 16, "sample_size": 8},
        _LATENT | _TEXT | _TIME),
    "WanTransformer3DModel": (
        {"patch_size": (1, 2, 2), "num_attention_heads": 2, "attention_head_dim": 12, "in_channels": 4, "out_channels": 4,
         "text_dim": 16, "freq_dim": 256, "ffn_dim": 32, "num_layers": 2, "cross_attn_norm": True,
         "qk_norm": "rms_norm_across_heads", "rope_max_seq_len": 32},
        {"hidden_states": (T, 1, 4, 2, 8, 8)} | _TIME | _TEXT),
    "LTXVideoTransformer3DModel": (
        {"in_channels": 8, "out_channels": 8, "patch_size": 1, "patch_size_t": 1, "num_attention_heads": 4,
         "attention_head_dim": 8, "cross_attention_dim": 32, "num_layers": 1, "caption_channels": 16},
        {"hidden_states": (T, 1, 32, 8)} | _TEXT | _TIME | {"encoder_attention_mask": (MASK, 1, 5), "num_frames": 2,
                                                            "height": 4, "width": 4}),
    "CogVideoXTransformer3DModel": (
        _HEADS | {"out_channels": 4, "time_embed_dim": 4, "text_embed_dim": 16, "sample_width": 8, "sample_height": 8,
                  "sample_frames": 8, "patch_size": 2, "temporal_compression_ratio": 4, "max_text_seq_length": 5},
        {"hidden_states": (T, 1, 3, 4, 8, 8)} | _TEXT | _TIME),
    "MochiTransformer3DModel": (
        {"patch_size": 2, "num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 2, "pooled_projection_dim": 16,
         "in_channels": 12, "qk_norm": "rms_norm", "text_embed_dim": 16, "time_embed_dim": 4, "activation_fn": "swiglu",
         "max_sequence_length": 5},
        {"hidden_states": (T, 1, 12, 2, 8, 8)} | _TEXT | _TIME | {"encoder_attention_mask": (MASK, 1, 5)}),
    "PriorTransformer": (
        {"num_attention_heads": 2, "attention_head_dim": 8, "embedding_dim": 16, "num_layers": 1, "num_embeddings": 5,
         "additional_embeddings": 4},
        {"hidden_states": (T, 1, 16)} | _TIME | {"proj_embedding": (T, 1, 16)} | _TEXT),
    "StableAudioDiTModel": (
        {"sample_size": 4, "in_channels": 4, "num_layers": 1, "attention_head_dim": 8, "num_key_value_attention_heads": 2,
         "num_attention_heads": 4, "out_channels": 4, "cross_attention_dim": 16, "time_proj_dim": 8,
         "global_states_input_dim": 8, "cross_attention_input_dim": 16},
        {"hidden_states": (T, 1, 4, 4)} | _TIME | _TEXT | {"global_hidden_states": (T, 1, 1, 8),
                                                           "rotary_embedding": [(T, 5, 4), (T, 5, 4)]}),
    "Lumina2Transformer2DModel": (
        {"sample_size": 8, "patch_size": 2, "in_channels": 4, "hidden_size": 24, "num_layers": 1, "num_refiner_layers": 1,
         "num_attention_heads": 3, "num_kv_heads": 1, "multiple_of": 2, "axes_dim_rope": (4, 2, 2),
         "axes_lens": (32, 16, 16), "cap_feat_dim": 16, "norm_eps": 1e-5},
        _LATENT | {"timestep": (F, 1)} | _TEXT | {"encoder_attention_mask": (MASK, 1, 5)}),
    "QwenImageTransformer2DModel": (
        {"patch_size": 2, "in_channels": 16, "out_channels": 4, "num_layers": 1, "attention_head_dim": 16,
         "num_attention_heads": 3, "joint_attention_dim": 16, "axes_dims_rope": (8, 4, 4)},
        {"hidden_states": (T, 1, 16, 16)} | _TEXT | {"encoder_hidden_states_mask": (MASK, 1, 5), "timestep": (F, 1),
                                                     "img_shapes": [(ONE, 4, 4)]}),
}  # fmt: skip
"""Classes of diffusers: the configuration and the arguments of a call."""

TIMM_NAMES = """efficientformer_l1 gcvit_xxtiny mobilevit_xxs nest_tiny repvit_m1 tiny_vit_5m_224
    tnt_s_legacy_patch16_224 volo_d1_224 swiftformer_xs botnet26t_256 halonet26t test_vit""".split()
"""Names of timm.create_model."""


def _made(torch, given):
    """An argument: a tensor of random numbers, of numbers from 0 to 1, of integers below 5, or of True; others are
    themselves."""
    if isinstance(given, list):
        return [_made(torch, each) for each in given]
    if not isinstance(given, tuple) or given[0] == ONE:
        return (1, *given[1:]) if isinstance(given, tuple) else given
    kind, *shape = given
    make = {T: torch.randn, F: torch.rand, I: lambda *s: torch.randint(0, 5, s), MASK: lambda *s: torch.ones(s).bool()}
    return make[kind](*shape)


def diffusers_case(torch, name):
    """A model whose arguments are by position, and the arguments."""
    import diffusers

    config, arguments = DIFFUSERS[name]

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = getattr(diffusers, name)(**config)

        def forward(self, *given):
            return self.inner(**dict(zip(arguments, given)), return_dict=False)[0]

    return Model(), tuple(_made(torch, each) for each in arguments.values())


def timm_case(torch, name):
    import timm

    model = timm.create_model(name, num_classes=5)
    config = model.default_cfg
    fixed = config.get("fixed_input_size")
    size = config["input_size"] if fixed else config.get("test_input_size") or config["input_size"]
    return model, (torch.randn(1, *size),)


def sentence_case(torch):
    """BERT with pooling and norm, with padding."""
    from sentence_transformers.models import Normalize, Pooling
    from transformers import BertConfig, BertModel

    class Sentences(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = BertModel(BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                                             intermediate_size=64, max_position_embeddings=32))
            self.pool, self.norm = Pooling(32, "mean"), Normalize()

        def forward(self, tokens, mask):
            found = self.bert(tokens, attention_mask=mask).last_hidden_state
            return self.norm(self.pool({"token_embeddings": found, "attention_mask": mask}))["sentence_embedding"]

    mask = (torch.arange(9) < torch.tensor([[9], [5]])).long()
    return Sentences(), (torch.randint(0, 50, (2, 9)), mask)


def cases(torch):
    """Functions that return a module and its arguments, by name."""
    found = {f"diffusers {name}": functools.partial(diffusers_case, torch, name) for name in DIFFUSERS}
    found |= {f"timm {name}": functools.partial(timm_case, torch, name) for name in TIMM_NAMES}
    return found | {"sentence-transformers BERT, mean": functools.partial(sentence_case, torch)}
