"""Read the graph of a file that `torch.export.save` wrote, from its JSON.

`torch.export.load` unpickles and evaluates what the file contains. Here, nothing is: the JSON
becomes nodes of torch.fx, and these a `Graph`, as for a live program. The format is that of
`torch._export.serde.schema`.
"""

from __future__ import annotations

import ast
import json
import operator
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import fx

from ..errors import GraphFormatError
from ..graph.model import Atom
from .canonical_names import PrintedSymbol, PrintedTensor
from .from_fx import Converted, Naming, convert
from .node_meta import RESULT
from .normalize import MAX_ELEMENTS, value_of_constant
from .placeholders import InputName
from .printed import Bodies, named
from .source_lines import localizer

MOST_BYTES = 2**28
"""Maximum size of the JSON, in bytes; a small archive can hold a very large file."""
_BAD = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError),
    *(SyntaxError, TypeError, ValueError),
)
"""What a stranger's JSON makes json, ast, torch and torch.fx raise."""
_NAMES: Mapping[str, Mapping[int, str]] = {
    "as_scalar_type": {
        **dict(
            enumerate(
                "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 "
                "complex128 bool bfloat16".split(),
                1,  # 0 is an unknown dtype
            )
        ),
        **dict(
            enumerate(
                "uint16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu "
                "uint32 uint64".split(),
                28,  # as in torch's schema, which has no numbers between
            )
        ),
    },
    "as_layout": dict(
        enumerate(
            "unknown sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc _mkldnn strided".split()
        )
    ),
    "as_memory_format": dict(
        enumerate(
            "unknown contiguous_format channels_last channels_last_3d preserve_format".split()
        )
    ),
}
"""Names of numbers in the JSON, as in `torch.NAME`."""
_OPERATORS = {
    "Add": " + ",
    "Mul": "*",
    "Pow": "**",
    "GreaterThan": " >= ",
    "LessThan": " <= ",
    "StrictGreaterThan": " > ",
    "StrictLessThan": " < ",
}
_FUNCTIONS = {"Equality": "Eq", "Unequality": "Ne"}


class Exported(NamedTuple):
    """An exported program that was read from a file.

    Attributes:
        converted: its graph.
        returned: what the target returns: names of nodes, and constants, in order.
        structure: the containers of what the target returns, with an index of `returned` in place
            of each value; `None` if a container is of an unknown type.
        torch: the release that exported the program.
    """

    converted: Converted
    returned: list[Any]
    structure: Any
    torch: str


class Name(str):
    """The name of a node among the returned values."""


