"""Launches in the Python module that inductor writes for a graph, and skipped CUDA graphs.

Only this module shows what really runs. Its format is not public; torch 2.9 to 2.15 are tested.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..convert.source_lines import from_stack_trace
from ..errors import TorchGraphError
from ..ops.qualified import dotted
from ..ops.views import NO_WORK
from .compilations import Compilation

_COMPILER = "async_compile"
_ALTERNATIVES = frozenset({"multi_kernel", "size_hint_multi_kernel"})
"""Methods of the compiler that take several kernels and run one of them."""
_EXTERN_KERNELS = "extern_kernels"
EXTERN = "extern"
"""Kind of a library call."""
_OPS = "torch.ops."
_CALL_METHODS = frozenset({"copy_"})
"""Tensor methods that the code calls for work on a device, such as copies between devices."""


class UnreadableCodeError(TorchGraphError):
    """Generated code in another format than inductor's default Python module."""


@dataclass
class Launch:
    """A kernel that the code defines, or a call of an op in it, instead of a generated kernel.

    Attributes:
        name: name of the variable that holds the kernel; for a call, the callee as written in the
            code, with module aliases resolved.
        kind: `EXTERN` for a call, else the language, the first part of the name of the compiling
            method: `cpp` for `async_compile.cpp_pybinding(...)`.
        device: device type, "" if the code does not state it.
        source: the kernel's source, or the call expression.
        op: qualified name of the called op, with the overload if the code names it; "" for a
            kernel.
        launches: number of launches.
    """

    name: str
    kind: str
    device: str
    source: str
    op: str = ""
    launches: int = 0


def follow(code: str) -> Reader:
    """Follow one run of a generated module.

    Launches in a body shared by several calls count once per call. All branches of a condition
    count, and a loop counts as one iteration.

    Args:
        code: the module that inductor wrote for a graph.

    Raises:
        UnreadableCodeError: if the code has another format, such as the C++ wrapper's.
    """
    try:
        tree = ast.parse(code)
    except SyntaxError as error:
        raise UnreadableCodeError(
            f"inductor generated a line that is not Python ({error.msg}): "
            f"{(error.text or '').strip()!r}. Please report this line"
        ) from None
    reader = Reader(tree)
    if "call" not in reader.functions or "cpp_wrapper_src" in dict(_assignments(tree.body)):
        raise UnreadableCodeError(
            "inductor generated the kernel calls in C++ (option cpp_wrapper), which is not "
            "parsed: disable cpp_wrapper for this check"
        )
    reader.visit(reader.functions["call"])
    reader.launched += [kernel for kernel in reader.kernels.values() if not kernel.launches]
    return reader


