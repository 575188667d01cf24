"""`check_pass`: checks what one pass does to one graph, and reports all problems at once.

Each check is a function that yields the lines of its problems: `_changes`, `_after`, `_values`,
`_annotations`, `_kept` and `_twice`. `_apply` runs the pass, and `_CheckedRun` runs a graph.
"""

from __future__ import annotations

import copy
import inspect
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
import torch.export
import torch.fx
from torch.utils._pytree import tree_leaves

from ..checks.rounding import tolerances
from ..convert.canonical_names import CanonicalNames
from ..convert.to_fx import ORIGIN, origin_of
from ..errors import CaptureError
from ..graph.diff import GraphDiff
from ..graph.model import Graph
from ..graph.text import format_result
from ..ops.impossible import pattern_name
from ..ops.matching import matches
from ..ops.qualified import attribute_at
from ..settings.paths import allows, patterns
from ..torch_release import need_torch
from ..words import counted, listed, one_line
from .differences import diff
from .existing import from_fx, lifted_tensors, to_fx

if TYPE_CHECKING:
    from typing import TypeGuard

_Subject: TypeAlias = torch.fx.GraphModule | torch.export.ExportedProgram

MAGNITUDES = (1.0, 1e-3, 1e3)
"""Sizes of random inputs. An epsilon, for example, matters only for small values."""
_INTEGERS = ((-1000, 1000), (0, 8), (0, 2), (0, 1))
"""Lower and upper bounds of random integers; the upper ones are excluded. The next are tried if the
graph cannot run, because the integers may be indices."""
_CANNOT_RUN = "the graph cannot run before the pass"
SEED = 0
"""Seed of the random inputs, and of the random numbers that a run draws."""


