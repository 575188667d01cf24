"""Descriptions of failed guards in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from ...convert.placeholders import source_to_fqn
from ...convert.source_lines import relative

Reads = Literal["", "value", "length", "type", "object", "sizes", "state", "marks", "keys", "modes"]
"""What a guard checks about its subject, which determines how the new value is read."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a guard, with the words for its failure.

    Attributes:
        words: description of the failure, with `{was}` and `{now}` as placeholders.
        subject: Dynamo's source of the value, such as `self.calls` or `G['SCALE']`; "" for none.
        was: the old or required value, as text; "" if torch does not report it.
        now: the new value, "" if torch does not report it.
        reads: see `Reads`.
        unknown: the description to use if the new value is unknown.
    """

    words: str
    subject: str = ""
    was: str = ""
    now: str = ""
    reads: Reads = ""
    unknown: str = ""

    def in_words(self, now: str = "") -> str:
        """Describe the failure.

        Args:
            now: the new value, if torch does not report it.
        """
        now = self.now or now
        words = self.words if now or not self.unknown else self.unknown
        return words.replace("{was}", self.was).replace("{now}", now)


BACKEND = "BACKEND_MATCH failure"
"""torch's text if no guard failed, but the backend differs."""

_Make = Callable[[re.Match[str]], Check]

_NUMBER = re.compile(r"(?<![\d.])\d{6,}(?![\d.])")
"""An object id, which differs in each run."""
_ADDRESS = re.compile(r"(?: of type object)? at 0x[0-9a-f]+|\(id=0x[0-9a-f]+\)")
_CODE = re.compile(r"code object (\S+), file \"(.+?)\", line (\d+)")
_SIZE = re.compile(r"([\w.\[\]']+)\.(size|stride)\(\)\[(\d+)\]")
_MODULE = re.compile(r"\b_(?:modules|parameters|buffers)\[")
"""Part of the source of a value that belongs to a module."""
_IMPORTED = re.compile(r"G\['__import_(\w+)'\]")
"""Dynamo's own global for a module, with dots written as `_dot_`."""
_GLOBAL = re.compile(r"G\['(\w+)'\]")
_UNSPECIALIZED = re.compile(r"___as_tensor\((.+?)\)\.item\(\)")
"""Source of a float that Dynamo had made a graph input, as a tensor."""
_MARKS = r"_dynamo_(?:dynamic|weak_dynamic|static|unbacked|strict_unbacked)_indices"

_STATES = {
    "grad_mode": "grad mode",
    "default_dtype": "the default dtype",
    "deterministic_algorithms": "torch.use_deterministic_algorithms",
    "num_threads": "the number of threads",
    "autocast": "autocast",
}
_AUTOCAST = re.compile(r"autocast\((\w+)\)_(enabled|dtype)")


def check_of(text: str) -> Check:
    """Parse the check of a guard.

    Args:
        text: `GuardText.check`.
    """
    # From its second value on, Dynamo passes a float argument as a tensor, and the guard reads the
    # tensor. For the user it is still a float.
    text = _UNSPECIALIZED.sub(r"\1", text)
    return _match_first(text, _CHECKS) or _fallback_check(text)


def _match_first(text: str, table: Iterable[tuple[str, _Make]]) -> Check | None:
    for pattern, make in table:
        match = re.match(pattern, text, re.DOTALL)
        if match:
            return make(match)
    return None


def _tensor(match: re.Match[str]) -> Check:
    tensor_check = _match_first(match[2], _OF_TENSORS) or Check(match[2])
    return replace(
        tensor_check, words=f"{describe_source(match[1])}: {tensor_check.words}", subject=match[1]
    )