def read_program(path: Path) -> Exported:
    """Read an archive.

    Raises:
        GraphFormatError: if the file is no archive of an exported program, or is damaged.
        OSError: if the file cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            model = _member(archive, "models/model.json", "serialized_exported_program.json")
            if model is None:
                raise GraphFormatError(
                    "a zip archive without an exported program: it has "
                    + ", ".join(archive.namelist()[:5]),
                    path=str(path),
                )
            return _Program(archive, json.loads(model)).read()
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError) as error:
        raise GraphFormatError(f"the archive is damaged: {error}", path=str(path)) from None
    except GraphFormatError as error:
        raise GraphFormatError(error.problem, path=str(path)) from None
    except _BAD as error:
        raise GraphFormatError(
            f"the program is not as torch writes it: {type(error).__name__}: {error}"[:300],
            path=str(path),
        ) from None


def _member(archive: zipfile.ZipFile, *ends: str) -> bytes | None:
    """Return the first file in an archive whose name has one of these ends, or `None`."""
    for info in archive.infolist():
        if info.filename.endswith(ends):
            if info.file_size > MOST_BYTES:
                raise GraphFormatError(f"{info.filename} has more than {MOST_BYTES} bytes")
            return archive.read(info)
    return None


class _Program:
    """Reader of a program; call `read`.

    Attributes:
        archive: the archive, which also has the constants.
        data: the JSON of the program.
        module: the part of it with the graph and its signature.
        local: replaces paths of the exporting machine; see `source_lines.localizer`.
    """

    def __init__(self, archive: zipfile.ZipFile, data: Mapping[str, Any]):
        self.archive = archive
        self.data = data
        self.module = data["graph_module"]
        self.local = localizer(str(self.module))

    def read(self) -> Exported:
        """Convert the program."""
        constants = {
            name: value_of_constant(self.constant(target))
            for name, (role, target) in self.inputs.items()
            if role == "constant"
        }
        module = _GraphReader(self.module["graph"], self.local).read()
        converted = convert(
            module,
            level="export",
            naming=Naming(self.inputs, given=True, values=constants),
        )
        outputs = self.module["signature"]["output_specs"]
        values: Any = module.graph.output_node().args[0]
        returned = [
            Name(converted.names[value.name]) if isinstance(value, fx.Node) else value
            for spec, value in zip(outputs, values, strict=True)
            if spec.keys() & {"user_output", "loss_output"}  # the others are mutated buffers
        ]
        # The entry without a path is the call of the whole program.
        (call, *_) = (c for c in self.module["module_call_graph"] if not c["fqn"])
        _, spec = json.loads(call["signature"]["out_spec"])  # the version comes first
        try:
            structure = _unflatten(spec, iter(range(len(returned))))
        except LookupError:
            structure = None
        release = str(self.data.get("torch_version") or "").partition("+")[0]
        return Exported(converted, returned, structure, release)

    @cached_property
    def inputs(self) -> dict[str, InputName]:
        """Role and name of each input that the caller does not pass."""
        roles = {"parameter": "parameter", "buffer": "buffer", "tensor_constant": "constant"}
        return {
            values["arg"]["name"]: (roles[kind], values[f"{kind}_name"])
            for spec in self.module["signature"]["input_specs"]
            for kind, values in spec.items()
            if kind in roles
        }

    @cached_property
    def _stored_constants(self) -> Mapping[str, Any]:
        """The entry of each constant that the archive stores, by its name."""
        configured = _member(self.archive, "data/constants/model_constants_config.json")
        constants: Mapping[str, Any] = json.loads(configured or b"{}").get("config", {})
        return constants

    def constant(self, name: str) -> torch.Tensor | None:
        """Return a small constant tensor that is stored without pickle, else `None`."""
        entry = self._stored_constants.get(name)
        if entry is None or entry["use_pickle"]:
            return None
        meta = entry["tensor_meta"]
        sizes, strides = ([n["as_int"] for n in meta[key]] for key in ("sizes", "strides"))
        if not 0 < torch.Size(sizes).numel() <= MAX_ELEMENTS:
            return None
        data = _member(self.archive, f"data/constants/{entry['path_name']}")
        if not data:
            return None
        flat = torch.frombuffer(
            bytearray(data), dtype=getattr(torch, _NAMES["as_scalar_type"][meta["dtype"]])
        )
        # The file has the whole storage, of which the constant may be a part.
        return flat.as_strided(sizes, strides, meta["storage_offset"]["as_int"])


def _unflatten(spec: Mapping[str, Any], leaves: Iterator[int]) -> Any:
    """Return the containers of a tree specification, with the leaves in them.

    Raises:
        LookupError: for a container of another type.
    """
    if spec["type"] is None:
        return next(leaves)
    items = [_unflatten(child, leaves) for child in spec["children_spec"]]
    if spec["type"] in ("builtins.tuple", "builtins.list"):
        return items
    # The context of a dict, and of an output of transformers, is the list of its keys.
    keys = json.loads(spec["context"] or "null")
    if not isinstance(keys, list) or len(keys) != len(items):
        raise LookupError(spec["type"])
    return dict(zip(keys, items, strict=True))


class _GraphReader:
    """Reader of one graph in the JSON, which may be the body of a higher-order op; call `read`.

    Attributes:
        data: the JSON of the graph.
        local: see `_Program`.
        graph: the fx graph, to which the other methods add nodes.
        nodes: its nodes, by their names in the JSON.
        modules: the bodies of its higher-order ops, by name.
    """

    def __init__(self, data: Mapping[str, Any], local: Any):
        self.data = data
        self.local = local
        self.graph = fx.Graph()
        self.nodes: dict[str, fx.Node] = {}
        self.modules: dict[str, Bodies] = {}

    def read(self) -> Bodies:
        """Convert the graph."""
        for number, value in enumerate(self.data["inputs"]):
            (argument,) = value.values()
            names = argument if isinstance(argument, dict) else {}  # a constant has no name
            name = str(names.get("as_name") or names.get("name") or f"input_{number}")
            self.create("placeholder", name, (), {}, name)
        for node in self.data["nodes"]:
            self.node(node)
        outputs = tuple([self.argument(value) for value in self.data["outputs"]])
        single = self.data.get("is_single_tensor_return")
        self.graph.output(outputs[0] if single else outputs)
        self.graph.output_node().meta[RESULT] = None
        return Bodies(self.graph, self.modules)

    def create(self, op: str, target: Any, args: Any, kwargs: Any, name: str) -> fx.Node:
        """Add a node with its result."""
        node = self.graph.create_node(op, target, args, kwargs, name)
        node.name = name  # torch.fx changes some names
        node.meta[RESULT] = self.result(name)
        if name in self.nodes:
            raise ValueError(f"{name} is defined twice")
        self.nodes[name] = node
        return node

    def node(self, data: Mapping[str, Any]) -> None:
        """Add a call, and the nodes that select its results."""
        # Arguments of kind 2 are keywords. Older files have no kinds.
        args = [self.argument(i["arg"]) for i in data["inputs"] if i.get("kind") != 2]
        kwargs = {i["name"]: self.argument(i["arg"]) for i in data["inputs"] if i.get("kind") == 2}
        module, _, name = data["target"].rpartition(".")
        target = getattr(operator, name) if module == "_operator" else named(data["target"])
        outputs = [pair for item in data["outputs"] for pair in item.items()]
        results = [
            str(value.get("as_name") or value["name"])
            for _, values in outputs
            for value in (values if isinstance(values, list) else [values])
            if isinstance(value, dict)
        ]
        # A call with one result has its name. Otherwise nodes of their own select the results. The
        # kind of a list, such as `as_tensors`, is a plural: a list of one result is indexed too.
        is_single = len(results) == 1 and len(outputs) == 1 and not outputs[0][0].endswith("s")
        if data.get("is_hop_single_tensor_return") is False and module.endswith("higher_order"):
            is_single = False
        own = results[0] if is_single else str(data.get("name") or f"{name}_{len(self.nodes)}")
        call = self.create("call_function", target, tuple(args), kwargs, own)
        self.describe(call, data["metadata"])
        if is_single or not results:
            return
        for number, result in enumerate(results):
            item = self.create("call_function", operator.getitem, (call, number), {}, result)
            self.describe(item, data["metadata"])
        call.meta[RESULT] = tuple([self.result(result) for result in results])

    def describe(self, node: fx.Node, metadata: Mapping[str, str]) -> None:
        """Add the lines and modules of a node."""
        if "stack_trace" in metadata:
            node.meta["stack_trace"] = self.local(metadata["stack_trace"])
        if stack := metadata.get("nn_module_stack"):
            entries = [entry.split(",", 2) for entry in stack.split(";")]
            node.meta["nn_module_stack"] = {key: (path, kind) for key, path, kind in entries}

    def result(self, name: str) -> PrintedTensor | PrintedSymbol | None:
        """Return what is known of a value."""
        meta = self.data["tensor_values"].get(name)
        if meta is not None:
            sizes, strides = (tuple(map(_size, meta[key])) for key in ("sizes", "strides"))
            dtype = _NAMES["as_scalar_type"][meta["dtype"]]
            return PrintedTensor(dtype, sizes, strides, _device(meta["device"]))
        for kind in ("sym_int_values", "sym_float_values", "sym_bool_values"):
            if (value := (self.data.get(kind) or {}).get(name)) is not None:
                return PrintedSymbol(_size(value))
        return None

    def argument(self, value: Mapping[str, Any]) -> Any:
        """Return the node or constant of an argument."""
        ((kind, data),) = value.items()
        match kind:
            case "as_none":
                return None
            case "as_tensor" | "as_custom_obj":
                return self.nodes[data["name"]]
            case "as_sym_int" | "as_sym_float" | "as_sym_bool":
                (symbol,) = data.values()  # the name of a node, or a number
                return self.nodes[symbol] if "as_name" in data else symbol
            case "as_tensors" | "as_sym_ints" | "as_sym_floats" | "as_sym_bools":
                return [self.argument({kind[:-1]: item}) for item in data]
            case "as_nested_tensors":
                return [self.argument({"as_tensors": item}) for item in data]
            case "as_optional_tensor":
                return self.argument(data)
            case "as_optional_tensors":
                return [self.argument(item) for item in data]
            case "as_scalar_type" | "as_layout" | "as_memory_format":
                return Atom(f"torch.{_NAMES[kind][data]}")
            case "as_device":
                return torch.device(_device(data))
            case "as_float":  # "Infinity" is a string in JSON
                return float(data)
            case "as_floats":
                return [*map(float, data)]
            case "as_complex":
                return complex(data["real"], data["imag"])
            case "as_operator":
                return named(data)
            case "as_string_to_argument":
                return {name: self.argument(item) for name, item in data.items()}
            case "as_graph":
                name = data["name"]
                self.modules[name] = _GraphReader(data["graph"], self.local).read()
                return self.create("get_attr", name, (), {}, name)
        return data


def _device(data: Mapping[str, Any]) -> str:
    return data["type"] if data["index"] is None else f"{data['type']}:{data['index']}"


def _size(value: Mapping[str, Any]) -> str:
    """Return a size as printed graphs show it."""
    ((kind, data),) = value.items()
    if kind != "as_expr":
        return str(data)
    return _expression(ast.parse(data["expr_str"], mode="eval").body)


def _expression(node: ast.AST) -> str:
    """Return the text of an expression in sympy's `srepr`; it is not evaluated."""
    match node:
        case ast.Name(name) | ast.Call(ast.Name("Symbol"), [ast.Constant(str(name)), *_]):
            return name
        case ast.Call(ast.Name("Integer" | "Float"), [number, *_]):
            return str(ast.literal_eval(number))
        case ast.Call(ast.Name(name), args):
            texts = [_expression(arg) for arg in args]
            if name in _OPERATORS:
                return f"({_OPERATORS[name].join(texts)})"
            return f"{_FUNCTIONS.get(name, name)}({', '.join(texts)})"
    raise ValueError(f"an expression {ast.dump(node)[:60]}")