def check_pass(
    pass_fn: Callable[..., Any],
    graph_or_module_or_text: Graph | torch.fx.GraphModule | torch.export.ExportedProgram | str,
    inputs: Sequence[Any] | None = None,
    *,
    changes: Mapping[Any, int] | None = None,
    after: Graph | torch.fx.GraphModule | torch.export.ExportedProgram | str | None = None,
    annotations: Mapping[str, Sequence[str]] | None = None,
    keep: str | Sequence[str] = ("custom",),
    allow: str | Sequence[str] = (),
    rtol: float = 0,
    atol: float = 0,
) -> GraphDiff:
    """Assert that a pass is right for one graph. Return the difference that the pass made.

        check_pass(fuse_norm_and_quant, TEXT, changes={"lib.norm": -2, "lib.norm_quant": 2})

    The pass runs on a copy of the graph, and then on its own result. Both graphs, before and after,
    run on the same inputs. Each problem is a line of the message that begins with one of:

    - `malformed`: fx cannot compile the graph, or it has other inputs.
    - `change`: the pass changed nothing, or something other than `changes`.
    - `after`: the graph differs from `after`.
    - `values`: an output differs, or the graph cannot run.
    - `inputs written`: a run writes an input or an attribute, but only with or without the pass.
    - `aliasing`: outputs share memory with inputs or each other, but only with or without the pass.
    - `val`: `meta["val"]` is missing, or has another dtype or shape than the value.
    - `annotations`: meta of `keep` is lost, or other nodes than `annotations` have a key.
    - `not idempotent`: the second run of the pass changed the graph as well.

    Args:
        pass_fn: the pass. It takes a `torch.fx.Graph` if its first parameter has this annotation or
            the name `graph`, otherwise a `GraphModule`. It changes its argument, or returns a new
            `GraphModule`, `Graph` or `PassResult`. For an `ExportedProgram`, it takes the program,
            and changes it or returns a new one.
        graph_or_module_or_text: the graph before the pass; see `to_fx`. It is not modified.
            Parameters, buffers and constants of an `ExportedProgram` have their own values.
        inputs: the arguments of one call (a tuple or list), or a list of tuples for several calls.
            `None` for random inputs with the dtypes and shapes of `meta["val"]`, of magnitude 1,
            1e-3 and 1e3. They are the same in each run. Integers are between -1000 and 999 if the
            graph accepts them, otherwise (as indices, say) and on an accelerator between 0 and 7.
        changes: count of each op after the pass, minus the count before. For patterns, see
            `Graph.assert_op_counts`. No other count may change. `{}`: the graph may not change.
            `None`: the graph or its annotations must change.
        after: the graph that the result must equal.
        annotations: for a key of `node.meta["custom"]`, the names of all nodes that have it after
            the pass.
        keep: keys of `node.meta` that a node, or its replacement, must keep.
        allow: regular expressions, searched in the lines. A problem that one of them matches is
            none: a reinplacing pass writes its inputs, and a copy changes the aliasing.
        rtol, atol: tolerances of floating-point outputs. By default, values must be equal; 0.0
            equals -0.0.

    Raises:
        AssertionError: with all problems, and the difference that the pass made.
        TypeError, ValueError: for arguments that cannot be checked, such as a misspelled op.
        CaptureError: if the graph cannot run before the pass.
    """
    need_torch()
    allowed = patterns(allow) if allow else []
    before = _module(graph_or_module_or_text)
    result = _apply(pass_fn, before)
    if wrong := _malformed(before, result):  # nothing else can be checked
        found, lines = GraphDiff(()), [f"malformed: {wrong}"]
    else:
        found = diff(before, result)
        expected = None if after is None else _expected(after)
        lines = [
            *_changes(before, result, found, changes),
            *_after(result, expected),
            *_values(before, result, _runs_before(before, inputs), rtol, atol),
            *_annotations(result, annotations or {}),
            *_kept(before, result, [keep] if isinstance(keep, str) else keep),
            *_twice(pass_fn, result),
        ]
    lines = [line for line in dict.fromkeys(lines) if not allows(allowed, line.partition("\n")[0])]
    if not lines:
        return found
    name = getattr(pass_fn, "__name__", type(pass_fn).__name__)
    made = f"The pass made {found}" if found else "The pass changed no node."
    message = [f"{name}: {counted(len(lines), 'problem')}", *lines, "", made]
    raise AssertionError("\n".join(message))


# -- running the pass ------------------------------------------------------------------------------


def _module(subject: Any) -> _Subject:
    """Return what can run of any graph that `check_pass` takes."""
    if isinstance(subject, Graph | str):
        return to_fx(subject)
    if isinstance(subject, _Subject):
        return subject
    raise TypeError(
        "check_pass takes a Graph, a torch.fx.GraphModule, an ExportedProgram or a text, not "
        f"{type(subject).__name__}: for a capture, use capture.fx(capture.forward)"
    )


def _expected(subject: Any) -> _Subject | Graph:
    """Return the graph of the argument `after=`, which may also be one that cannot run."""
    try:
        return _module(subject)
    except CaptureError:  # a graph that cannot run can be compared
        return Graph.from_text(subject) if isinstance(subject, str) else subject