_OF_TENSORS: tuple[tuple[str, _Make], ...] = (
    (
        r"(size|stride) mismatch at index (\d+)\. expected (\S+), actual (\S+)",
        lambda m: Check(f"{m[1]} of dim {m[2]} was {{was}}, is {{now}}", was=m[3], now=m[4]),
    ),
    (
        r"rank mismatch\. expected (\d+), actual (\d+)",
        lambda m: Check("had {was} dims, has {now}", was=m[1], now=m[2]),
    ),
    (
        r"dtype mismatch\. expected (\S+), actual (\S+)",
        lambda m: Check("dtype was {was}, is {now}", was=m[1], now=m[2]),
    ),
    (
        r"requires_grad mismatch\. expected requires_grad=(\d)",
        lambda m: Check(
            "requires_grad was {was}, is {now}", was=str(m[1] == "1"), now=str(m[1] != "1")
        ),
    ),
    (
        r"dispatch key set mismatch\. expected \S*?\((.*?)\), actual \S*?\((.*?)\)",
        lambda m: _dispatch_keys(m[1].split(", "), m[2].split(", ")),
    ),
)
"""Prefixes of a failed guard's message about a tensor."""


_KEYS = (
    ("Conjugate", "a conjugated view (.conj())"),
    ("Negative", "a negated view (.imag of .conj())"),
    ("FuncTorch", "inside a transform of torch.func (vmap, grad)"),
)
"""Prefixes of dispatch keys, and what they say about a tensor."""


def _dispatch_keys(was: list[str], now: list[str]) -> Check:
    """Describe tensors by their dispatch keys, of which the first names device and layout."""
    if was[0] != now[0]:
        return Check("was a {was} tensor, is a {now} tensor", was=was[0], now=now[0])
    changed = {*was} ^ {*now}
    for prefix, words in _KEYS:
        for key in changed:
            if key.startswith(prefix):
                gained = f"is now {words}, and was not"
                return Check(gained if key in now else f"was {words}, and is not now")
    # torch.inference_mode removes these keys: Autograd from a call inside it, and from a tensor
    # made inside it; ADInplaceOrView only if the tensor was made and is used inside it.
    if all(key.startswith(("Autograd", "ADInplaceOrView")) for key in changed):
        words = "was made or used {was} torch.inference_mode, and is now made or used {now}"
        places = ("outside", "inside") if len(was) > len(now) else ("inside", "outside")
        return Check(words, "", *places)
    words = "dispatch keys were {was}, and are now {now}"
    return Check(words, "", ", ".join(was), ", ".join(now))


def _type(match: re.Match[str]) -> Check:
    words = f"{describe_source(match[1])}: the type changed"
    return _replaced(words, match[1], _class_name(match[2] or ""), "type")


def _identity(match: re.Match[str]) -> Check:
    # A guard on a function checks its `__code__`.
    name, source = match[1], match[1].removesuffix(".__code__")
    noun = "object" if source == name else "function"
    was = _class_name(_ADDRESS.sub("", match[2] or "").strip("<>"))
    if "<class" in (match[2] or ""):
        was = "" if was == "code" else f"a {was}"
    elif code := _CODE.match(was):
        was = f"{code[1]} ({relative(code[2])}:{code[3]})"
    return _replaced(f"{describe_source(source)}: is a different {noun}", name, was, "object")


def _replaced(words: str, source: str, was: str, reads: Reads) -> Check:
    then = ": was {was}" if was else ""
    now = ", is {now}" if was else ": is {now}"
    return Check(words + then + now, source, was, reads=reads, unknown=words + then)


def _class_name(text: str) -> str:
    match = re.search(r"class '(.+?)'", text)
    return match[1] if match else text


def _state(match: re.Match[str]) -> Check:
    names = match[1].split()
    parts_changed = " and ".join(_describe_state(name) for name in names)
    return Check(
        f"global state: {parts_changed} changed: {{now}}",
        " ".join(names),
        reads="state",
        unknown=f"global state: {parts_changed} changed",
    )


