"""Recompilations, with the guards that failed in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..convert.dynamo_sources import source_to_fqn
from ..convert.source_lines import is_user_file, relative
from .compilations import Compilation

_GUARD = re.compile(r"\s*(!?\d+(?:/\d+)*):\s*(.*)", re.DOTALL)
_COMMENT = re.compile(r"\s+# .*", re.DOTALL)
_STACK = re.compile(r"\nUser stack trace:.*", re.DOTALL)
_TENSOR = re.compile(r"tensor '(.*?)' (.*)", re.DOTALL)
_EQUAL = re.compile(r"(.+?) == (.+)\Z", re.DOTALL)
_TYPE = re.compile(r"___check_type_id\((.+?), \d+\)(?:, type=<class '(.+?)'>)?")
_IDENTITY = re.compile(r"___check_obj_id\((.+?), \d+\)")
_NO_TENSOR = re.compile(
    r"expected type of '(.+?)' to be a tensor type, ' but found <class '(.+?)'>"
)
_STATE = re.compile(r"GLOBAL_STATE changed: (.+)")
_STATES = {
    "grad_mode": "grad mode",
    "autocast(cpu)_enabled": "autocast on cpu",
    "autocast(cuda)_enabled": "autocast on cuda",
    "default_dtype": "the default dtype",
    "deterministic_algorithms": "torch.use_deterministic_algorithms",
    "num_threads": "the number of threads",
}
_DUPLICATES = re.compile(r"Duplicate tensors found: \[(.*)\]")
_MISSING = re.compile(r"KeyError on (.+)")
_LENGTH = re.compile(r"len\((.+)\)\Z")
_SIZE = re.compile(r"([\w.\[\]']+)\.size\(\)\[(\d+)\]")
_KEYS = re.compile(r"dispatch key set mismatch\. expected \w+\((.*?)\), actual \w+\((.*?)\)")
_MODULE = re.compile(r"\b_(?:modules|parameters|buffers)\[")
_SYMBOLIC = re.compile(r'"(?:Sym\(|[a-z]\w*\[[^\]"]*\bs\d+)')
_NUMBER = re.compile(r"\d{6,}")


@dataclass(frozen=True)
class Recompile:
    """Code that was compiled again, or would have been.

    Attributes:
        function: name of the function; `backward` for what compiled autograd captured.
        file, line: where its code begins; the file as in `GraphBreak`; "" and 0 for a backward.
        reasons: each guard that failed, in words, that of the latest compilation first.
        compile_id: of the new compilation.
        limit_hit: whether Dynamo refused, because the code had been compiled too often: it runs
            eagerly from then on, in silence.
    """

    function: str
    file: str
    line: int
    reasons: tuple[str, ...]
    compile_id: str
    limit_hit: bool
    path: str = ""

    def __str__(self) -> str:
        place = f" ({self.file}:{self.line})" if self.file else ""
        end = " - the recompile limit: from here on it runs eagerly" if self.limit_hit else ""
        reasons = "; ".join(self.reasons) or "no guard is named"
        return f"{self.compile_id} {self.function}{place}: {reasons}{end}"


def recompiles_of(compiled: Sequence[Compilation]) -> tuple[Recompile, ...]:
    """The recompilations among these."""
    return tuple(_made(each, compiled) for each in compiled if each.is_recompilation)


def _made(compiled: Compilation, others: Sequence[Compilation]) -> Recompile:
    assert compiled.id is not None
    if compiled.is_capture:
        # torch repeats the reasons of the captures before.
        own = [each for each in compiled.cache_misses if each.startswith(f"{compiled.id}:")]
        reasons = tuple(map(miss_in_words, own or compiled.cache_misses))
        return Recompile("backward", "", 0, reasons, str(compiled.id), limit_hit=False)
    earlier = others[: list(others).index(compiled)]
    family = [
        each
        for each in earlier
        if each.id is not None
        and (each.id.autograd, each.id.frame) == (compiled.id.autograd, compiled.id.frame)
    ]
    known = next((each for each in [compiled, *family] if each.file), compiled)
    first = _is_dynamic(compiled) and not any(map(_is_dynamic, family))
    since = f"; first dynamic at compile {compiled.id}" if first else ""
    inner = compiled.id.autograd is not None
    reasons = tuple(
        words + (since if " of dim " in words else "")
        for words in map(guard_in_words, compiled.failed_guards)
    )
    # torch wraps what has no Python code of its own, such as a module of torch.nn, in a function.
    wrapped = not is_user_file(known.file) and bool(known.callable_name)
    nowhere = inner or wrapped or not known.file
    return Recompile(
        "backward" if inner else known.callable_name if wrapped else known.function,
        "" if nowhere else relative(known.file),
        0 if nowhere else known.line,
        reasons,
        str(compiled.id),
        compiled.limit_hit,
        "" if inner else known.file,
    )


def _is_dynamic(compiled: Compilation) -> bool:
    return any(_SYMBOLIC.search(text) for text in compiled.texts("dynamo"))


def guard_in_words(guard: str) -> str:
    """A guard that failed, as a person would say it."""
    match = _GUARD.match(_COMMENT.sub("", _STACK.sub("", guard)))
    text = (match[2] if match else guard).strip()
    tensor = _TENSOR.match(text)
    if tensor:
        return _tensor_in_words(_thing(tensor[1]), tensor[2])
    found = _TYPE.match(text)
    if found:
        was = f": was {found[2]}" if found[2] else ""
        return f"{_thing(found[1])}: the type is another{was}"
    found = _NO_TENSOR.match(text)
    if found:
        return f"{_thing(found[1])}: was a Tensor, is a {found[2]}"
    found = _IDENTITY.match(text)
    if found:
        return f"{_thing(found[1])}: is another object"
    found = _STATE.match(text)
    if found:
        return f"the state of the process: {_STATES.get(found[1], found[1])} changed"
    found = _DUPLICATES.match(text)
    if found:
        return f"the same tensor was not, but is now: {found[1]}"
    found = _MISSING.match(text)
    if found:
        return f"{found[1]}: is not there any more"
    if _SIZE.search(text):
        text = _SIZE.sub(lambda size: f"size of dim {size[2]} of {_thing(size[1])}", text)
        return f"does not hold any more: {text}"
    found = _EQUAL.match(text)
    if found:
        opposite = {"True": "False", "False": "True"}
        now = opposite.get(found[2], "another value")
        size = _LENGTH.match(found[1])
        if size:
            return f"{_thing(size[1])}: length was {found[2]}, is another"
        return f"{_thing(found[1])}: was {found[2]}, is {now}"
    return f"does not hold any more: {_NUMBER.sub('...', text)}"


def _tensor_in_words(name: str, text: str) -> str:
    sizes = re.match(r"(size|stride) mismatch at index (\d+)\. expected (\S+), actual (\S+)", text)
    if sizes:
        return f"{name}: {sizes[1]} of dim {sizes[2]} was {sizes[3]}, is {sizes[4]}"
    rank = re.match(r"rank mismatch\. expected (\d+), actual (\d+)", text)
    if rank:
        return f"{name}: had {rank[1]} dims, has {rank[2]}"
    dtype = re.match(r"dtype mismatch\. expected (\S+), actual (\S+)", text)
    if dtype:
        return f"{name}: dtype was {dtype[1]}, is {dtype[2]}"
    grad = re.match(r"requires_grad mismatch\. expected requires_grad=(\d)", text)
    if grad:
        before = grad[1] == "1"
        return f"{name}: requires_grad was {before}, is {not before}"
    keys = re.match(
        r"dispatch key set mismatch\. expected \S*?\((.*?)\), actual \S*?\((.*?)\)", text
    )
    if keys:
        return f"{name}: dispatch keys were {keys[1]}, are {keys[2]}"
    return f"{name}: {text}"


def _thing(name: str) -> str:
    """What a guard is about: an argument, a global, or something that belongs to one."""
    name = name.strip()
    if name.isidentifier():
        return f"argument {name}"
    if name.startswith("G["):
        return f"global {source_to_fqn(name)}"
    return source_to_fqn(name) if _MODULE.search(name) else name


def miss_in_words(miss: str) -> str:
    """Why compiled autograd had nothing in its cache, as a person would say it."""
    match = _GUARD.match(miss)
    text = (match[2] if match else miss).strip()
    node = re.match(
        r"Cache miss due to new autograd node: (\S+) \(NodeCall (\d+)\) with key size (\d+), "
        r"previous key sizes=\[(.*)\]",
        text,
    )
    if node:
        name = node[1].rpartition("::")[2]
        if name == "AccumulateGrad" and node[4]:
            return (
                "another autograd node: AccumulateGrad looks different from before: a .grad went "
                "from None to a tensor or back, or a hook was added or removed"
            )
        if node[4]:
            return (
                f"another autograd node: {name} looks different from before (a hook, or what it "
                "saved)"
            )
        return f"another autograd node: {name}, which was not at this place before"
    sizes = re.match(
        r"Cache miss due to (\d+) changed tensor shapes \(total of (\d+)\): (.*)", text, re.DOTALL
    )
    if sizes:
        return f"{sizes[1]} of {sizes[2]} sizes changed: {sizes[3]}"
    return text
