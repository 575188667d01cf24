"""The cases marked `slow`: each takes long, and has a near neighbour in every run. CI runs both."""

from __future__ import annotations

import re

CASES = (
    # A server and a browser; `test_exported_graphs.py` has what they read.
    r"test_in_model_explorer\.py::",
    # The pages of the documentation; the tutorial, which runs the most, is in every run.
    r"docs/test_pages\.py::test_the_code_blocks.*\[(?!tutorial)",
    # A small model of each kind is in every run; `tests/subjects/cost_table.py --check` has all.
    r"test_costs\.py::test_an_entry_is_right.*\[(?!(mlp|early_exit|graph_convolution)-)",
    r"test_costs\.py::test_what_a_(policy|budget).*\[(?!(none|products kept|0\.5)\])",
    # The longest models; shorter ones, and the other levels of these, are in every run.
    r"test_printed_agrees\.py::test_graphs_of_dynamo_and_aot_agree\[bert(_dynamic)?\]",
    r"test_printed_agrees\.py::test_graphs_of_inductor_agree\[bert(_dynamic)?\]",
    r"test_printed_agrees\.py::test_graphs_of_compiled_autograd_agree\[(bert(_dynamic)?|llama|gpt2)\]",
    r"test_printed_agrees\.py::test_graphs_of_inductor_agree\[llama\]",
    r"test_subjects\.py::test_an_entry_is_right_.*\[gpt2-(aot|dynamo|compiled_autograd)\]",
    r"test_subjects\.py::test_an_entry_is_right_.*\[wav2vec2-(dynamo|aot|compiled_autograd)\]",
    r"test_subjects\.py::test_the_text_of_a_subject.*\[(gpt2|wav2vec2)-engine\]",
    r"islands/test_neutral\.py::test_nothing_differs.*\[(?!mlp\]|a_print|an_eager|an_arg|drop)",
    r"islands/test_planted\.py::.*\[(.*-)?inductor\]",
    r"test_messages\.py::.*\[(.*-)?inductor(-.*)?\]",
    r"test_snapshot_eager\.py::test_in_a_run_the_",
    r"test_repeatable\.py::test_another_process_with_another_hash_seed_prints_the_same_bytes",
    r"test_end_to_end\.py::test_an_inserted_clone_is_one_finding_and_few_lines",
    r"watching/test_neutral\.py::test_a_warm_call_costs_one_frame_and_no_record\[aot_eager\]",
    r"islands/test_same_text\.py::",
    r"islands/test_left_alive\.py::.*\[(inductor|dynamo|dispatch)\]",
    r"test_subjects\.py::test_an_entry_is_right.*\[(transformer_|residual_).*-compiled_autograd\]",
    r"test_subjects\.py::test_an_entry_is_right.*\[(t5|whisper|mixtral|transformer_with_masks)-export\]",
    r"test_packages_beside_torch\.py::.*\[(SGConv|ChebConv|GATv2Conv)-",
    r"test_higher_order\.py::.*\[(.*-)?(nested cond|flex_attention with a mask)-(?!aot)",
    r"test_higher_order\.py::test_an_edit_in_a_body.*\[(?!changed-cond).*-export\]",
    # Inductor compiles C++ for each; two of the ops are in every run.
    r"test_kernels\.py::test_library_calls_are.*\[(?!library_ops\])",
    r"test_kernels\.py::test_the_kernels_are_those.*\[(?!mlp\])",
    r"test_kernels\.py::test_what_compiles_later",
    r"test_higher_order\.py::.*\[(.*-)?(?!cond-|invoke_subgraph-)[^-\]]+-inductor\]",
    r"test_neutral\.py::test_inductor_is_the_same_cold_and_warm\[(taken_over|recompiled|switched)\]",
    r"test_to_fx\.py::test_the_module_is_the_graph\[(?!mlp-).*inductor\]",
    r"test_to_fx\.py::test_module_paths_are_those_of_the_capture.*\[inductor\]",
    r"test_watched_graphs\.py::test_inductors_graphs_are_those_of_a_capture\[attention\]",
    r"test_dynamo_export\.py::test_a_wrong_sign_in_the_forward_is_named\[inductor\]",
    r"test_dynamo_export\.py::test_inductor_is_compared_with_the_random_numbers_of_an_eager_run",
    r"test_higher_order\.py::test_a_body_that_two_calls_share_is_one_subgraph.*\[inductor\]",
    r"test_break_stacks\.py::test_run_by_the_command",
    r"test_repeatable\.py::test_a_second_capture_is_equal.*\[inductor\]",
    r"test_state\.py::test_everything_has_its_former_value_afterwards\[inductor-\]",
    # The same without workers, or in the same process, is in every run.
    r"test_snapshot_kept\.py::test_nothing_is_lost_whatever_did_not_run\[(?!one test-).*n2\]",
    r"test_snapshot_releases\.py::test_what_a_release_compares_with.*\[(?!2\.11 2\.13 2\.15\])",
    r"test_snapshot_(releases|update|prune)\.py::(?!test_an_update_lists).*\[n2\]",
    r"test_marker\.py::test_under_xdist_it_says_the_same",
    r"test_devices\.py::test_devices_are_selected_in_workers_too",
    r"test_causes_of_a_run\.py::test_a_run_with_40_failing_tests.*\[how1\]",
    r"test_audit_show\.py::test_under_xdist_the_controller_reports",
    # Six changes at once, and one baseline of another order, are in every run.
    r"test_audit_edits\.py::test_a_change_for_the_(worse|better).*\[",
    r"test_audit_order\.py::.*\[(?!serial-random 1\])",
    r"test_audit_edits\.py::test_what_is_detached",
    r"test_audit_shards\.py::test_shards_make",
    r"test_audit_shards\.py::test_recording_in_another.*\[(?!one file)",
    r"test_audit_odd_suites\.py::.*\[n2\]",
    r"surfaces/test_(junit|run_json)\.py::.*\[n2\]",
    r"test_never_vacuous\.py::test_the_environment_can_switch_it_off\[TORCHDYNAMO_DISABLE\]",
    r"test_snapshot_releases\.py::test_after_an_edit_a_second_round_is_enough",
    r"test_snapshot_companions\.py::.*\[(n2|loadgroup)\]",
    r"test_isolation\.py::test_each_xdist_worker_compiles_into_directories_of_its_own",
    r"test_end_to_end\.py::test_stored_files_are_the_same_bytes_however_they_were_made",
    r"test_compiled_autograd\.py::test_the_text_is_the_same_in_other_processes",
    # One run of pytest, or two, in a new process; the same is tested in process, and without xdist.
    r"surfaces/test_github\.py::test_a_check_in_a_step_is_red",
    r"surfaces/test_github\.py::test_a_step_has_annotations_and_a_summary\[how[12]\]",
    r"test_marker\.py::test_a_run_in_which_the_ini_files_limits_had_nothing.*\[n2\]",
    r"test_audit_shards\.py::test_a_(renamed_test|break_that_is_gone)",
    r"test_audit_order\.py::test_nothing_is_worse_where_nothing_changed\[serial-random 1\]",
    r"test_printed_agrees\.py::test_what_a_warm_cache_prints",
    r"test_imports\.py::test_limits_of_the_ini_file_hold.*\[audit\]",
    r"surfaces/test_github\.py::test_a_summary_that_cannot_be_written",
    r"test_audit_shards\.py::test_recording_in_another_order_keeps_every_line\[one file\]",
    r"test_snapshot_assertion\.py::test_captures_and_graphs_of_torch_itself_can_be_stored",
    r"test_packages_beside_torch\.py::test_a_package_of_our_own",
    r"test_snapshot_companions\.py::test_all_of_them_at_once",
    r"test_marker\.py::test_an_assert_that_pytest_rewrote_is_named_as_the_cause",
    r"test_page_of_a_run\.py::test_captures_of_real_models_are_there",
    r"test_printed_agrees\.py::test_graphs_of_dynamo_and_aot_agree\[llama\]",
    r"test_requirements\.py::test_captures_and_the_marker_need_no_syrupy",
    r"test_snapshot_releases\.py::test_what_a_release_compares.*\[2\.11 2\.13 2\.15\]",
    r"test_neutral\.py::test_inductor_is_the_same_cold_and_warm\[(trained_small|broken)\]",
    r"test_kernels\.py::test_nothing_is_stored_and_nothing_is_remembered",
    r"test_kernels\.py::test_the_kernels_are_those_of_code_that_is_compiled\[mlp\]",
    r"test_costs\.py::test_what_a_policy_of_checkpointing_costs\[products kept\]",
    r"test_costs\.py::test_what_a_budget_of_min_cut_costs\[0\.5\]",
    r"test_graph_ranks\.py::test_ranks_have_the_same_graphs\[(?!tensor|fully).*-aot\]",
    r"test_collectives_agree\.py::test_as_many_in_what_is_compiled_further\[sequence.*-inductor\]",
    r"test_printed_agrees\.py::test_graphs_of_dynamo_and_aot_agree\[gpt2\]",
    r"test_audit_show\.py::test_what_imports_dynamo_first_is_seen",
    r"test_page_in_a_browser\.py::test_the_page_is_quick_with_many_tests",
    r"test_higher_order\.py::test_the_text_is_read_back.*\[scan-compiled_autograd\]",
)


def is_slow(nodeid: str) -> bool:
    """True for a case that runs with `-m slow` only."""
    return any(re.search(case, nodeid) for case in CASES)