def _describe_state(name: str) -> str:
    autocast = _AUTOCAST.fullmatch(name)
    if autocast:
        return f"{'the autocast dtype' if autocast[2] == 'dtype' else 'autocast'} on {autocast[1]}"
    return _STATES.get(name, name)


def _length(match: re.Match[str]) -> Check:
    words = f"{describe_source(match[1])}: length was {{was}}"
    return _changed(words, "is different now", match[1], match[2], "length")


def _changed(words: str, unknown: str, source: str, was: str, reads: Reads) -> Check:
    return Check(f"{words}, is {{now}}", source, was, reads=reads, unknown=f"{words}, {unknown}")


def _filled(match: re.Match[str]) -> Check:
    return Check(
        f"{describe_source(match[1])}: was empty, has {{now}} items",
        match[1],
        "0",
        reads="length",
        unknown=f"{describe_source(match[1])}: was empty, no longer is",
    )


def marked(source: str) -> Check:
    """Return the check that no dimension of a tensor is marked."""
    return Check(
        f"{describe_source(source)}: {{now}}, and was not marked before",
        source,
        reads="marks",
        unknown=(
            f"{describe_source(source)}: is marked (torch._dynamo.mark_dynamic or similar), and "
            "was not marked before"
        ),
    )


def _keyed(match: re.Match[str]) -> Check:
    words = f"key {match[2]} of {describe_source(match[1])}: was {{was}}"
    source = f"list(dict.keys({match[1]}))[{match[2]}]"
    return _changed(words, "is different now", source, match[3], "value")


def _missing(match: re.Match[str]) -> Check:
    owner = re.match(r"(.+)\[[^\[\]]*\]\Z", match[1])
    gone = f"{match[1]}: no longer exists"
    # If a key is missing, list the remaining keys, because it may have been renamed.
    if owner is None:
        return Check(gone)
    return Check(gone + "; there are {now}", owner[1], reads="keys", unknown=gone)


def _value(source: str, was: str) -> Check:
    words = f"{describe_source(source)}: was {{was}}"
    return _changed(words, "has a different value now", source, was, "value")


_CHECKS: tuple[tuple[str, _Make], ...] = (
    # The first match counts, so special forms come before the general `==` at the end.
    (r"tensor '(.*?)' (.*)", _tensor),
    (r"___check_type_id\((.+?), \d+\)(?:, type=(.+))?", _type),
    (
        r"expected type of '(.+?)' to be (?:a tensor type, '|<class '.+?'>,) but found "
        r"<class '(.+?)'>",
        lambda m: Check(
            f"{describe_source(m[1])}: was a Tensor, is a {{now}}", m[1], "a Tensor", m[2]
        ),
    ),
    (r"___check_obj_id\((.+?), \d+\)(?:, type=(.+))?", _identity),
    (r"GLOBAL_STATE changed: (.+)", _state),
    (
        r"Duplicate tensors found: \[(.*)\]",
        lambda m: Check(
            f"were different tensors, are now the same tensor: {m[1]}",
            m[1].split(",")[0].strip("\"' "),
        ),
    ),
    (r"KeyError on (.+)", _missing),
    (
        BACKEND,
        lambda _: Check("the function is called through a different torch.compile object"),
    ),
    (rf"hasattr\((.+), '{_MARKS}'\) == False\Z", lambda m: marked(m[1])),
    (
        r"_has_dynamo_dim_marking is present",
        lambda _: Check(
            "a dimension of a tensor is marked (torch._dynamo.mark_dynamic or similar), and was "
            "not before",
            reads="marks",
        ),
    ),
    (
        r"___check_torch_function_mode_stack\(\)",
        lambda _: Check(
            "the active torch function modes changed: now {now}",
            reads="modes",
            unknown=(
                "the active torch function modes changed (torch.device(...) as a context manager "
                "is such a mode)"
            ),
        ),
    ),
    (r"list\(dict\.keys\((.+)\)\)\[(\d+)\] == (.+)\Z", _keyed),
    (r"len\((.+)\) (?:==|!=) (\d+)\Z", _length),
    (r"not ([\w.\[\]']+)\Z", _filled),
    (r"(?:\(type\(.+?\) is float and )?__math_isnan\((.+?)\)", lambda m: _value(m[1], "nan")),
    (r"([\w.\[\]']+) is (None|True|False)\Z", lambda m: _value(m[1], m[2])),
    (
        r"([\w.\[\]']+) is ([\w.\[\]']+)\Z",
        lambda m: Check(
            f"{describe_source(m[1])} and {describe_source(m[2])} were the same object, but are "
            "now two objects"
        ),
    ),
    # A guard on sizes may be an expression of several tensors. `_fallback_check` describes it.
    (r"(?!.*\.(?:size|stride)\(\))(.+?) == (.+)\Z", lambda m: _value(m[1], m[2])),
)
"""Prefixes of failed guards."""


