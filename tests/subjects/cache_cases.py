"""Cases of a warm start. Each expected answer was written before the first run.

`answers` asks three sources: `assert_cacheable`, a restart in this process, and a restart with a
second process. A case is warm or has a cause, which is a part of each reason.

The C++ kernels are left out (`kernels_left_out`), because no key depends on their machine code and
a compiler takes minutes for them.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch import Tensor, nn
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

import pytest_torchgraph as tg
from pytest_torchgraph.api.second_process import SecondProcess
from pytest_torchgraph.api.warm_start import RestartHalf
from pytest_torchgraph.isolation import variables_restored

RELEASE = tuple(map(int, torch.__version__.split(".")[:2]))
WARM = "warm"

# -- kernels ---------------------------------------------------------------------------------------

_LEFT_OUT = {
    "PYTEST_TORCHGRAPH_TESTS_KERNELS_LEFT_OUT": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no pool of compilers
}


def _binding(self: AsyncCompile, types: list[str], source: str) -> Callable[..., None]:
    """Return a kernel that writes zeros: an index that another op reads has to be in range."""

    def kernel(*arguments: Any) -> None:
        for type_, argument in zip(types, arguments, strict=False):
            if isinstance(argument, Tensor) and not type_.startswith("const"):
                argument.detach().zero_()

    return kernel


@contextlib.contextmanager
def kernels_left_out() -> Iterator[None]:
    """Replace each C++ kernel, in this process and in processes that import this module."""
    before = AsyncCompile.cpp_pybinding
    AsyncCompile.cpp_pybinding = _binding  # type: ignore[method-assign,assignment]
    try:
        # Otherwise inductor compiles a program to see whether the CPU has vector instructions.
        settings = inductor_config.patch({"cpp.vec_isa_ok": True, "compile_threads": 1})
        with variables_restored(_LEFT_OUT), settings:
            os.environ.update(_LEFT_OUT)
            yield
    finally:
        AsyncCompile.cpp_pybinding = before  # type: ignore[method-assign]


if _LEFT_OUT.items() <= os.environ.items():
    AsyncCompile.cpp_pybinding = _binding  # type: ignore[method-assign,assignment]

# -- processes ------------------------------------------------------------------------------------

_SERVER = """
import json, os, sys
import torch._dynamo, torch._inductor.compile_fx, torch._inductor.codegen.cpp
from pytest_torchgraph.api import second_process
import subjects.cache_cases
for line in sys.stdin:
    environment, written = json.loads(line)
    child = os.fork()
    if not child:
        os.environ.update(environment)
        sys.argv = ["-c", written]
        try:
            second_process.main()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@functools.cache
def _server() -> subprocess.Popen[str]:
    path = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-W", "ignore", "-c", _SERVER]
    env = {**os.environ, **_LEFT_OUT, "PYTHONPATH": path}
    pipe = subprocess.PIPE
    server = subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True)
    atexit.register(server.kill)
    return server


