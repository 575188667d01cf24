"""The assertions on a capture: what was compiled, what ran, and whether it is right.

A check reads a capture as a `subject.Subject`, which `api.result.Capture` implements. `Capture`
inherits some assertions: `CompilationChecks`, `EagerChecks`, `KernelChecks`, `PassChecks` and
`TrainingChecks`. For the others, it calls a function of `blocks`, `budget`, `parity`,
`recomputation` or `regional`. `parity` compares with eager: `rounding` has its tolerances, and
`causes` runs the step again to find out why it differs.
"""
