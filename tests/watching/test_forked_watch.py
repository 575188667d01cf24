"""Watches and restarts in a forked child, as under pytest-forked or after os.fork in a fixture."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable

import pytest
import torch

from pytest_torchgraph import restart, watch

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.skipif(sys.platform == "darwin", reason="torch's libraries do not survive a fork"),
    # Python 3.12 warns about a fork in a process with threads, which torch starts.
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


def tripled(x: torch.Tensor) -> torch.Tensor:
    return x.cos() * 3


def fails_in_child(check: Callable[[], None]) -> bool:
    """Run a check in a forked child, and return True if it raised."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            check()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return bool(os.waitpid(pid, 0)[1])


def check_watch() -> None:
    with watch() as seen:
        torch.compile(tripled, backend="aot_eager")(torch.ones(3))
    seen.assert_graph_count(forward=1)
    with watch() as seen:
        torch.compile(tripled, backend="aot_eager", dynamic=False)(torch.ones(4))
    seen.assert_recompiles(1)


@pytest.mark.slow("a process of its own")
def test_watch_in_a_forked_child_records_its_graphs() -> None:
    torch._dynamo.reset()
    assert not fails_in_child(check_watch)
    with watch() as seen:  # the child inherits compiled code, and this open watch
        torch.compile(doubled, backend="aot_eager")(torch.ones(3))
        assert not fails_in_child(check_watch)
    assert seen.executions == {"0/0": 1}, "the child's runs are its own"
    assert not fails_in_child(check_watch)

    def check_wrong_count() -> None:
        with watch() as seen:
            torch.compile(tripled, backend="aot_eager")(torch.ones(3))
        seen.assert_graph_count(forward=2)

    assert fails_in_child(check_wrong_count)


@pytest.mark.slow("compiles with inductor, in two processes")
def test_restart_in_a_forked_child_is_warm() -> None:
    def check() -> None:
        restart(tripled, (torch.ones(3),)).assert_warm()

    # After a cold compilation here, the child has inductor's pool of threads, without the threads.
    restart(doubled, (torch.ones(3),))
    assert not fails_in_child(check)