def _run_forked(self: SecondProcess) -> RestartHalf:
    """Run the calls in a fork of a process that has imported torch, and compiled nothing."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    print(json.dumps([dict(os.environ), str(self._written)]), file=server.stdin, flush=True)
    if int(server.stdout.readline()):
        raise RuntimeError("the second process failed: its error is in the output")
    half: RestartHalf = pickle.loads((self._written / "half.pickle").read_bytes())
    return half


@contextlib.contextmanager
def processes_forked() -> Iterator[None]:
    """Fork each second process: imports take ten times as long as its compilations."""
    before = SecondProcess.run
    SecondProcess.run = _run_forked  # type: ignore[method-assign]
    try:
        yield
    finally:
        SecondProcess.run = before  # type: ignore[method-assign]


# -- targets ---------------------------------------------------------------------------------------


def square(x: Tensor) -> Tensor:
    return x @ x


def gram(x: Tensor) -> Tensor:
    return (x @ x.t()).relu()


def attend(x: Tensor) -> Tensor:
    return nn.functional.scaled_dot_product_attention(x, x, x)


def broken(x: Tensor) -> Tensor:
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos() * x


def shifted(x: Tensor) -> Tensor:
    return x + 1


def autocast_inside(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x @ x).sin()


def sdpa_inside(x: Tensor) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return attend(x)


def branch(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


def _smaller(x: Tensor) -> Tensor:
    return x.sum() < 100


def _doubled(x: Tensor) -> tuple[Tensor]:
    return (x * 2,)


def looped(x: Tensor) -> Tensor:
    (result,) = torch._higher_order_ops.while_loop(_smaller, _doubled, (x,))
    return result


@torch.compiler.allow_in_graph
def opaque(x: Tensor) -> Tensor:
    return x @ x


def with_opaque(x: Tensor) -> Tensor:
    return opaque(x)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradient * 3 * x**2


def with_function(x: Tensor) -> Tensor:
    return Cube.apply(x).sin()  # type: ignore[no-untyped-call,no-any-return]


@torch.library.custom_op("torchgraph_cache_cases::double", mutates_args=())
def double(x: Tensor) -> Tensor:
    return x * 2


@double.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def with_custom_op(x: Tensor) -> Tensor:
    return double(x).sin()


def _body(x: Tensor) -> Tensor:
    return (x @ x).sin()


def checkpointed(x: Tensor) -> Tensor:
    return checkpoint(_body, x, use_reentrant=False)  # type: ignore[no-any-return]


def _contexts() -> Any:
    return create_selective_checkpoint_contexts([torch.ops.aten.mm.default])


def selective(x: Tensor) -> Tensor:
    return checkpoint(_body, x, use_reentrant=False, context_fn=_contexts)  # type: ignore[no-any-return]


def _hashed_contexts() -> Any:
    return _contexts()


_hashed_contexts.cache_hash = "mm-1"  # type: ignore[attr-defined]
_hashed_partial = functools.partial(
    create_selective_checkpoint_contexts, [torch.ops.aten.mm.default]
)
_hashed_partial.cache_hash = "mm-1"  # type: ignore[attr-defined]


def selective_hashed(x: Tensor) -> Tensor:
    return checkpoint(_body, x, use_reentrant=False, context_fn=_hashed_contexts)  # type: ignore[no-any-return]


def selective_partial(x: Tensor) -> Tensor:
    return checkpoint(_body, x, use_reentrant=False, context_fn=_hashed_partial)  # type: ignore[no-any-return]


@torch.compiler.nested_compile_region
def _region(x: Tensor) -> Tensor:
    return (x @ x).sin()


def regions(x: Tensor) -> Tensor:
    return _region(_region(x))


class NoUuid:
    def __call__(self, graph: torch.fx.Graph) -> None:
        pass


class Versioned(CustomGraphPass):
    def __init__(self, version: Any = "1") -> None:
        self.version = version

    def __call__(self, graph: torch.fx.Graph) -> None:
        pass

    def uuid(self) -> Any:
        return self.version


class UnpicklableUuid(Versioned):
    def uuid(self) -> Any:
        return (value for value in "generator")


# -- cases -----------------------------------------------------------------------------------------


@dataclass
class Case:
    """A target, its calls, and the answer.

    Attributes:
        make: makes target and calls.
        cause: `WARM`, or a part of each reason.
        around: context managers around the whole case.
        via: how `restart` compiles the target.
        is_cause: True if the case is in the table of releases.
        refused_in: releases with the cause; empty for all.
    """

    make: Callable[[], tuple[Any, list[tuple[Any, ...]]]]
    cause: str = WARM
    around: list[Callable[[], contextlib.AbstractContextManager[Any]]] = field(default_factory=list)
    via: tg.Inductor = field(default_factory=tg.Inductor)
    is_cause: bool = False
    refused_in: tuple[tuple[int, int], ...] = ()

    @property
    def expected(self) -> str:
        """The expected answer for this release."""
        return WARM if self.refused_in and RELEASE not in self.refused_in else self.cause


def ones(*sizes: int, grad: bool = False) -> Tensor:
    return (
        torch.linspace(0.1, 1, int(torch.tensor(sizes).prod())).reshape(sizes).requires_grad_(grad)
    )


def calls(target: Any, *shapes: tuple[int, ...], grad: bool = False) -> Any:
    return lambda: (target, [(ones(*shape, grad=grad),) for shape in shapes or ((4, 4),)])


def module(make: Callable[[], nn.Module], *shape: int) -> Any:
    return lambda: (make(), [(ones(*(shape or (4, 4))),)])


def _marked(*, left_over: bool) -> tuple[Any, list[tuple[Any, ...]]]:
    x = ones(4, 4, grad=True)
    torch._dynamo.mark_dynamic(x, 0)
    if left_over:
        x.grad = torch.ones(4, 4)
    return gram, [(x,)]


def _twins() -> tuple[Any, list[tuple[Any, ...]]]:
    from torch.testing._internal.two_tensor import TwoTensor

    return square, [(TwoTensor(ones(4, 4), ones(4, 4)),)]


def inductor(**values: Any) -> Any:
    return lambda: inductor_config.patch(
        {name.replace("__", "."): value for name, value in values.items()}
    )


def functorch(**values: Any) -> Any:
    return lambda: functorch_config.patch(values)


ATTENTION = (1, 2, 4, 8)
CASES: dict[str, Case] = {
    "matmul, trained": Case(calls(square, grad=True)),
    "MLP": Case(module(lambda: nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4)))),
    "dynamic=True": Case(calls(gram, (4, 4), (5, 6)), via=tg.Inductor(dynamic=True)),
    "dynamic sizes": Case(lambda: _marked(left_over=False)),
    "dynamic sizes, left-over gradient": Case(lambda: _marked(left_over=True), is_cause=True),
    "checkpoint": Case(calls(checkpointed, grad=True)),
    "nested_compile_region": Case(calls(regions)),
    "graph break": Case(calls(broken, grad=True), is_cause=True),
    "custom op": Case(calls(with_custom_op), is_cause=True),
    "tensor subclass": Case(_twins, is_cause=True),
    "autocast": Case(
        calls(autocast_inside), "_enter_autocast", is_cause=True, refused_in=((2, 12), (2, 13))
    ),
    "autocast around": Case(calls(gram), around=[lambda: torch.autocast("cpu", torch.bfloat16)]),
    "sdpa_kernel": Case(calls(sdpa_inside, ATTENTION), "_backend_from_string", is_cause=True),
    "sdpa_kernel around": Case(
        calls(attend, ATTENTION), around=[lambda: sdpa_kernel(SDPBackend.MATH)]
    ),
    "autograd.Function": Case(
        calls(with_function, grad=True), "autograd_function_apply", is_cause=True
    ),
    "autograd.Function, allowed": Case(
        calls(with_function, grad=True),
        around=[functorch(autograd_cache_allow_custom_autograd_functions=True)],
    ),
    "allow_in_graph": Case(calls(with_opaque), "opaque", is_cause=True),
    "allow_in_graph, vouched for": Case(
        calls(with_opaque),
        around=[inductor(unsafe_marked_cacheable_functions={f"{opaque.__module__}.opaque": "1"})],
    ),
    "selective checkpointing": Case(calls(selective, grad=True), "cache_hash", is_cause=True),
    "selective checkpointing, hashed": Case(calls(selective_hashed, grad=True)),
    "selective checkpointing, hashed partial": Case(
        calls(selective_partial, grad=True), "unpicklable type"
    ),
    "cond": Case(calls(branch), "cond", is_cause=True),
    "while_loop": Case(calls(looped), "while_loop"),
    "pass without uuid": Case(
        calls(gram),
        "custom pass",
        around=[inductor(post_grad_custom_post_pass=NoUuid())],
        is_cause=True,
    ),
    "pass with uuid": Case(calls(gram), around=[inductor(post_grad_custom_post_pass=Versioned())]),
    "backward without an op": Case(
        calls(shifted, grad=True), "a graph without an op is never saved", is_cause=True
    ),
    "caches off": Case(
        calls(gram),
        "force_disable_caches",
        around=[inductor(force_disable_caches=True)],
        is_cause=True,
    ),
    "AOTAutograd's cache off": Case(
        calls(gram), "enable_autograd_cache", around=[functorch(enable_autograd_cache=False)]
    ),
    "inductor's cache off": Case(
        calls(gram), "FX graph cache is not enabled", around=[inductor(fx_graph_cache=False)]
    ),
    "freezing": Case(
        module(lambda: nn.Linear(4, 4).eval()),
        "freezing",
        around=[torch.no_grad, inductor(freezing=True)],
        is_cause=True,
    ),
    "constant that cannot be pickled": Case(
        calls(gram),
        "pickl",
        around=[inductor(post_grad_custom_post_pass=UnpicklableUuid())],
        is_cause=True,
    ),
}


# -- answers ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answers:
    """The reasons of one case, per source. Empty if it is warm.

    Attributes:
        capture: reasons of `assert_cacheable`.
        here, process: reasons of a restart here, and of a restart with a second process.
    """

    capture: frozenset[str]
    here: frozenset[str]
    process: frozenset[str]

    def wrong(self, cause: str) -> list[str]:
        """Return the sources whose reasons are not this cause."""
        return [
            f"{source}: {sorted(reasons) or WARM}, expected {cause}"
            for source, reasons in vars(self).items()
            if (reasons if cause == WARM else not any(cause in reason for reason in reasons))
        ]


def answers(case: Case) -> Answers:
    """Ask all three sources."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(kernels_left_out())
        stack.enter_context(processes_forked())
        for context in case.around:
            stack.enter_context(context())
        options = {"dynamic": case.via.dynamic, "options": case.via.options}
        target, arguments = case.make()
        seen: set[str] = set()
        for args, kwargs in map(_split, arguments):
            via = tg.Inductor(codegen=False, **options)
            captured = tg.capture(target, *args, via=via, **kwargs)
            seen |= {f"{bypass.op}: {bypass.reason}" for bypass in captured.cache_bypasses}
            assert _passes(captured.assert_cacheable) == (not captured.cache_bypasses)
        restarts = [_restarted(case, process=process) for process in (False, True)]
        return Answers(frozenset(seen), *restarts)


def _split(call: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if len(call) == 2 and isinstance(call[0], tuple) and isinstance(call[1], dict):
        return call
    return call, {}


def _restarted(case: Case, *, process: bool) -> frozenset[str]:
    target, arguments = case.make()
    result = tg.restart(target, *arguments, via=case.via, process=process)
    missed = [lookup for lookup in result.lookups if lookup.state != "hit"]
    assert _passes(result.assert_warm) == (not missed)
    # Inductor's cache serves a graph that AOTAutograd's cache refuses, and the other way round.
    return frozenset(lookup.reason for lookup in missed)


def _passes(check: Callable[[], None]) -> bool:
    try:
        check()
    except AssertionError:
        return False
    return True