def _copied(subject: _Subject) -> _Subject:
    """Return a copy that shares nothing, including the dictionaries in the nodes' meta."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of a program's tree specs
        duplicate = copy.deepcopy(subject)
    # `deepcopy` of a graph copies the meta of its nodes, but not the dictionaries in it.
    for part in _graph_module(duplicate).modules():
        if isinstance(part, torch.fx.GraphModule):
            for node in part.graph.nodes:
                node.meta = {k: dict(v) if type(v) is dict else v for k, v in node.meta.items()}
    return duplicate


def _graph_module(subject: _Subject) -> torch.fx.GraphModule:
    return subject if isinstance(subject, torch.fx.GraphModule) else subject.graph_module


def _inputs(subject: _Subject) -> list[torch.fx.Node]:
    """Return the placeholders of a graph's arguments: not those of a program's own tensors."""
    lifted = lifted_tensors(subject)
    return [n for n in subject.graph.find_nodes(op="placeholder") if n.name not in lifted]


def _apply(pass_fn: Callable[..., Any], module: _Subject) -> _Subject:
    """Run a pass on a copy, and return its result.

    A pass that returns neither a graph nor a module has changed its argument.
    """
    duplicate = _copied(module)
    if isinstance(duplicate, torch.export.ExportedProgram):
        if _takes_graph(pass_fn) or "GraphModule" in _first_parameter(pass_fn):
            raise TypeError("the pass takes no ExportedProgram, so pass program.graph_module")
        returned = pass_fn(duplicate)
        return returned if isinstance(returned, torch.export.ExportedProgram) else duplicate
    returned = pass_fn(duplicate.graph if _takes_graph(pass_fn) else duplicate)
    returned = getattr(returned, "graph_module", returned)  # of a PassResult
    if isinstance(returned, torch.fx.Graph) and returned is not duplicate.graph:
        returned = torch.fx.GraphModule(duplicate, returned)
    result = returned if isinstance(returned, torch.fx.GraphModule) else duplicate
    origin = origin_of(module.graph)
    for output in result.graph.find_nodes(op="output") if origin is not None else ():
        output.meta.setdefault(ORIGIN, origin)  # lost if the pass made a new output
    return result


def _takes_graph(pass_fn: Callable[..., Any]) -> bool:
    """Return True if a pass takes a `torch.fx.Graph`, by its annotation, else by its name."""
    name, annotation = _first_parameter(pass_fn)
    return annotation == "Graph" or (name == "graph" and annotation != "GraphModule")


def _first_parameter(pass_fn: Callable[..., Any]) -> tuple[str, str]:
    """Return the name of the first parameter, and the last part of its annotation."""
    try:
        parameters = list(inspect.signature(pass_fn).parameters.values())
    except (TypeError, ValueError):  # a builtin
        return "", ""
    if not parameters:
        return "", ""
    annotation = parameters[0].annotation
    # `from __future__ import annotations` makes texts of annotations.
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return parameters[0].name, name.strip("'\"").rpartition(".")[2]


def _malformed(before: _Subject, result: _Subject) -> str:
    """Return why a graph is malformed, "" if it is not."""
    try:
        result.graph.lint()
        _graph_module(result).recompile()
    except Exception as error:  # fx raises whatever the graph makes it raise
        return _in_words(error)
    if not result.graph.find_nodes(op="output"):
        return "the graph has no output"
    was, now = ([node.name for node in _inputs(module)] for module in (before, result))
    return "" if len(was) == len(now) else f"the inputs were {listed(was)}, are {listed(now)}"


def _in_words(error: Exception) -> str:
    """Return an exception in one line."""
    return one_line(f"{type(error).__name__}: {' '.join(str(error).split())}")


# -- changes ---------------------------------------------------------------------------------------


def _changes(
    before: _Subject, result: _Subject, found: GraphDiff, changes: Mapping[Any, int] | None
) -> Iterator[str]:
    """Yield lines about ops whose count changed otherwise than `changes=` says."""
    if changes is None:
        # Any change will do, also one that a difference leaves out.
        if not found and _order(before) == _order(result):
            yield "change: the pass changed nothing that a graph says: it may have matched no node"
        return
    if not isinstance(changes, Mapping) or not all(type(n) is int for n in changes.values()):
        raise TypeError(f"changes={changes!r} must map ops to ints, such as {{'aten.mm': -1}}")
    if not changes and found:
        yield f"change: expected none, found {found.heading()}"
        return
    old, new = from_fx(before), from_fx(result)
    for op, expected in changes.items():
        delta = new.count(op) - old.count(op)
        if delta != expected:
            yield f"change: {pattern_name(op)}: expected {expected:+}, found {delta:+}"
    names = [pattern_name(op) for op in changes]
    for op in sorted({*old.op_counts, *new.op_counts}):
        delta = new.op_counts.get(op, 0) - old.op_counts.get(op, 0)
        if delta and not any(matches(op, name) for name in names):
            yield f"change: {op}: {delta:+}, which changes= does not name"


def _order(module: _Subject) -> list[Any]:
    """Return what a difference leaves out: order, equal ops such as `view` and `reshape`, tags."""
    return [(node.name, node.target, str(node.meta.get("custom"))) for node in module.graph.nodes]


def _after(result: _Subject, expected: _Subject | Graph | None) -> Iterator[str]:
    """Yield a line if the result is not the graph of `after=`."""
    if expected is not None and (difference := diff(expected, result)):
        yield _with_details("after: not the expected graph, but with", difference)


def _twice(pass_fn: Callable[..., Any], result: _Subject) -> Iterator[str]:
    """Run the pass on its own result. Yield a line if it fails, or changes the graph again."""
    try:
        again = _apply(pass_fn, result)
        wrong = _malformed(result, again)
        difference = GraphDiff(()) if wrong else diff(result, again)
    except Exception as error:  # of the pass
        wrong = _in_words(error)
    if wrong:
        yield f"not idempotent: the second run fails: {wrong}"
    elif difference:
        yield _with_details("not idempotent: the second run made", difference)


def _with_details(line: str, difference: GraphDiff) -> str:
    heading, *details = str(difference).splitlines()
    return "\n".join([f"{line} {heading}", *(f"  {detail}" for detail in details)])


# -- values ----------------------------------------------------------------------------------------


def _runs_before(module: _Subject, inputs: Any) -> Mapping[str, _CheckedRun]:
    """Run the graph before the pass. Return the runs, by a description for messages."""
    if inputs is None:
        return {
            f"with random inputs of magnitude {magnitude:g}": _random_run(module, magnitude)
            for magnitude in MAGNITUDES
        }
    if not isinstance(inputs, tuple | list):
        raise TypeError(f"inputs must be a tuple or list, not {type(inputs).__name__}")
    # A list of tuples is several calls: one call whose arguments are all tuples is a tuple.
    several = isinstance(inputs, list) and inputs and all(isinstance(i, tuple) for i in inputs)
    calls = {f"with call {n} of inputs": i for n, i in enumerate(inputs, 1)} if several else {}
    names = [node.name for node in _inputs(module)]
    for values in calls.values() or [inputs]:
        if len(values) != len(names):
            raise TypeError(
                f"the graph takes {counted(len(names), 'input')} ({listed(names)}), but inputs has "
                f"{len(values)}"
            )
    calls = calls or {"with inputs": inputs}
    try:
        return {words: _CheckedRun(module, values) for words, values in calls.items()}
    except Exception as error:  # of any op
        raise CaptureError(f"{_CANNOT_RUN} with these inputs: {_in_words(error)}") from error


def _random_run(module: _Subject, magnitude: float) -> _CheckedRun:
    """Run a graph with the first random inputs that it accepts."""
    error: Exception | None = None
    # An accelerator does not refuse an index out of bounds: it fails for the rest of the process.
    for bounds in _INTEGERS[torch.accelerator.is_available() :]:
        generator = torch.Generator().manual_seed(SEED)
        values = [_random(node, magnitude, bounds, generator) for node in _inputs(module)]
        try:
            return _CheckedRun(module, values)
        except Exception as failure:  # of any op
            error = failure
    assert error is not None
    raise CaptureError(f"{_CANNOT_RUN}, so pass inputs=: {_in_words(error)}")


def _random(
    node: torch.fx.Node, magnitude: float, bounds: tuple[int, int], generator: torch.Generator
) -> Any:
    """Return a random value for an input, with the dtype, shape and strides of its meta.

    A number has its own value, and so has a constant whose values the text of the graph contains.

    Args:
        node: the placeholder.
        magnitude: size of floating-point and complex numbers.
        bounds: the smallest integer, and the one after the largest.
        generator: the generator to draw from.
    """
    value = node.meta.get("val", node.meta.get("example_value"))
    if isinstance(value, torch.SymInt | torch.SymFloat | int | float):
        return _size(value)
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"input {node.name} has no meta['val'], so pass inputs=")
    origin = origin_of(node.graph)
    dtype, shape, stride = value.dtype, [*map(_size, value.shape)], [*map(_size, value.stride())]
    if origin is not None and (known := origin.values.get(node.name)):
        return torch.tensor(known[0], dtype=dtype).reshape(shape)
    if 0 in shape:  # the length below would be negative
        return torch.empty_strided(shape, stride, dtype=dtype)
    # Fill the memory, so that an expanded input stays expanded.
    length = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    if dtype.is_floating_point or dtype.is_complex:
        kind = torch.complex64 if dtype.is_complex else torch.float32
        # Converted below, because torch does not draw numbers of every dtype.
        memory = torch.randn(length, dtype=kind, generator=generator) * magnitude
    else:
        low, high = (0, 2) if dtype == torch.bool else bounds
        memory = torch.randint(low, high, (length,), generator=generator)
    # Without an accelerator, the graph of one runs on the CPU.
    device = value.device if torch.accelerator.is_available() else "cpu"
    return memory.to(device, dtype).as_strided(shape, stride)


def _size(size: Any) -> Any:
    """Return a number, or torch's example of a symbolic number."""
    return size if isinstance(size, int | float) else size.node.hint


