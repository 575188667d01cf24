"""The statements of a printed `forward`, as the nodes of a torch.fx graph.

Only the form is read here: which node calls what on which operands. Naming, effects and everything
else that a `Graph` says are left to the conversion that live graphs go through.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any, NoReturn

import torch
import torch.fx

from ..from_fx import RESULT, SCOPE
from .calls import INPLACE, Calls
from .descriptions import read_description
from .results import read_result
from .scopes import scope_of, stack_of
from .syntax import PrintedClass, PrintedText
from .values import Values, dotted

_TREE_FLATTEN = "fx_pytree.tree_flatten_spec"
_TREE_UNFLATTEN = "pytree.tree_unflatten"


class Printed:
    """A printed module, read: its graph, and the modules printed inside it.

    It can be given to what takes a `torch.fx.GraphModule` only to look at it.

    Attributes:
        graph: the nodes. Their `meta` holds what was printed of them.
        name: name of the printed class.
        modules: the modules printed inside, by attribute name.
    """

    def __init__(self, text: PrintedText, tree: PrintedClass):
        self.name = tree.name
        self.modules = {inner.name: Printed(text, inner) for inner in tree.inner}
        self.graph = _Reader(text, tree.forward).graph
        self._check_bodies(text, tree)

    def _check_bodies(self, text: PrintedText, tree: PrintedClass) -> None:
        """Miss a body that a higher-order op refers to: the text is cut off before it."""
        if not _annotated(self.graph):
            return
        for node in self.graph.nodes:
            missing = (
                node.op == "get_attr"
                and node.meta[RESULT] is None
                and not str(node.target).startswith(("_torchbind", "_opaque"))
                and self.get_submodule(str(node.target)) is None
                and any(isinstance(u.target, torch._ops.HigherOrderOperator) for u in node.users)
            )
            if missing:
                line = tree.forward.end_lineno or 1
                raise text.error(f"the body {node.target} is not printed behind this", line)

    def __getattr__(self, name: str) -> Any:
        found = self.get_submodule(name) if "modules" in self.__dict__ else None
        if found is None:
            raise AttributeError(name)
        return found

    def get_submodule(self, target: str) -> Printed | None:
        """The printed module at an attribute path, None where none is printed.

        A module that has a second name is printed under the first alone: the two differ in the
        number at their end.
        """
        found: Printed | None = self
        for part in target.split("."):
            modules: dict[str, Printed] = {} if found is None else found.modules
            found = modules.get(part) or _numbered_like(part, modules)
        return found

    @property
    def placeholders(self) -> list[torch.fx.Node]:
        """The inputs, in order."""
        return [node for node in self.graph.nodes if node.op == "placeholder"]

    @property
    def output(self) -> torch.fx.Node:
        """The output node."""
        return self.graph.output_node()


def read_printed(text: str) -> Printed:
    """Read a graph that torch printed.

    Raises:
        PrintedGraphError: with the line, for what is not such a text.
    """
    printed = PrintedText(text)
    try:
        return Printed(printed, printed.tree())
    except RecursionError:
        raise printed.error("values are nested too deeply", 1) from None


class _Reader:
    """Reads one `forward`."""

    def __init__(self, text: PrintedText, function: ast.FunctionDef):
        self.text = text
        self.graph = torch.fx.Graph()
        self.nodes: dict[str, torch.fx.Node] = {}
        self.values = Values(text, self.nodes)
        self.calls = Calls(self.values)
        self.inputs: dict[str, torch.fx.Node] = {}
        self.declared: dict[str, ast.AnnAssign] = {}
        self.pending: tuple[Callable[..., Any], tuple[Any, ...], str, ast.stmt] | None = None
        self.done = False
        body = list(function.body)
        flattened = next((i for i, stmt in enumerate(body) if _flattens(stmt)), None)
        if flattened is None:
            self.signature(function)
        else:
            self.flattened(body[: flattened + 1])
            body = body[flattened + 1 :]
        for statement in body:
            self.statement(statement)
        if not self.done:
            self.fail(function, "forward has no return: the text is cut off")
        self.tuples()

    def fail(self, node: ast.AST, problem: str) -> NoReturn:
        raise self.text.error(problem, getattr(node, "lineno", 1))

    # -- inputs ----------------------------------------------------------------------------------

    def signature(self, function: ast.FunctionDef) -> None:
        """The inputs where they are the parameters of forward."""
        spec = function.args
        if spec.vararg or spec.kwarg or spec.kwonlyargs:
            self.fail(function, "inputs with * are not read")
        parameters = [*spec.posonlyargs, *spec.args]
        if not parameters or parameters[0].arg != "self":
            self.fail(function, "forward has no self")
        defaults = [None] * (len(parameters) - len(spec.defaults)) + list(spec.defaults)
        for parameter, default in list(zip(parameters, defaults, strict=True))[1:]:
            args = () if default is None else (self.values.value(default),)
            end = default or parameter
            self.input(parameter.arg, parameter.annotation, self.text.comment(end), args, parameter)

    def flattened(self, body: list[ast.stmt]) -> None:
        """The inputs of a joint graph: annotations, then a tree_flatten that has them in order."""
        for statement in body[:-1]:
            if not isinstance(statement, ast.AnnAssign) or statement.value is not None:
                self.fail(statement, "expected an annotation before tree_flatten_spec")
            self.declared[_target(statement.target)] = statement
        assign = body[-1]
        assert isinstance(assign, ast.Assign)
        targets = assign.targets[0]
        names = [_target(t) for t in targets.elts] if isinstance(targets, ast.Tuple) else [""]
        if len(assign.targets) != 1 or "" in names or self.declared.keys() - set(names):
            self.fail(assign, "the inputs of tree_flatten_spec are not those annotated")
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
        if name in self.nodes:
            self.fail(where, f"{name} is defined twice")
        node = self.create(where, "placeholder", name, defaults, {}, name)
        self.annotate(node, annotation)
        description = read_description(comment) if comment else None
        if description is not None:
            node.meta["desc"] = description
        self.inputs[name] = node

    # -- statements ------------------------------------------------------------------------------

    def statement(self, stmt: ast.stmt) -> None:
        if self.done:
            self.fail(stmt, "a statement behind the return")
        if self.pending is not None:
            self.finish(stmt)
        elif isinstance(stmt, ast.Return):
            self.output(stmt)
        elif isinstance(stmt, ast.AugAssign):
            self.pending = (
                self.calls.operator(INPLACE, stmt.op, stmt),
                (self.values.value(stmt.target), self.values.value(stmt.value)),
                self.text.segment(stmt.target),
                stmt,
            )
        elif isinstance(stmt, ast.AnnAssign) and stmt.value is not None:
            self.define(stmt, _target(stmt.target), stmt.annotation, stmt.value)
        elif isinstance(stmt, ast.Assign):
            self.assign(stmt)
        elif not isinstance(stmt, ast.Pass):
            self.fail(stmt, "a statement that torch.fx does not print")

    def assign(self, stmt: ast.Assign) -> None:
        names = [_target(target) for target in stmt.targets]
        value = stmt.value
        if isinstance(value, ast.Constant) and value.value is None and all(names):
            unknown = [name for name in names if name not in self.nodes]
            if unknown:
                self.fail(stmt, f"{unknown[0]} is dropped, but was never defined")
            return
        if len(stmt.targets) != 1:
            self.fail(stmt, "several targets")
        target = stmt.targets[0]
        if isinstance(target, ast.Subscript):
            owner = self.values.value(target.value)
            args = (owner, self.values.value(target.slice), self.values.value(value))
            self.pending = (operator.setitem, args, self.text.segment(target.value), stmt)
            return
        if isinstance(value, ast.Name) and value.id in self.inputs:
            self.rename(stmt, self.inputs.pop(value.id), names[0])
            return
        self.define(stmt, names[0], None, value)

    def rename(self, stmt: ast.stmt, node: torch.fx.Node, name: str) -> None:
        """`l_x_ = L_x_`: the node of an input is called otherwise than the parameter."""
        if name in self.nodes or not name:
            self.fail(stmt, f"{name or 'the target'} is defined twice")
        del self.nodes[node.name]
        node.name = name
        self.nodes[name] = node

    def finish(self, stmt: ast.stmt) -> None:
        """The second half of `x += y;  name = x`."""
        assert self.pending is not None
        target, args, owner, first = self.pending
        self.pending = None
        annotation = stmt.annotation if isinstance(stmt, ast.AnnAssign) else None
        single = stmt.targets if isinstance(stmt, ast.Assign) else [getattr(stmt, "target", None)]
        value = stmt.value if isinstance(stmt, ast.Assign | ast.AnnAssign) else None
        if value is None or len(single) != 1 or self.text.segment(value) != owner:
            self.fail(first, "an in-place operation whose result has no name")
        name = _target(single[0])
        self.node(stmt, name, annotation, "call_function", target, args, {})

    def output(self, stmt: ast.Return) -> None:
        value = stmt.value
        if value is not None and isinstance(value, ast.Call):
            if dotted(value.func) != _TREE_UNFLATTEN or not value.args:
                self.fail(stmt, "a return of a call")
            value = value.args[0]
        found = None if value is None else self.values.value(value)
        node = self.create(stmt, "output", "output", (found,), {}, None)
        if isinstance(value, ast.Tuple | ast.List):
            comments = [self.text.comment(item) for item in value.elts]
            if any(comments):
                node.meta["desc"] = [read_description(comment) for comment in comments]
        self.done = True

    # -- calls -----------------------------------------------------------------------------------

    def define(
        self, stmt: ast.stmt, name: str, annotation: ast.expr | None, value: ast.expr
    ) -> None:
        op, target, args, kwargs = self.calls.read(value)
        self.node(stmt, name, annotation, op, target, args, kwargs)

    # -- nodes -----------------------------------------------------------------------------------

    def node(
        self,
        stmt: ast.stmt,
        name: str,
        annotation: ast.expr | None,
        op: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        if not name:
            self.fail(stmt, "the result has no name")
        if name in self.nodes:
            self.fail(stmt, f"{name} is defined twice")
        node = self.create(stmt, op, target, args, kwargs, name)
        self.annotate(node, annotation)
        source = self.text.source(stmt)
        if source is not None:
            node.meta["stack_trace"] = stack_of(source)
            node.meta[SCOPE] = scope_of(source)

    def create(
        self,
        where: ast.AST,
        op: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None,
    ) -> torch.fx.Node:
        try:
            node = self.graph.create_node(op, target, args, kwargs, name)
        except (TypeError, ValueError, RuntimeError, AssertionError) as error:
            self.fail(where, f"torch.fx refuses this node: {error}")
        if name is not None:
            node.name = name
            self.nodes[name] = node
        return node

    def annotate(self, node: torch.fx.Node, annotation: ast.expr | None) -> None:
        """Keep the result that is printed; a type such as `list` says nothing of it."""
        node.meta[RESULT] = None
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                node.meta[RESULT] = read_result(annotation.value)
            except ValueError as error:
                self.fail(annotation, str(error))

    def tuples(self) -> None:
        """Make the results of multi-output nodes from those of the getitems that take them.

        What is no tensor is printed without annotation, and what is taken apart is a tuple. Where
        nothing has an annotation (compiled autograd), no result is known, here or in a live graph.
        """
        if not _annotated(self.graph):
            return
        for node in reversed(self.graph.nodes):
            if node.meta.get(RESULT) is not None:
                continue
            taken: dict[int, Any] = {}
            for user in node.users:
                index = user.args[1] if user.target is operator.getitem else None
                if type(index) is int and index >= 0 and user.args[0] is node:
                    taken[index] = user.meta.get(RESULT)
            if taken:
                node.meta[RESULT] = tuple([taken.get(i) for i in range(max(taken) + 1)])


def _annotated(graph: torch.fx.Graph) -> bool:
    return any(node.meta.get(RESULT) is not None for node in graph.nodes)


def _numbered_like(name: str, modules: dict[str, Printed]) -> Printed | None:
    """The one module whose name has the longest beginning in common with `name`, then digits."""
    found: dict[int, list[Printed]] = {}
    for other, module in modules.items():
        common = _common(name, other)
        if common and (name[common:] + other[common:]).isdigit():
            found.setdefault(common, []).append(module)
    nearest = found[max(found)] if found else []
    return nearest[0] if len(nearest) == 1 else None


def _common(a: str, b: str) -> int:
    """How many characters two names begin with in common."""
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def _target(node: ast.AST | None) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _flattens(stmt: ast.stmt) -> bool:
    return (
        isinstance(stmt, ast.Assign)
        and isinstance(stmt.value, ast.Call)
        and dotted(stmt.value.func) == _TREE_FLATTEN
    )
