#!/usr/bin/env bash
# Runs $COMMAND at $BASE and at the head, in one environment, and saves both runs below $RUNS. Failed tests do not end
# this script: their own job reports them.
set -euo pipefail

save() { # SIDE REVISION
    git -c advice.detachedHead=false checkout --quiet --force "$2"
    local status=0
    PYTEST_ADDOPTS="${PYTEST_ADDOPTS:-} '--torchgraph-save-run=$RUNS/$1'" bash -c "$COMMAND" || status=$?
    if [ "$status" != 0 ]; then
        echo "::notice title=torchgraph::the tests of the $1 ended with status $status"
    fi
}

# Bash reads a script piece by piece, and the base may have another one.
main() {
    local base head back
    head=$(git rev-parse HEAD)
    back=$(git symbolic-ref --quiet --short HEAD) || back=$head
    if ! base=$(git rev-parse --quiet --verify "$BASE^{commit}"); then
        echo "::error title=torchgraph::there is no $BASE: check out with fetch-depth: 2"
        exit 1
    fi
    rm -rf -- "$RUNS"
    mkdir -p -- "$RUNS"
    git diff --name-only "$base" "$head" -- pyproject.toml setup.py setup.cfg '*requirements*' '*constraints*' \
        '*.lock' '*environment*.y*ml' tox.ini noxfile.py >"$RUNS/dependencies"
    trap 'git checkout --quiet --force "$back"' EXIT
    # The base first: at the end, the head is checked out, as it was.
    save base "$base"
    save head "$head"
    git checkout --quiet --force "$back"
    trap - EXIT
    exit 0
}
main
