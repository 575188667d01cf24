"""Lookups in torch.compile's caches: the graph looked up, and nodes that make it uncacheable.

AOTAutograd's cache looks up Dynamo's graph. Inductor's cache looks up each graph that AOTAutograd
makes of it. Both refuse a graph if two different graphs could have the same key. torch calls this a
bypass.
"""

from __future__ import annotations

import contextlib
import copyreg
import dataclasses
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx

from .observers import local_of
from .private_names import Replaced, get, replaced

_CHECKPOINT = "context_fn"
"""Marker in AOTAutograd's reason for refusing selective checkpointing."""
_CONFIGS = ("inductor_config", "functorch_config")
_CHECKPOINT_META = "_checkpoint_context_fn"


class RefusedNode(NamedTuple):
    """A node that makes its graph uncacheable.

    Attributes:
        node: the node; `None` if the graph as a whole is refused.
        reason: torch's words.
    """

    node: fx.Node | None
    reason: str


def graph_looked_up() -> tuple[fx.GraphModule | None, bool]:
    """Return the graph that a cache is looking up, and True if it is a backward.

    The graph is `None` if torch does not show it. Both are found in torch's own frames.
    """
    for frame, _ in traceback.walk_stack(sys._getframe(1)):
        name, module = frame.f_code.co_name, str(frame.f_globals.get("__name__", ""))
        if name == "try_load" and module.endswith("autograd_cache"):
            gm = local_of(frame, "mod")
            return _graph_module(gm), False
        if name == "load" and module.startswith("torch._functorch"):
            # An entry of AOTAutograd's cache loads the code of its forward and backward separately.
            entry = local_of(frame, "self")
            if hasattr(entry, "_is_backward"):
                return None, bool(entry._is_backward())
        if module == "torch._inductor.compile_fx" and "graph_kwargs" in frame.f_code.co_varnames:
            options = local_of(frame, "graph_kwargs")
            if isinstance(options, dict) and "is_backward" in options:
                gm = _graph_module(local_of(frame, "gm"))
                return gm, bool(options["is_backward"])
    return None, False


def _graph_module(module: Any) -> fx.GraphModule | None:
    """Return a graph module, also from Dynamo's wrapper; `None` for anything else."""
    module = getattr(module, "gm", module)  # Dynamo wraps a module that takes a list
    return module if isinstance(module, fx.GraphModule) else None


def refused_nodes(gm: fx.GraphModule) -> list[RefusedNode]:
    """Return every node that AOTAutograd's cache refuses. torch itself reports only the first."""
    check, bypass = get("check_node_safe"), get("aot_cache_bypass")
    refused: list[RefusedNode] = []
    for node in gm.graph.nodes:
        try:
            check(node)
        except bypass as error:
            refused.append(RefusedNode(node, str(error)))
    return refused


def nodes_behind(gm: fx.GraphModule, reason: str) -> list[RefusedNode]:
    """Return the nodes that a bypass reason of either cache refers to.

    If there are none, the result is one entry without a node.
    """
    if reason.startswith(("Unsupported call_", "Unsupported node")):
        return refused_nodes(gm) or [RefusedNode(None, reason)]
    if _CHECKPOINT in reason:
        nodes = [node for node in _calls(gm) if _context_fn_of(gm, node, hashed=False)]
    elif "HigherOrderOperator" in reason or "HOP" in reason or "higher order" in reason:
        nodes = [node for node in _calls(gm) if _uncacheable_body(node)]
    elif "pickl" in reason:
        # A `context_fn` of a checkpoint is pickled even if it has a `cache_hash`.
        nodes = [node for node in _calls(gm) if _context_fn_of(gm, node, hashed=True)]
        nodes = nodes or [node for node in gm.graph.nodes if node.op == "get_attr"]
    else:
        nodes = []
    # The reason is about one node, and torch stops at the first.
    return [RefusedNode(node, reason) for node in nodes[:1]] or [RefusedNode(None, reason)]


def _calls(gm: fx.GraphModule) -> Iterator[fx.Node]:
    """Yield the function calls of a graph and of the bodies of its higher-order ops."""
    for module in gm.modules():
        if isinstance(module, fx.GraphModule):
            yield from (node for node in module.graph.nodes if node.op == "call_function")


def _uncacheable_body(node: fx.Node) -> bool:
    """Return True for a call of a higher-order op that torch does not cache."""
    target = node.target
    return isinstance(target, torch._ops.HigherOrderOperator) and not target.cacheable()


def _context_fn_of(gm: fx.GraphModule, node: fx.Node, *, hashed: bool) -> bool:
    """Return True if a checkpoint's body has a `context_fn` with, or without, a `cache_hash`."""
    for argument in node.args:
        if isinstance(argument, fx.Node) and argument.op == "get_attr":
            body = getattr(gm, str(argument.target), None)
            context_fn = getattr(body, "meta", {}).get(_CHECKPOINT_META)
            if context_fn is not None and hasattr(context_fn, "cache_hash") == hashed:
                return True
    return False


