"""Recompilations, with the guards that failed put into words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..convert.dynamo_sources import source_to_fqn
from ..convert.source_lines import is_user_file, relative
from .compilations import Compilation

_GUARD = re.compile(r"\s*(!?\d+(?:/\d+)*):\s*(.*)", re.DOTALL)
"""A reason as torch writes it: the compile id whose guard failed, and the guard."""
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
_MODULE = re.compile(r"\b_(?:modules|parameters|buffers)\[")
"""Part of the source of something that belongs to a module."""
_SYMBOLIC = re.compile(r'"(?:Sym\(|[a-z]\w*\[[^\]"]*\bs\d+)')
"""A symbolic size in a graph that Dynamo printed."""
_NEW_NODE = re.compile(
    r"Cache miss due to new autograd node: (\S+) \(NodeCall (\d+)\) with key size (\d+), "
    r"previous key sizes=\[(.*)\]"
)
_NEW_SIZES = re.compile(
    r"Cache miss due to (\d+) changed tensor shapes \(total of (\d+)\): (.*)", re.DOTALL
)
_NUMBER = re.compile(r"\d{6,}")
"""An id of an object: another one in each run."""


@dataclass(frozen=True)
class Recompile:
    """Code that Dynamo compiled again, or refused to, or a backward that was captured again.

    Attributes:
        function: name of the function; `backward` for what compiled autograd captured.
        file, line: where its code begins; the file as in `GraphBreak`; "" and 0 for a backward.
        reasons: each guard that failed, in words, that of the latest compilation first.
        compile_id: of the new compilation.
        limit_hit: whether Dynamo refused, because the code had been compiled too often: it runs
            eagerly from then on, in silence.
        path: the file as Dynamo names it, "" for a backward.
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
    """The recompilations among compilations, in order."""
    return tuple(
        _recapture(each) if each.is_capture else _recompile(each, compiled[:number])
        for number, each in enumerate(compiled)
        if each.is_recompilation
    )


def _recapture(compiled: Compilation) -> Recompile:
    """A backward that compiled autograd captured again."""
    # torch repeats the reasons of the captures before.
    own = [miss for miss in compiled.cache_misses if miss.startswith(f"{compiled.id}:")]
    reasons = tuple(map(miss_in_words, own or compiled.cache_misses))
    return Recompile("backward", "", 0, reasons, str(compiled.id), limit_hit=False)


def _recompile(compiled: Compilation, earlier: Sequence[Compilation]) -> Recompile:
    """A frame that Dynamo compiled again, or refused to."""
    assert compiled.id is not None
    same_frame = [
        each
        for each in earlier
        if each.id is not None
        and (each.id.autograd, each.id.frame) == (compiled.id.autograd, compiled.id.frame)
    ]
    known = next((each for each in [compiled, *same_frame] if each.file), compiled)
    first_dynamic = _is_dynamic(compiled) and not any(map(_is_dynamic, same_frame))
    since = f"; first dynamic at compile {compiled.id}" if first_dynamic else ""
    in_backward = compiled.id.autograd is not None
    reasons = tuple(
        words + (since if " of dim " in words else "")
        for words in map(guard_in_words, compiled.failed_guards)
    )
    # torch wraps what has no Python code of its own, such as a module of torch.nn, in a function.
    wrapped = not is_user_file(known.file) and bool(known.callable_name)
    nowhere = in_backward or wrapped or not known.file
    return Recompile(
        "backward" if in_backward else known.callable_name if wrapped else known.function,
        "" if nowhere else relative(known.file),
        0 if nowhere else known.line,
        reasons,
        str(compiled.id),
        compiled.limit_hit,
        "" if in_backward else known.file,
    )


def _is_dynamic(compiled: Compilation) -> bool:
    return any(_SYMBOLIC.search(text) for text in compiled.texts("dynamo"))


_Words = Callable[[re.Match[str]], str]

