"""The public functions `capture`, `watch`, `restart`, `diff`, `from_fx` and others, and `Capture`.

    capture        runs the target once through a mechanism (`capture`), and makes a `Capture` of
                   the graphs and records; `frozen` captures one more step for `Capture.frozen`
    watch          records what runs in a block (`watch`), or in calls after a warm-up (`steady`)
    warm_start     compiles twice (`restart`), the second time also in a `second_process`
    torch_files    makes captures of files that torch wrote
    existing       makes graphs of torch.fx objects (`from_fx`), and modules of graphs (`to_fx`)
    result         the class `Capture`: its records (`observed`), its graphs (`captured_graphs`),
                   and what it was made of (`contents`)
    differences    compares graphs, captures, ranks and files (`diff`); two watches also by their
                   graph breaks and recompiles (`record_differences`)
    check_pass     checks one pass on one graph
    testcase       the same for `unittest`

`many_ranks` lets modules that do not import `ranks` know its `Ranks`.
"""
