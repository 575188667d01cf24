"""Read the statements of a printed `forward` as nodes of a torch.fx graph.

Only the form is read here: call and operands of each node. The conversion shared with live graphs
adds names, effects and everything else in a `Graph`.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from torch import fx

from ...ops.qualified import dotted
from ..node_meta import RESULT, SCOPE
from .expressions import INPLACE, Call, ExpressionReader, read_result
from .syntax import PrintedText

_TREE_FLATTEN = "fx_pytree.tree_flatten_spec"
_TREE_UNFLATTEN = "pytree.tree_unflatten"


class ForwardReader:
    """Reader of one `forward`. The constructor reads all of it, and the result is `graph`.

    Attributes:
        graph: the fx graph that the statements are added to.
        nodes: nodes by printed name.
        inputs: placeholders that may still be renamed, by parameter name.
        declared: annotations before a `tree_flatten_spec`, by input name.
        pending: an in-place operation whose result the next statement names: target, arguments,
            text of the first operand, statement.
        done: True once the return statement has been read.
    """

    def __init__(self, text: PrintedText, function: ast.FunctionDef):
        self.text = text
        self.graph = fx.Graph()
        self.nodes: dict[str, fx.Node] = {}
        self.values = ExpressionReader(text, self.nodes)
        self.fail = self.values.fail
        self.inputs: dict[str, fx.Node] = {}
        self.declared: dict[str, ast.AnnAssign] = {}
        self.pending: tuple[Callable[..., Any], tuple[Any, ...], str, ast.stmt] | None = None
        self.done = False
        body = list(function.body)
        flatten = next((i for i, stmt in enumerate(body) if _is_flatten(stmt)), None)
        if flatten is None:
            self.signature(function)
        else:
            self.flattened_inputs(body[: flatten + 1])
            body = body[flatten + 1 :]
        for statement in body:
            self.statement(statement)
        if not self.done:
            self.fail(function, "missing return: the text is truncated")
        self.infer_tuples()

    # -- inputs ----------------------------------------------------------------------------------

    def signature(self, function: ast.FunctionDef) -> None:
        """Read the inputs from the parameters of `forward`."""
        spec = function.args
        if spec.vararg or spec.kwarg or spec.kwonlyargs:
            self.fail(function, "inputs with * are not supported")
        parameters = [*spec.posonlyargs, *spec.args]
        if not parameters or parameters[0].arg != "self":
            self.fail(function, "forward has no parameter self")
        defaults = [None] * (len(parameters) - len(spec.defaults)) + list(spec.defaults)
        for parameter, default in list(zip(parameters, defaults, strict=True))[1:]:
            args = () if default is None else (self.values.value(default),)
            end = default or parameter
            self.input(parameter.arg, parameter.annotation, self.text.comment(end), args, parameter)

    def flattened_inputs(self, body: list[ast.stmt]) -> None:
        """Read a joint graph's inputs: annotations, then a `tree_flatten_spec`."""
        for statement in body[:-1]:
            if not isinstance(statement, ast.AnnAssign) or statement.value is not None:
                self.fail(statement, "expected an annotation before tree_flatten_spec")
            self.declared[_target(statement.target)] = statement
        assign = body[-1]
        assert isinstance(assign, ast.Assign)
        targets = assign.targets[0]
        names = [_target(t) for t in targets.elts] if isinstance(targets, ast.Tuple) else [""]
        if len(assign.targets) != 1 or "" in names or self.declared.keys() - set(names):
            self.fail(assign, "the inputs of tree_flatten_spec differ from the annotated inputs")
        for name in names:
            declared = self.declared.get(name)
            annotation = None if declared is None else declared.annotation
            comment = "" if declared is None else self.text.comment(declared)
            self.input(name, annotation, comment, (), declared or assign)

    def input(
        self,
        name: str,
        annotation: ast.expr | None,
        comment: str,
        defaults: tuple[Any, ...],
        where: ast.AST,
    ) -> None:
        """Add a placeholder.

        Args:
            name: its printed name.
            annotation: its result as printed, if any.
            comment: the comment at its end, which may be its description.
            defaults: its default value, if any.
            where: the place that an error names.
        """
        if name in self.nodes:
            self.fail(where, f"{name} is defined twice")
        node = self.create(where, ("placeholder", name, defaults, {}), name)
        self.annotate(node, annotation)
        description = read_description(comment) if comment else None
        if description is not None:
            node.meta["desc"] = description
        self.inputs[name] = node

    # -- statements ------------------------------------------------------------------------------

    def statement(self, stmt: ast.stmt) -> None:
        """Read a statement after the inputs."""
        if self.done:
            self.fail(stmt, "statement after the return")
        match stmt:
            case _ if self.pending is not None:
                self.name_pending(stmt)
            case ast.Return():
                self.output(stmt)
            case ast.AugAssign(target, op, value):
                self.pending = (
                    self.values.operator(INPLACE, op, stmt),
                    (self.values.value(target), self.values.value(value)),
                    self.text.segment(target),
                    stmt,
                )
            case ast.AnnAssign(target, annotation, ast.expr() as value):
                self.node(stmt, _target(target), annotation, self.values.call_of(value))
            case ast.Assign():
                self.assign(stmt)
            case ast.Pass():
                pass
            case _:
                self.fail(stmt, "unsupported statement")

    def assign(self, stmt: ast.Assign) -> None:
        """Read an assignment: a call, `x = None`, `x[i] = y`, or a new name for an input."""
        names = [_target(target) for target in stmt.targets]
        value = stmt.value
        if isinstance(value, ast.Constant) and value.value is None and all(names):
            unknown = [name for name in names if name not in self.nodes]
            if unknown:
                self.fail(stmt, f"{unknown[0]} is deleted, but not defined")
            return
        if len(stmt.targets) != 1:
            self.fail(stmt, "several assignment targets")
        target = stmt.targets[0]
        if isinstance(target, ast.Subscript):
            owner = self.values.value(target.value)
            args = (owner, self.values.value(target.slice), self.values.value(value))
            self.pending = (operator.setitem, args, self.text.segment(target.value), stmt)
            return
        if isinstance(value, ast.Name) and value.id in self.inputs:
            self.rename(stmt, self.inputs.pop(value.id), names[0])
            return
        self.node(stmt, names[0], None, self.values.call_of(value))

    def rename(self, stmt: ast.stmt, node: fx.Node, name: str) -> None:
        """Read `l_x_ = L_x_`, which renames the node of a parameter."""
        if name in self.nodes or not name:
            self.fail(stmt, f"{name or 'the target'} is defined twice")
        del self.nodes[node.name]
        node.name = name
        self.nodes[name] = node

    def name_pending(self, stmt: ast.stmt) -> None:
        """Read the second half of `x += y;  name = x`."""
        assert self.pending is not None
        target, args, owner, first = self.pending
        self.pending = None
        match stmt:
            case ast.Assign([named], value) | ast.AnnAssign(named, _, ast.expr() as value) if (
                self.text.segment(value) == owner
            ):
                annotation = getattr(stmt, "annotation", None)
                self.node(stmt, _target(named), annotation, ("call_function", target, args, {}))
            case _:
                self.fail(
                    first,
                    "no name follows the in-place statement: expected a line such as "
                    "`x += 1;  y = x`, found this one",
                )

    def output(self, stmt: ast.Return) -> None:
        """Read the return."""
        value = stmt.value
        if isinstance(value, ast.Call):
            if dotted(value.func) != _TREE_UNFLATTEN or not value.args:
                self.fail(stmt, "a call in the return is not supported")
            value = value.args[0]
        returned = None if value is None else self.values.value(value)
        node = self.create(stmt, ("output", "output", (returned,), {}), None)
        if isinstance(value, ast.Tuple | ast.List):
            comments = [self.text.comment(item) for item in value.elts]
            if any(comments):
                node.meta["desc"] = [read_description(comment) for comment in comments]
        self.done = True

    # -- nodes -----------------------------------------------------------------------------------

    def node(self, stmt: ast.stmt, name: str, annotation: ast.expr | None, call: Call) -> None:
        """Add the node of `name = call`, with its annotation and source."""
        if not name:
            self.fail(stmt, "expected a name left of =")
        if name in self.nodes:
            self.fail(stmt, f"{name} is defined twice")
        node = self.create(stmt, call, name)
        self.annotate(node, annotation)
        source = self.text.source(stmt)
        if source is not None:
            node.meta["stack_trace"] = stack_of(source)
            node.meta[SCOPE] = scope_of(source)

    def create(self, where: ast.AST, call: Call, name: str | None) -> fx.Node:
        """Add a node with exactly this name. torch.fx would change some names."""
        try:
            node = self.graph.create_node(*call, name)
        except (TypeError, ValueError, RuntimeError, AssertionError) as error:
            self.fail(where, f"torch.fx rejects this node: {error}")
        if name is not None:
            node.name = name
            self.nodes[name] = node
        return node

    def annotate(self, node: fx.Node, annotation: ast.expr | None) -> None:
        """Set the result as printed; `None` if the text has no annotation, or only a type."""
        node.meta[RESULT] = None
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                node.meta[RESULT] = read_result(annotation.value)
            except ValueError as error:
                self.fail(annotation, str(error))

    def infer_tuples(self) -> None:
        """Set the results of multi-output nodes from the results of their getitems.

        torch prints annotations only for tensors. A node that is indexed returns a tuple.
        """
        if not is_annotated(self.graph):  # compiled autograd, whose live graph has no results
            return
        for node in reversed(self.graph.nodes):
            if node.meta.get(RESULT) is not None:
                continue
            result_by_index: dict[int, Any] = {}
            for user in node.users:
                index = user.args[1] if user.target is operator.getitem else None
                if type(index) is int and index >= 0 and user.args[0] is node:
                    result_by_index[index] = user.meta.get(RESULT)
            if result_by_index:
                node.meta[RESULT] = tuple(
                    [result_by_index.get(i) for i in range(max(result_by_index) + 1)]
                )


