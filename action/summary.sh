#!/usr/bin/env bash
# Appends the causes of the differences in $ARTIFACTS to the summary of the job, as a table.
# This script never fails the job: only the tests do.
set -uo pipefail

if [ ! -d "$ARTIFACTS" ]; then
    echo "::notice title=torchgraph::no directory '$ARTIFACTS': no comparison failed, or pytest ran without --torchgraph-artifacts=$ARTIFACTS"
    exit 0
fi

export PYTHONUTF8=1
# Not `python -m pytest_torchgraph`, which runs an `argparse.py` of the checkout; and without a path, `dirname` is the
# checkout.
COMMAND=pytest-torchgraph
if path=$(command -v "$PYTHON") && [ -x "$(dirname "$path")/pytest-torchgraph" ]; then
    COMMAND=$(dirname "$path")/pytest-torchgraph
fi
# A directory of an older release has only texts: `review` prints nothing, and `diff` compares them.
text=$("$COMMAND" review "$ARTIFACTS" --format=markdown 2>/dev/null)
status=$?
if [ -z "$text" ]; then
    text=$("$COMMAND" diff "$ARTIFACTS" --format=markdown)
    status=$?
fi
case $status in
0) exit 0 ;; # no comparison failed
1) ;;
*) echo "::warning title=torchgraph::some differences are missing in the job summary, see the log of this step" ;;
esac
if [ -z "$text" ]; then
    exit 0
fi

# GitHub does not show a summary larger than 1 MiB.
if [ "$(printf '%s' "$text" | wc -c)" -gt 1000000 ]; then
    # A link of the branch may lead the directory outside the checkout, or into `.git`.
    if [ "$(realpath -- "$ARTIFACTS")" = "$(realpath -s -- "$ARTIFACTS")" ]; then
        rm -f -- "$ARTIFACTS/causes.md" # which may be a link as well
        printf '%s\n' "$text" >"$ARTIFACTS/causes.md"
    fi
    text="${text%%$'\n'*}"$'\n\nThe table of causes is too long for a job summary: see `causes.md` in the artifact.'
fi
printf '### Graphs that differ\n\n%s\n' "$text" >>"$GITHUB_STEP_SUMMARY"
exit 0