class Reader:
    """Follows the calls of a generated module, starting at `call`.

    Attributes:
        functions: the functions of the module.
        kernels: the kernels that it defines.
        aliases: expansions of names, such as `torch.ops.aten` for `aten`.
        launched: launches, ordered by first launch. Kernels that are never launched come last.
        executed: calls and assignments in execution order, each paired with its launch, or `None`
            if it launches nothing. An assignment comes after the calls in its value.
    """

    def __init__(self, tree: ast.Module):
        # `call` is a method of a class `Runner` if the graph is partitioned.
        self.functions = {
            node.name: node
            for statement in tree.body
            for node in (statement.body if isinstance(statement, ast.ClassDef) else [statement])
            if isinstance(node, ast.FunctionDef)
        }
        self.kernels = {kernel.name: kernel for kernel in _definitions(tree)}
        self.aliases = {
            name: path
            for name, value in _assignments(tree.body)
            if (path := dotted(value)).startswith("torch.")
        }
        self.launched: list[Launch] = []
        self.executed: list[tuple[ast.Call | ast.Assign, Launch | None]] = []
        self._calls: dict[ast.Call, Launch] = {}  # the launch of each call of an op, made once
        # The device type of each variable that the code allocates.
        self._devices = {
            name: device
            for name, value in _assignments(ast.walk(tree))
            if (device := _device_of_allocation(value))
        }

    def visit(self, function: ast.FunctionDef) -> None:
        """Count the launches in one run of a function, including its callees."""
        for call in _executed(function):
            if isinstance(call, ast.Assign):
                self.executed.append((call, None))
                continue
            name = dotted(call.func, self.aliases)
            body = self.functions.get(_partition(call) or name)
            if body is not None and body is not function:  # a recursion would never end
                self.visit(body)
                continue
            launched = self._find_launch(call, name)
            self.executed.append((call, launched))
            if launched is not None:
                if not launched.launches:
                    self.launched.append(launched)
                launched.launches += 1

    def _find_launch(self, call: ast.Call, name: str) -> Launch | None:
        """Return the launch of a call: the same one each time, `None` if it launches nothing.

        Args:
            call: the call.
            name: its callee, with module aliases resolved.
        """
        # A Triton kernel is launched by `kernel.run(...)`.
        kernel = self.kernels.get(name.removesuffix(".run"))
        if kernel is not None:
            return kernel
        if call not in self._calls:
            op = _op(call, name)
            if not op or ".".join(op.split(".")[:2]) in NO_WORK:
                return None
            device = self._device_of(call)
            self._calls[call] = Launch(name, EXTERN, device, ast.unparse(call), op)
        return self._calls[call]

    def _device_of(self, call: ast.Call) -> str:
        """Return the device type of the tensors of a call, "" if unknown."""
        out = [keyword.value for keyword in call.keywords if keyword.arg == "out"]
        if isinstance(call.func, ast.Attribute) and call.func.attr in _CALL_METHODS:
            out.append(call.func.value)
        for node in (*out, *call.args):
            for name in ast.walk(node):
                if isinstance(name, ast.Name) and name.id in self._devices:
                    return self._devices[name.id]
        # Only one device: it is that of all calls.
        device_types = {*self._devices.values()}
        return device_types.pop() if len(device_types) == 1 else ""


_RENAMED = {"_mm_plus_mm": "mm", "bias_addmm": "addmm", "addmm_activation": "_addmm_activation"}
"""Names in inductor's `extern_kernels` that differ from the names of the aten ops."""


def _op(call: ast.Call, name: str) -> str:
    """Return the qualified op of a call, "" if it calls no op."""
    if name.startswith(f"{_EXTERN_KERNELS}."):
        called = name.partition(".")[2]
        return f"aten.{_RENAMED.get(called, called)}"
    if name.startswith(_OPS):
        return name.removeprefix(_OPS)
    if isinstance(call.func, ast.Attribute) and call.func.attr in _CALL_METHODS and call.args:
        return f"aten.{call.func.attr}"
    return ""


def _executed(function: ast.FunctionDef) -> list[ast.Call | ast.Assign]:
    """Return the calls and assignments in a function, in source order.

    An assignment counts at its end, so it comes after the calls in its value.
    """

    def key(node: ast.Call | ast.Assign) -> tuple[int, int]:
        if isinstance(node, ast.Call):
            return node.lineno, node.col_offset
        return node.end_lineno or node.lineno, node.end_col_offset or 0

    nodes = [node for node in ast.walk(function) if isinstance(node, ast.Call | ast.Assign)]
    return sorted(nodes, key=key)


def _partition(call: ast.Call) -> str:
    """Return the name of the function that `self.partitions[0](...)` calls; "" for other calls."""
    match call.func:
        case ast.Subscript(ast.Attribute(attr="partitions"), ast.Constant(value=int(number))):
            return f"partition_{number}"
    return ""