def is_annotated(graph: fx.Graph) -> bool:
    """Return True if the text has the result of any node. Compiled autograd prints no results."""
    return any(node.meta.get(RESULT) is not None for node in graph.nodes)


def _target(node: ast.AST | None) -> str:
    """Return the assigned name; "" if the target is not a name."""
    return node.id if isinstance(node, ast.Name) else ""


def _is_flatten(stmt: ast.stmt) -> bool:
    """Return True if a statement is the `tree_flatten_spec` at the start of a joint graph."""
    match stmt:
        case ast.Assign(_, ast.Call(function)):
            return dotted(function) == _TREE_FLATTEN
    return False


PrintedSource = tuple[str, int, str, str]
"""File, line, function and code."""

_USUAL = re.compile(r"[^A-Za-z0-9_.]+")


def scope_of(source: PrintedSource) -> str:
    """Return file and function of a source: `modeling_bert.forward`; "" without a file."""
    file, _, function, _ = source
    if file.startswith("<"):
        return ""
    return f"{_usual(PurePath(file).stem)}.{_usual(function)}"


def stack_of(source: PrintedSource) -> str:
    """Format a stack trace with the source as its only frame."""
    file, line, function, code = source
    return f'  File "{file}", line {line}, in {function}\n    {code}\n'


def _usual(name: str) -> str:
    """Replace characters that the text form would quote with `_`."""
    return _USUAL.sub("_", name).strip("_") or "_"


class Description:
    """Description of an input or output. Each printed class name has its own subclass."""

    def __init__(self, **attributes: Any):
        self.__dict__.update(attributes)

    def __repr__(self) -> str:
        inner = ", ".join(f"{key}={value!r}" for key, value in self.__dict__.items())
        return f"{type(self).__name__}({inner})"


@functools.lru_cache(maxsize=256)
def _class_named(name: str) -> type[Description]:
    return type(name, (Description,), {})


def read_description(comment: str) -> Description | None:
    """Return the description in a comment, or `None`."""
    try:
        tree = ast.parse(comment, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    value = _value(tree)
    return value if isinstance(value, Description) else None


def _value(node: ast.expr) -> Any:
    """Return a value in a description, which is never evaluated; `None` for any other form."""
    match node:
        case ast.Call(ast.Name(name), _, keywords):
            return _class_named(name)(**{key.arg: _value(key.value) for key in keywords if key.arg})
        case ast.Constant(value):
            return value
        case ast.Tuple(items) | ast.List(items):
            return [_value(item) for item in items]
    return None