def _values(
    before: _Subject, result: _Subject, runs: Mapping[str, _CheckedRun], rtol: float, atol: float
) -> Iterator[str]:
    """Run the graph after the pass. Yield lines about values, writes, aliasing and meta."""
    # Each line is reported once, with the first inputs that show it.
    lines: dict[str, str] = {}
    compared = False
    # A pass must keep meta that all calls had. A graph with gaps may get more of them.
    needs_val = all("val" in node.meta for node in _calls(before))
    for words, old in runs.items():
        try:
            new = _CheckedRun(result, old.inputs)
        except Exception as error:  # of any op
            yield f"values: the graph fails after the pass: {_in_words(error)}"
            return
        if len(old.outputs) != len(new.outputs):
            number = counted(len(old.outputs), "output")
            yield f"values: {number} before the pass, {len(new.outputs)} after it"
            return
        compared = compared or bool(old.written) or any(map(_has_number, old.outputs.values()))
        # What only one of the runs writes is a line of `_memory_lines`.
        for name in [*sorted(old.written & new.written), *old.outputs]:
            if difference := _difference(old.named[name], new.named[name], rtol, atol):
                lines.setdefault(f"values: {name} differs", f" ({words}): {difference}")
        lines.update(dict.fromkeys(_memory_lines(old, new, "only after the pass"), ""))
        lines.update(dict.fromkeys(_memory_lines(new, old, "only before the pass"), ""))
        for line in new.val_lines:
            if line not in old.val_lines and (needs_val or " no " not in line):  # "has no meta"
                lines[line] = ""
    yield from map("".join, lines.items())
    if not compared:
        yield "values: nothing compared, because no output has a finite number: pass inputs="


