"""Tests whose cases are many and alike: a run of the suite takes one of n, `./dev soak` all (test/Long)."""

import zlib

SAMPLED = {
    "test_a_changed_weight_changes_the_result": 2,
    "test_a_gate": 3,
    "test_a_model_of_the_optimizer": 4,
    "test_a_model_type_is_as_the_page_says": 3,
    "test_a_package_of_aot_inductor_runs_in_another_process": 0,
    "test_a_traced_call_equals_the_eager_one_for_all_lengths_and_batches": 2,
    "test_against_transformers": 2,
    "test_any_arguments_at_once": 2,
    "test_any_changes_one_after_another": 0,
    "test_attention_by_hand_is_raised": 3,
    "test_attention_that_the_optimizer_leaves": 6,
    "test_becomes_one_attention_that_agrees_with_jax": 2,
    "test_captures_of_scores": 2,
    "test_compiled_random_function_agrees_with_float64": 2,
    "test_differential_attention": 4,
    "test_each_combination_is_exact_or_refused": 2,
    "test_element_types_and_head_sizes": 0,
    "test_encoder_agrees_and_is_raised": 2,
    "test_equal_to_padded_rows": 2,
    "test_every_layout_equals_the_formula": 2,
    "test_every_pair_of_options_equals_the_formula": 4,
    "test_family": 3,
    "test_faster_tiles_win": 0,
    "test_frontends_write_equal_programs_in_every_process": 0,
    "test_functions_of_fla_agree_with_the_formulas": 2,
    "test_generate_batch_gives_the_tokens_of_generate": 2,
    "test_gradcheck": 2,
    "test_gradients_are_limits_of_differences": 2,
    "test_gradients_are_those_of_differences": 6,
    "test_gradients_are_those_of_jax": 2,
    "test_gradients_of_a_ragged_delta_rule_agree_with_its_sequences": 0,
    "test_gradients_over_several_chunks_agree_with_the_recurrence": 2,
    "test_group_agrees_with_jax": 3,
    "test_heads_after_changed_length": 2,
    "test_invalid_calls_do_not_change_the_cache": 4,
    "test_jacobians_of_both_modes_are_equal": 0,
    "test_lists_hide_what_they_hide_in_every_route": 2,
    "test_loss_and_gradients_agree_with_eager": 2,
    "test_losses_agree_at_every_step": 2,
    "test_masks_overwrite_biases": 0,
    "test_near_misses_are_computed_as_they_are": 2,
    "test_no_entry_unless_better": 2,
    "test_operation_agrees_with_calls_for_every_element": 4,
    "test_options": 2,
    "test_other_functions": 2,
    "test_packed_sequences_give_what_each_gives_alone": 2,
    "test_plans_are_bounded_in_number": 0,
    "test_positions_that_are_not_read_have_gradients_of_zero": 2,
    "test_quantized_caches_and_their_scales_are_updated_in_place": 2,
    "test_quantized_keys_are_rotated_when_they_are_read": 2,
    "test_queries_and_keys_are_rotated_by_their_positions": 2,
    "test_random_calls": 0,
    "test_random_functions_follow_their_numbers": 2,
    "test_ranks_are_not_promoted": 0,
    "test_rows_are_appended_as_when_attending": 2,
    "test_scales_of_all_shapes": 3,
    "test_scales_of_positions_are_computed_from_the_new_rows": 2,
    "test_short_mask_hides_the_other_keys": 3,
    "test_statistics_are_those_of_all_weights": 2,
    "test_tangents_agree_with_those_of_the_recurrence": 0,
    "test_tangents_are_those_of_jax": 2,
    "test_tangents_are_those_of_reverse_mode": 2,
    "test_tangents_of_a_ragged_delta_rule_agree_with_its_sequences": 2,
    "test_tangents_of_the_scale_and_of_captured_arrays": 0,
    "test_targets": 2,
    "test_the_text_of_a_program_is_its_identity": 0,
    "test_tiles_are_classified_correctly_and_few_are_partial_without_need": 2,
    "test_tokens": 2,
    "test_torch_compile": 2,
    "test_torch_may_be_imported_after_saccade": 0,
    "test_transforms_of_torch_func": 2,
    "test_two_libraries_the_jit_and_pytorch_share_one_pool": 0,
    "test_vmap_of_derivatives": 0,
    "test_vmap_with_forward_and_reverse_mode": 0,
    "test_whole_graphs_agree_with_calls": 2,
    "test_work_counts_visible_pairs": 2,
}
"""The number n of a test function. It is 1 for all others. Functions with 0 are left out."""


def left_out(names):
    """Of (function, its case) of tests in order, the places of those that a sample leaves out: a pseudo-random choice by
    the name of the case, which is the same in every run. The first case of a function stays, unless all are left out."""
    seen = set()
    found = []
    for place, (function, case) in enumerate(names):
        number = SAMPLED.get(function, 1)
        is_chosen = number > 0 and (function not in seen or zlib.crc32(case.encode()) % number == 0)
        if not is_chosen:
            found.append(place)
        seen.add(function)
    return found
