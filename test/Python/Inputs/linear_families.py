"""Model families of `transformers` with layers of linear attention: small configurations with random weights."""

from transformers_families import DECODER, SIZES, Family

GATED = {**DECODER, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
         "linear_value_head_dim": 24, "linear_conv_kernel_dim": 4, "layer_types": ["linear_attention", "full_attention"]}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
           "shared_expert_intermediate_size": 32}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 2, "mamba_expand": 2,
         "mamba_chunk_size": 8}
LATENT = {"kv_lora_rank": 16, "q_lora_rank": None, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
          "num_key_value_heads": 4}

FAMILIES = {
    "qwen3_next": Family("Qwen3NextForCausalLM", "Qwen3NextConfig", {**GATED, **EXPERTS}),
    "qwen3_5": Family("Qwen3_5ForCausalLM", "Qwen3_5TextConfig", GATED),
    "qwen3_5_moe": Family("Qwen3_5MoeForCausalLM", "Qwen3_5MoeTextConfig", {**GATED, **EXPERTS}),
    "olmo_hybrid": Family("OlmoHybridForCausalLM", "OlmoHybridConfig", {**GATED, "linear_num_key_heads": 4}),
    "kimi_linear": Family("KimiLinearForCausalLM", "KimiLinearConfig", {
        **DECODER, **LATENT, "linear_head_dim": 16, "linear_num_heads": 4, "linear_conv_kernel_dim": 4,
        "layer_types": ["linear_attention", "full_attention"], "num_experts": 4, "num_experts_per_token": 2,
        "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_routed_experts": 4, "n_group": 1, "topk_group": 1,
        "num_shared_experts": 1, "n_shared_experts": 1}),
    "bailing_hybrid": Family("BailingHybridForCausalLM", "BailingHybridConfig", {
        **DECODER, **LATENT, "layer_types": ["linear_attention", "full_attention"], "num_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_group": 1, "topk_group": 1, "num_shared_experts": 1,
        "n_routed_experts": 4, "n_shared_experts": 1, "num_local_experts": 4}),
    "mamba2": Family("Mamba2ForCausalLM", "Mamba2Config", {
        "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "num_heads": 8, "head_dim": 16, "state_size": 16,
        "n_groups": 2, "expand": 2, "chunk_size": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}),
    "bamba": Family("BambaForCausalLM", "BambaConfig", {**DECODER, **MAMBA, "attn_layer_indices": [1]}),
    "falcon_h1": Family("FalconH1ForCausalLM", "FalconH1Config", {**DECODER, **MAMBA, "mamba_d_ssm": 128}),
    "granitemoehybrid": Family("GraniteMoeHybridForCausalLM", "GraniteMoeHybridConfig", {
        **DECODER, **MAMBA, "layer_types": ["mamba", "attention"], "num_local_experts": 4, "num_experts_per_tok": 2,
        "shared_intermediate_size": 32}),
    "nemotron_h": Family("NemotronHForCausalLM", "NemotronHConfig", {
        **DECODER, "mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 2, "chunk_size": 8,
        "expand": 2, "layers_block_type": ["mamba", "attention", "mlp"], "num_hidden_layers": 3}),
    "zamba2": Family("Zamba2ForCausalLM", "Zamba2Config", {
        **SIZES, "num_hidden_layers": 3, "num_key_value_heads": 4, "mamba_d_state": 16, "mamba_expand": 2,
        "mamba_ngroups": 2, "n_mamba_heads": 8, "chunk_size": 8, "num_mem_blocks": 1,
        "layers_block_type": ["mamba", "hybrid", "mamba"], "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}),
    # The length of its cache is that of the first layer, which a layer of linear attention does not have.
    "minimax": Family("MiniMaxForCausalLM", "MiniMaxConfig", {
        **DECODER, "layer_types": ["full_attention", "linear_attention"], "block_size": 8, "num_local_experts": 2,
        "num_experts_per_tok": 1}),
}