def _fallback_check(text: str) -> Check:
    if _SIZE.search(text):
        description = _SIZE.sub(lambda size: size_in_words(size[1], size[2], int(size[3])), text)
        description = f"no longer holds: {description}"
        return Check(f"{description} ({{now}})", text, reads="sizes", unknown=description)
    return Check(
        f"no longer holds: {mask_run_details(text)}"
        if text
        else "torch does not name the failed guard"
    )


def sizes_in(text: str) -> list[tuple[str, str, int]]:
    """Return the sizes and strides in the text of a guard as (tensor source, kind, dimension)."""
    sizes = [(size[1], size[2], int(size[3])) for size in _SIZE.finditer(text)]
    return list(dict.fromkeys(sizes))


def size_in_words(source: str, kind: str, dim: int) -> str:
    """Describe a size or stride, such as `size of dim 0 of argument x`."""
    return f"{kind} of dim {dim} of {describe_source(source)}"


def describe_source(name: str) -> str:
    """Describe the source of a guard: an argument, a global, or a part of either."""
    name = name.strip()
    if name.isidentifier():
        return f"argument {name}"
    if name.startswith("G["):
        # Dynamo accesses a Python module through a global that it created itself.
        imported = _IMPORTED.match(name)
        if imported is None:
            global_name = _GLOBAL.match(name)
            path = name[global_name.end() :] if global_name else ""
            parts = [
                global_name[1] if global_name else name,
                *([source_to_fqn(path)] if path else []),
            ]
            return f"global {'.'.join(parts)}"
        return f"{imported[1].replace('_dot_', '.')}{name[imported.end() :]}"
    return source_to_fqn(name) if _MODULE.search(name) else name


def mask_run_details(text: str) -> str:
    """Mask the parts of a guard's text that differ between runs: ids, addresses, absolute paths."""
    # The text is stored in baselines, and in messages that are compared between runs.
    text = re.sub(r'file "(.+?)"', lambda file: f'file "{relative(file[1])}"', text)
    return _NUMBER.sub("...", _ADDRESS.sub("", text))


def simplify_guard(check: str) -> str:
    """Return a guard's text in readable form, without torch's names for its own helpers."""
    text = mask_run_details(check)
    for pattern, words in _READABLE:
        text = re.sub(pattern, words, text)
    return text


_READABLE = (
    (r"___check_type_id\((.+?), \.\.\.\)(?:, type=<class '(.+?)'>)", r"type(\1) is \2"),
    (r"___check_type_id\((.+?), \.\.\.\)", r"type(\1) is what it was"),
    (r"___check_obj_id\((.+?), \.\.\.\)(?:, type=<?(.+?)>?)?\Z", r"\1 is the object that it was"),
    (r"(check_tensor\(.+?), DispatchKeySet\(.*?\)", r"\1"),
    (r"(check_tensor\(.+?), device=None", r"\1"),
    (r"___check_", "check_"),
)
"""Parts of guards, with their replacements."""