def _calls(module: _Subject) -> list[torch.fx.Node]:
    return [node for node in module.graph.nodes if node.op in ("call_function", "call_method")]


def _has_number(value: Any) -> bool:
    """Return True if comparing a value says something: it is empty, or not all NaN or infinite."""
    if isinstance(value, torch.Tensor):
        return not value.numel() or bool(value.isfinite().any())
    return value is not None


class _CheckedRun(torch.fx.Interpreter):
    """A run of a graph on copies of its inputs. Creating it runs the graph.

    Raises whatever the ops of the graph raise.

    Attributes:
        inputs: the arguments, which are not modified.
        outputs: leaves of the output, by name.
        named: inputs, attributes and outputs after the run, by name.
        written: names of the inputs and attributes that the run wrote.
        shared: pairs of names whose tensors share memory.
        val_lines: lines about missing or wrong `meta["val"]`.
    """

    def __init__(self, subject: _Subject, inputs: Sequence[Any]):
        super().__init__(_graph_module(_copied(subject)))
        self.inputs = inputs
        self.val_lines: list[str] = []
        # Detached, because `deepcopy` refuses a tensor that autograd has computed.
        detached = [value.detach() if _is_tensor(value) else value for value in inputs]
        lifted = {name: value.detach() for name, value in lifted_tensors(subject).items()}
        own, by_name = copy.deepcopy((detached, lifted))  # keeps views of one memory together
        by_name.update(zip([node.name for node in _inputs(subject)], own, strict=True))
        values = {n.name: by_name[n.name] for n in self.graph.find_nodes(op="placeholder")}
        self.named = {f"input {name}": value for name, value in values.items()}
        for node in self.graph.find_nodes(op="get_attr"):
            target = str(node.target)
            self.named[f"attribute {target}"] = attribute_at(self.module, target)
        copies = {n: v.detach().clone() for n, v in self.named.items() if _is_tensor(v)}
        # Equal numbers in each run, and the user's generators as before.
        with torch.no_grad(), torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            torch.manual_seed(SEED)
            leaves = tree_leaves(self.run(*values.values()))
        self.written = {n for n, value in copies.items() if _difference(value, self.named[n])}
        self.outputs = {f"output {number}": value for number, value in enumerate(leaves)}
        self.named.update(self.outputs)
        owners: dict[int, list[str]] = {}
        self.shared: set[tuple[str, str]] = set()
        # The outputs are last, so each is paired with all inputs and attributes, and with the
        # outputs before it. Pairs of inputs are the caller's. An empty tensor has the address 0.
        for name, value in self.named.items():
            if _is_tensor(value) and (address := value.untyped_storage().data_ptr()):
                names = owners.setdefault(address, [])
                if name in self.outputs:
                    self.shared.update((other, name) for other in names)
                names.append(name)

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run a node, and compare its `meta["val"]` with its value."""
        value = super().run_node(n)
        if n.op.startswith("call_") and any(map(_is_tensor, tree_leaves(value))):
            val, actual = tree_leaves(n.meta.get("val")), tree_leaves(value)
            if "val" not in n.meta:
                # torch's own partitioners write no meta to calls of modules and their results.
                producer = n.args[0] if n.target is operator.getitem else n
                if producer.op != "call_module":  # type: ignore[union-attr]
                    self.val_lines.append(f"val: {n.name} has no meta['val']")
            elif len(val) != len(actual) or any(map(_is_another, val, actual)):
                self.val_lines.append(
                    f"val: {n.name} has {_words(val)} in meta['val'], but its value is "
                    f"{_words(actual)}"
                )
        return value


def _is_tensor(value: Any) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor)


def _is_another(val: Any, value: Any) -> bool:
    """Return True if a value does not have the dtype or shape in its meta."""
    if not _is_tensor(val) or not _is_tensor(value):
        return _is_tensor(val) != _is_tensor(value)
    # The number of dimensions is compared below. A symbolic size has no value to compare.
    sizes = zip(val.shape, value.shape, strict=False)
    differ = any(isinstance(size, int) and size != actual for size, actual in sizes)
    return differ or val.dtype != value.dtype or val.dim() != value.dim()


def _words(values: Sequence[Any]) -> str:
    """Return dtypes and shapes in words."""
    return listed(map(format_result, map(CanonicalNames({}).result, values)))


def _difference(was: Any, now: Any, rtol: float = 0, atol: float = 0) -> str:
    """Return the difference of two values in one line, "" if there is none."""
    relative, allowed = tolerances(rtol, atol, now if _is_tensor(now) else torch.tensor(0.0))
    try:
        torch.testing.assert_close(now, was, rtol=relative, atol=allowed, equal_nan=True)
    except AssertionError as error:
        return " ".join(str(error).split())
    except TypeError:  # not a tensor or number
        return "" if was == now else f"was {was!r}, is {now!r}"
    return ""


def _memory_lines(run: _CheckedRun, other: _CheckedRun, words: str) -> Iterator[str]:
    """Yield lines about writes and aliasing that only the other run has."""
    if names := sorted(other.written - run.written):
        yield f"inputs written: a run writes {listed(names)}, {words}"
    for a, b in sorted(other.shared - run.shared):
        yield f"aliasing: {b} shares memory with {a}, {words}"


# -- meta ------------------------------------------------------------------------------------------


def _annotations(result: _Subject, annotations: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield lines about nodes that lack a key of `annotations=`, or have it in addition."""
    known = {node.name: node for node in result.graph.nodes}
    for key, names in annotations.items():
        having = [name for name, node in known.items() if key in (node.meta.get("custom") or {})]
        # fx makes `%layer/sum` of a text `layer_sum`, and `%sum`, the name of a builtin, `sum_1`.
        wanted = [re.sub(r"\W", "_", name) for name in names]
        wanted = [
            f"{name}_1" if f"{name}_1" in known and name not in known else name for name in wanted
        ]
        if missing := [name for name in wanted if name not in having]:
            yield f"annotations: {key!r} is missing on {listed(missing)}"
        if more := [name for name in having if name not in wanted]:
            yield f"annotations: {key!r} is also on {listed(more)}"