def _assignments(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Yield name and value of each assignment to a name."""
    for node in nodes:
        match node:
            case ast.Assign([ast.Name(name), *_], value):
                yield name, value


def _definitions(tree: ast.Module) -> Iterator[Launch]:
    """Yield each `name = async_compile...(...)`, without the alternatives of another kernel."""
    compile_calls: dict[str, tuple[str, ast.Call]] = {}
    for name, value in _assignments(tree.body):
        if isinstance(value, ast.Call):
            compiler, _, method = dotted(value.func).partition(".")
            if compiler == _COMPILER and method:
                compile_calls[name] = method, value
    alternatives: dict[str, str] = {}
    for name, (method, call) in compile_calls.items():
        if method in _ALTERNATIVES:
            names = [node.id for node in ast.walk(call) if isinstance(node, ast.Name)]
            alternatives.update((kernel, name) for kernel in names if kernel in compile_calls)
    for name, (method, call) in compile_calls.items():
        if name in alternatives:
            continue
        if method in _ALTERNATIVES:
            # Only one alternative runs, so the group counts as one kernel, with the first's source.
            first = next(kernel for kernel, group in alternatives.items() if group == name)
            method, call = compile_calls[first]
        language = method.partition("_")[0]
        # `async_compile.cpp` and `.cuda` take no device, and `.triton` defaults to "cuda".
        device = _keyword(call, "device_str") or ("cpu" if language == "cpp" else "cuda")
        yield Launch(name, language, device, _longest_text(call))


def _longest_text(call: ast.Call) -> str:
    """Return the longest string argument, which is the source; "" if there is none."""
    texts = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
    return max((text for text in texts if isinstance(text, str)), key=len, default="")


def _keyword(call: ast.Call, name: str) -> str:
    """Return the constant keyword argument of a call as text, "" if there is none."""
    for keyword in call.keywords:
        match keyword:
            case ast.keyword(arg, ast.Constant(value)) if arg == name:
                return str(value)
    return ""


def _device_of_allocation(value: ast.expr) -> str:
    """Return the device type in `empty_strided_cuda(...)` or `rand_strided(..., device=...)`."""
    if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Name)):
        return ""
    if device := _keyword(value, "device"):
        return device.partition(":")[0]
    # Also `empty_strided_cpu_pinned`, but `empty_strided_p2p` does not name a device.
    prefix, _, suffix = value.func.id.partition("empty_strided_")
    return "" if prefix or suffix == "p2p" else suffix.partition("_")[0]


_PREFIX = "skipping cudagraphs due to "
_STACK = re.compile(r"\.? *Found from ?: *\n?")
NO_REASON = (
    "torch gives no reason: it reports reasons only for graphs on CUDA, and only the last one of "
    "a compilation"
)


@dataclass(frozen=True)
class CudagraphSkip:
    """A graph that runs without a CUDA graph, although `mode="reduce-overhead"` requested one.

    Attributes:
        reason: torch's words.
        file, line, code: the user's line that torch names; "", 0 and "" if it names none.
        compile_id: id of the compilation, "" if torch does not report it.
    """

    reason: str
    file: str
    line: int
    code: str
    compile_id: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.code}\n{self.reason}" if self.file else self.reason


def skips_of(
    compiled: Iterable[Compilation], counters: Mapping[str, Mapping[Any, int]]
) -> tuple[CudagraphSkip, ...]:
    """Return the graphs without a CUDA graph, those with a reason first.

    If Dynamo counts more of them than there are reasons, the others have `NO_REASON`.

    Args:
        compiled: the compilations.
        counters: Dynamo's counters, by group.
    """
    skips = [
        _skip(text, str(compilation.id or ""))
        for compilation in compiled
        for text in compilation.cudagraphs
    ]
    counted = counters.get("inductor", {}).get("cudagraph_skips", 0)
    unexplained = CudagraphSkip(NO_REASON, "", 0, "", "")
    # A negative number of copies is none.
    return (*skips, *[unexplained] * (counted - len(skips)))


def _skip(text: str, compile_id: str) -> CudagraphSkip:
    """Split torch's text about a skipped CUDA graph into the reason and the user's line."""
    reason, *stack = _STACK.split(text.strip(), maxsplit=1)
    source = from_stack_trace(stack[0]) if stack else None
    while reason.startswith(_PREFIX):  # torch may put it before a reason that has it already
        reason = reason.removeprefix(_PREFIX)
    if source is None:
        return CudagraphSkip(reason, "", 0, "", compile_id)
    return CudagraphSkip(reason, source.file, source.line, source.code, compile_id)