_GUARD_WORDS: tuple[tuple[re.Pattern[str], _Words], ...] = (
    (_TENSOR, lambda guard: _tensor_in_words(_thing(guard[1]), guard[2])),
    (
        _TYPE,
        lambda guard: (
            f"{_thing(guard[1])}: the type is another" + (f": was {guard[2]}" if guard[2] else "")
        ),
    ),
    (_NO_TENSOR, lambda guard: f"{_thing(guard[1])}: was a Tensor, is a {guard[2]}"),
    (_IDENTITY, lambda guard: f"{_thing(guard[1])}: is another object"),
    (
        _STATE,
        lambda guard: f"the state of the process: {_STATES.get(guard[1], guard[1])} changed",
    ),
    (_DUPLICATES, lambda guard: f"the same tensor was not, but is now: {guard[1]}"),
    (_MISSING, lambda guard: f"{guard[1]}: is not there any more"),
)
"""Beginnings of guards that failed, with the words for each."""

_TENSOR_WORDS: tuple[tuple[re.Pattern[str], _Words], ...] = (
    (
        re.compile(r"(size|stride) mismatch at index (\d+)\. expected (\S+), actual (\S+)"),
        lambda guard: f"{guard[1]} of dim {guard[2]} was {guard[3]}, is {guard[4]}",
    ),
    (
        re.compile(r"rank mismatch\. expected (\d+), actual (\d+)"),
        lambda guard: f"had {guard[1]} dims, has {guard[2]}",
    ),
    (
        re.compile(r"dtype mismatch\. expected (\S+), actual (\S+)"),
        lambda guard: f"dtype was {guard[1]}, is {guard[2]}",
    ),
    (
        re.compile(r"requires_grad mismatch\. expected requires_grad=(\d)"),
        lambda guard: f"requires_grad was {guard[1] == '1'}, is {guard[1] != '1'}",
    ),
    (
        re.compile(r"dispatch key set mismatch\. expected \S*?\((.*?)\), actual \S*?\((.*?)\)"),
        lambda guard: f"dispatch keys were {guard[1]}, are {guard[2]}",
    ),
)
"""Beginnings of what a failed guard says of a tensor, with the words for each."""


def guard_in_words(guard: str) -> str:
    """A guard that failed, as a person would say it.

    Args:
        guard: torch's text, with or without the compile id before it.
    """
    with_id = _GUARD.match(_COMMENT.sub("", _STACK.sub("", guard)))
    text = (with_id[2] if with_id else guard).strip()
    words = _first_words(text, _GUARD_WORDS)
    if words:
        return words
    if _SIZE.search(text):
        text = _SIZE.sub(lambda size: f"size of dim {size[2]} of {_thing(size[1])}", text)
        return f"does not hold any more: {text}"
    equal = _EQUAL.match(text)
    if equal:
        return _equality_in_words(equal[1], equal[2])
    return f"does not hold any more: {_NUMBER.sub('...', text)}"


def _first_words(text: str, table: Iterable[tuple[re.Pattern[str], _Words]]) -> str:
    """The words for the first pattern that a text begins with, "" for none."""
    for pattern, words in table:
        match = pattern.match(text)
        if match:
            return words(match)
    return ""


def _equality_in_words(left: str, was: str) -> str:
    length = _LENGTH.match(left)
    if length:
        return f"{_thing(length[1])}: length was {was}, is another"
    now = {"True": "False", "False": "True"}.get(was, "another value")
    return f"{_thing(left)}: was {was}, is {now}"


def _tensor_in_words(name: str, text: str) -> str:
    return f"{name}: {_first_words(text, _TENSOR_WORDS) or text}"


def _thing(name: str) -> str:
    """The source that a guard is about, in words: an argument, a global, or a part of one."""
    name = name.strip()
    if name.isidentifier():
        return f"argument {name}"
    if name.startswith("G["):
        return f"global {source_to_fqn(name)}"
    return source_to_fqn(name) if _MODULE.search(name) else name


def miss_in_words(miss: str) -> str:
    """A cache miss of compiled autograd, as a person would say it.

    Args:
        miss: torch's text, with or without the id of the capture before it.
    """
    match = _GUARD.match(miss)
    text = (match[2] if match else miss).strip()
    node = _NEW_NODE.match(text)
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
    sizes = _NEW_SIZES.match(text)
    if sizes:
        return f"{sizes[1]} of {sizes[2]} sizes changed: {sizes[3]}"
    return text
