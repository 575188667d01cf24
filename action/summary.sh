#!/usr/bin/env bash
# Appends the causes of the differences in $ARTIFACTS to the summary of the job, as a table.
# The job's result is the tests' alone: nothing here fails it.
set -uo pipefail

if [ ! -d "$ARTIFACTS" ]; then
    echo "::notice title=torchgraph::there is no directory '$ARTIFACTS': no comparison failed, or pytest ran without --torchgraph-artifacts=$ARTIFACTS"
    exit 0
fi

export PYTHONUTF8=1
# What the tests said of their own code; of a run that left no more than texts, what these tell.
text=$("$PYTHON" -m pytest_torchgraph review "$ARTIFACTS" --format=markdown 2>/dev/null)
status=$?
if [ -z "$text" ]; then
    text=$("$PYTHON" -m pytest_torchgraph diff "$ARTIFACTS" --format=markdown)
    status=$?
fi
case $status in
0) exit 0 ;; # what failed were other checks than comparisons
1) ;;
*) echo "::warning title=torchgraph::not all differences could be summed up, see the log of this step" ;;
esac
if [ -z "$text" ]; then
    exit 0
fi

# GitHub shows nothing of a summary of more than 1 MiB.
if [ "$(printf '%s' "$text" | wc -c)" -gt 1000000 ]; then
    printf '%s\n' "$text" >"$ARTIFACTS/causes.md"
    text="${text%%$'\n'*}"$'\n\nThe table of the causes is too long for this place: it is `causes.md` in the artifact.'
fi
printf '### Graphs that differ\n\n%s\n' "$text" >>"$GITHUB_STEP_SUMMARY"
exit 0