def _kept(before: _Subject, result: _Subject, keep: Sequence[str]) -> Iterator[str]:
    """Yield lines about meta of `keep=` that a node, or the replacement of a removed node, lost."""
    old_names = {node.name for node in before.graph.nodes}
    new_nodes = {node.name: node for node in result.graph.nodes}
    for node in before.graph.nodes:
        for key in keep:
            was = node.meta.get(key)
            if not was:
                continue
            if node.name in new_nodes:
                now = new_nodes[node.name].meta.get(key)
                if not _holds(now, was):
                    yield f"annotations: meta[{key!r}] of {node.name} was {was}, is {now}"
                continue
            # If its readers only read nodes of before, the pass has put no node in its place.
            replacements = _replacements(node, new_nodes)
            added = [n for n in replacements if n.name not in old_names]
            if added and not any(_holds(n.meta.get(key), was) for n in added):
                yield (
                    f"annotations: meta[{key!r}] of {node.name} was {was}, and its replacement "
                    f"{listed(n.name for n in added)} does not have it"
                )


def _holds(now: Any, was: Any) -> bool:
    """Return True if meta is as before. A mapping may have further keys."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        return all(key in now and now[key] == value for key, value in was.items())
    return bool(now == was)


def _replacements(
    node: torch.fx.Node, new_nodes: Mapping[str, torch.fx.Node]
) -> list[torch.fx.Node]:
    """Return the nodes that readers of a removed node, or of its readers, read instead."""
    replacements: dict[torch.fx.Node, None] = {}
    todo, visited = [node], {node}
    while todo:
        removed = todo.pop()
        for user in removed.users:
            reader = new_nodes.get(user.name)
            if reader is None and user not in visited:
                visited.add(user)
                todo.append(user)
            elif reader is not None:
                # The pass may also have changed how many arguments the reader has.
                was, now = (tree_leaves((n.args, n.kwargs)) for n in (user, reader))
                for old, new in zip(was, now, strict=False):
                    if old is removed and isinstance(new, torch.fx.Node):
                        replacements[new] = None
                        if new.target is operator.getitem:  # of the op that computes it
                            replacements[new.args[0]] = None  # type: ignore[index]
    return list(replacements)