def why_uncacheable(gm: fx.GraphModule, inputs: Sequence[Any]) -> list[RefusedNode]:
    """Return the nodes that make a Dynamo graph uncacheable for AOTAutograd; empty if none do.

    Args:
        gm: the graph.
        inputs: fake tensors and sizes.
    """
    if refused := refused_nodes(gm):
        return refused
    key = get("aot_cache_key")
    # The parameters after the third differ between releases. Until torch 2.11 one of them is a dict
    # with inductor's keywords. `None` for the others does not cause a bypass.
    more: list[Any] = [
        {} if parameter.name == "fx_config" else None
        for parameter in list(inspect.signature(key).parameters.values())[3:]
        if parameter.default is inspect.Parameter.empty
    ]
    try:
        with _traced_by(inputs):
            key(gm, list(inputs), _aot_config(), *more)
    except Exception as error:
        # torch too bypasses the cache after any exception.
        return nodes_behind(gm, str(error))
    return []


@contextlib.contextmanager
def _traced_by(inputs: Sequence[Any]) -> Iterator[None]:
    """Activate the fake mode of these inputs, because the cache reads sizes from it."""
    mode = get("detect_fake_mode")(list(inputs))
    if mode is None:
        mode = get("fake_mode")(shape_env=get("shape_env")())
    with get("tracing")(get("tracing_context_class")(mode)):
        yield


def _aot_config() -> Any:
    """Return the configuration that AOTAutograd's cache reads, with the values of inductor."""
    config = get("aot_config")
    values: dict[str, Any] = {
        **dict.fromkeys("fw_compiler bw_compiler inference_compiler partition_fn".split()),
        "decompositions": {},
        "num_params_buffers": 0,
        "aot_id": 0,
        "keep_inference_input_mutations": True,
        "dynamic_shapes": True,
        "aot_autograd_arg_pos_to_source": None,
    }
    # Releases of torch differ in the fields.
    names = {field.name for field in dataclasses.fields(config)}
    return config(**{name: value for name, value in values.items() if name in names})


def caches_switched_off() -> str:
    """Return the setting that switches AOTAutograd's cache off, "" if none does."""
    if getattr(get("inductor_config"), "force_disable_caches", False):
        return "torch._inductor.config.force_disable_caches"
    if not get("functorch_config").enable_autograd_cache:
        return "torch._functorch.config.enable_autograd_cache = False"
    return ""


def cache_settings() -> Callable[[dict[str, Any]], contextlib.AbstractContextManager[None]]:
    """Return a function whose context managers reactivate the current settings.

    The function's argument is a dict of inductor settings that take precedence.
    """
    configs = [get(config) for config in _CONFIGS]
    saved = [config.get_config_copy() for config in configs]

    @contextlib.contextmanager
    def reactivated(options: dict[str, Any]) -> Iterator[None]:
        """Assign the settings that are different now."""
        with contextlib.ExitStack() as stack:
            for config, settings, overrides in zip(configs, saved, (options, {}), strict=True):
                now = config.get_config_copy()
                changes = {
                    name: value
                    for name, value in {**settings, **overrides}.items()
                    if name not in now or now[name] != value
                }
                stack.enter_context(config.patch(changes))
            yield

    return reactivated


@contextlib.contextmanager
def stable_cache_keys() -> Iterator[None]:
    """Make cache keys independent of the order of this process's imports.

    A key contains the memory format of each input, made by pickle. `torch.memory_format` values do
    not name their module, so pickle names the first module in `sys.modules` that has an attribute
    `torch`. This is the test module if pytest imports it with `--import-mode=importlib`, and
    `torch._utils` in most other processes.
    """
    table: dict[type, Any] = copyreg.dispatch_table
    before = table.get(torch.memory_format)
    table[torch.memory_format] = _reduce_memory_format
    try:
        yield
    finally:
        if before is None:
            del table[torch.memory_format]
        else:
            table[torch.memory_format] = before


def _reduce_memory_format(value: torch.memory_format) -> tuple[Any, ...]:
    """Return what pickle writes of a memory format: our function, and its argument."""
    return _memory_format, (str(value).rpartition(".")[2],)


def _memory_format(name: str) -> torch.memory_format:
    """Return a memory format by its name in torch, when it is unpickled."""
    value: torch.memory_format = getattr(torch, name)
    return value


def on_unsaved(unsaved: Callable[[Any, bool], None]) -> Replaced:
    """Call `unsaved(compile_id, backward)` if AOTAutograd does not save compiled code.

    This happens if a graph has no op, because inductor then computes no key for it. `backward` is
    True if this graph is the backward. torch does not report it.

    Raises:
        TorchGraphError: if this torch has no `_should_save_cache`.
    """
    original = get("should_save_cache")

    def observed(*compiled: Any) -> Any:
        saved = original(*compiled)
        if not saved:
            # The forward comes first. If it has a key, the backward has none.
            keys = [getattr(call, "_fx_graph_cache_key", None) for call in compiled]
            unsaved(get("compile_id")(), keys[0] is not None)
        return saved

    return replaced("should_save_cache", observed)


def clear_memory_caches() -> None:
    """Clear inductor's in-memory caches; its cache directory is kept."""
    get("clear_inductor_caches")()
    # In a forked child, torch keeps the pool, but its threads are gone: a compilation never ends.
    get("compile_pool").cache_clear()
