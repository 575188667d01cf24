"""torch's text of a guard: the check in words, the lines that created it, and hints.

torch's text has this form; every part except the check is optional:

    0/0: self.calls == 0   # self.calls += 1  # net.py:50 in forward (HINT: make it a tensor)
    User stack trace:
      File "/home/me/net.py", line 50, in forward
        self.calls += 1
"""

from __future__ import annotations

import linecache
import re
from typing import NamedTuple

from ..convert.placeholders import source_to_fqn
from ..convert.source_lines import frames_in, relative

_WITH_ID = re.compile(r"(?:\s*(!?\d+(?:/\d+)*):[ ]?)?(.*)", re.DOTALL)
_STACK = "\nUser stack trace:"
_CHECK = re.compile(r"""(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|(?! # ).)*""", re.DOTALL)
"""Text before a comment. A `#` between spaces, outside a string, begins the comment."""
_NOTE = r" \(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)"
"""A remark in parentheses, which may contain parentheses."""
_PLACE = re.compile(
    r"(?:(?P<code>.*?)  # )?(?P<file>[^\s(](?:(?!  # ).)*?):(?P<line>\d+) in (?P<function>[^\s;]+)"
    rf"(?P<notes>(?:{_NOTE})*)(?: and )?",
    re.DOTALL,
)
_TORCHS_LINE = re.compile(r"\A\(?([^\s()]+:\d+ in [^\s()]+)\)?\Z")
"""A line of torch's code, in parentheses if there is no line of the user's."""
_HINT = "(HINT: "
IN_TORCH = "in torch: "
"""Prefix of a hint that is not advice but a line of torch's code."""
_LOCAL = re.compile(r"L\[\s*['\"](.*?)['\"]\s*\]")


class GuardLine(NamedTuple):
    """A line that torch names for a guard.

    Attributes:
        file: path as torch writes it: complete, or only its end.
        line, function: line number, and the enclosing function.
        code: text of the line, "" if torch does not report it.
    """

    file: str
    line: int
    function: str
    code: str


class GuardText(NamedTuple):
    """A guard as torch writes it.

    Attributes:
        compile_id: compilation that the guard belongs to, "" if the text has none.
        check: the condition that has to hold, or that failed.
        lines: lines of the user's code or torch's that created the guard.
        hints: torch's advice and remarks on the lines.
        stack: the user's stack at the line that created it, outermost first.
    """

    compile_id: str
    check: str
    lines: tuple[GuardLine, ...] = ()
    hints: tuple[str, ...] = ()
    stack: tuple[GuardLine, ...] = ()


def parse(text: str) -> GuardText:
    """Parse a guard.

    Args:
        text: torch's text, with or without a leading compile id.
    """
    # Both patterns match any text, so there is a first match.
    (compile_id, guard_text), *_ = _WITH_ID.findall(text)
    guard_text, _, stack = guard_text.partition(_STACK)
    before, *_ = _CHECK.findall(guard_text)
    # A check without a line may have a hint too.
    check, is_hint, hint = before.partition(_HINT)
    lines, hints = parse_comment(guard_text.removeprefix(before).removeprefix(" # "))
    trailing = [hint.rstrip().removesuffix(")")] if is_hint else []
    frames = tuple(GuardLine(*frame) for frame in frames_in(stack))
    return GuardText(compile_id, check.strip(), tuple(lines), (*trailing, *hints), frames)


def without_scope(text: str) -> str:
    """Strip the scope of local variables, as torch's reasons do: `x` for `L['x']`."""
    return _LOCAL.sub(r"\1", text)


def parse_comment(comment: str) -> tuple[list[GuardLine], list[str]]:
    """Return the lines, each once, and the hints in the comment of a guard."""
    lines: dict[GuardLine, None] = {}
    notes: list[str] = []
    while comment:
        part = None if comment.startswith(";") else _PLACE.match(comment)
        if part is None:  # a line of torch's, or, after ";", further guards
            notes.append(comment.strip("; "))
            break
        code = (part["code"] or "").strip()
        lines[GuardLine(part["file"], int(part["line"]), part["function"], code)] = None
        notes += re.findall(_NOTE, part["notes"])
        comment = comment[part.end() :]
    hints = [_TORCHS_LINE.sub(rf"{IN_TORCH}\1", note.removeprefix("HINT: ")) for note in notes]
    return [*lines], [hint for hint in hints if hint]


def complete_path(line: GuardLine) -> GuardLine:
    """Complete the file path of a line, because torch may write only its end.

    The line is returned unchanged if no cached file has this text at this line.
    """
    for file in [*linecache.cache]:  # torch read the text of the line through it
        if file.endswith(line.file) and linecache.getline(file, line.line).strip() == line.code:
            return line._replace(file=file)
    return line


BACKEND = "BACKEND_MATCH failure"
"""torch's text if no guard failed, but the backend differs."""


class Check(NamedTuple):
    """A check of a guard.

    Attributes:
        text: torch's text, see `tidy`.
        source: Dynamo's source of the value, such as `self.calls` or `G['SCALE']`; "" if unknown.
        words: the change of the value, with `{was}` and `{now}` for the values; "" to use the text.
        was: the old or required value, as text; "" if torch does not report it.
        now: the new value, "" if torch does not report it.
        read: the expression to read for the new value; "" for the values in the text.
    """

    text: str
    source: str = ""
    words: str = ""
    was: str = ""
    now: str = ""
    read: str = ""


_SIZE = re.compile(r"([\w.\[\]']+)\.(size|stride)\(\)\[(\d+)\]")
_MODULE = re.compile(r"\b_(?:modules|parameters|buffers)\[")
"""Part of the source of a value that belongs to a module."""
_IMPORTED = re.compile(r"G\['__import_(\w+)'\]")
"""Dynamo's own global for a module, with dots written as `_dot_`."""
_GLOBAL = re.compile(r"G\['(\w+)'\]")

_TIDY = (
    # Addresses and object ids differ in each run. The text is stored in baselines, and in messages
    # that are compared between runs.
    (r"(?: of type object)? at 0x[0-9a-f]+|\(id=0x[0-9a-f]+\)", ""),
    (r"(?<=, )\d{6,}(?=\))", "..."),
    (r"<class '(.+?)'>", r"\1"),
    (r"<code object (\S+), file \"(.+?)\", line (\d+)>", r"\1 (\2:\3)"),
    (r"requires_grad=0", "False, actual True"),
    (r"requires_grad=1", "True, actual False"),
    # From its second value on, Dynamo passes a float argument as a tensor, and the guard reads the
    # tensor. For the user it is still a float.
    (r"___as_tensor\((.+?)\)\.item\(\)", r"\1"),
    (r"___check_", "check_"),
    (r", (?:DispatchKeySet\(.*?\)|device=None)", ""),
)
"""Parts of torch's texts, with their replacements."""

_CHECKS = (
    (
        r"tensor '(?P<source>.*?)' (?P<what>size|stride) mismatch at index (?P<number>\d+)\. "
        r"expected (?P<was>\S+), actual (?P<now>\S+)",
        r"\g<what> of dim \g<number> was {was}, is {now}",
        "",
    ),
    (
        r"tensor '(?P<source>.*?)' (?P<what>\w+) mismatch\. "
        r"expected (?P<was>\S+), actual (?P<now>\S+)",
        r"\g<what> was {was}, is {now}",
        "",
    ),
    (
        # The first dispatch key names device and layout.
        r"tensor '(?P<source>.*?)' dispatch key set .* expected \w+\((?P<was>\w+)\b.* actual "
        r"\w+\((?!(?P=was)\b)(?P<now>\w+)",
        "was a {was} tensor, is a {now} tensor",
        "",
    ),
    (
        r"tensor '(?P<source>.*?)' dispatch key set mismatch.*Conjugate.*actual(?!.*Conjugate)",
        "was a conjugated view (.conj()), is none",
        "",
    ),
    (
        r"(?!.*Conjugate.*actual)tensor '(?P<source>.*?)' dispatch key set .*actual.*Conjugate",
        "was no conjugated view, is one (.conj())",
        "",
    ),
    (
        r"tensor '(?P<source>.*?)' dispatch key set mismatch.*Negative.*actual(?!.*Negative)",
        "was a negated view (.imag of .conj()), is none",
        "",
    ),
    (
        r"(?!.*Negative.*actual)tensor '(?P<source>.*?)' dispatch key set .*actual.*Negative",
        "was no negated view, is one (.imag of .conj())",
        "",
    ),
    (
        r"tensor '(?P<source>.*?)' dispatch key set mismatch.*FuncTorch.*actual(?!.*FuncTorch)",
        "was inside a transform of torch.func (vmap, grad), is outside",
        "",
    ),
    (
        r"(?!.*FuncTorch.*actual)tensor '(?P<source>.*?)' dispatch key set .*actual.*FuncTorch",
        "was outside a transform of torch.func (vmap, grad), is inside",
        "",
    ),
    # torch.inference_mode removes these keys: Autograd from a call inside it, and from a tensor
    # made inside it; ADInplaceOrView only if the tensor was made and is used inside it.
    (
        r"(?!.*Python)tensor '(?P<source>.*?)' dispatch key set .*(Autograd|ADI).*actual(?!.*\2)",
        "was made or used outside torch.inference_mode, is made or used inside",
        "",
    ),
    (
        r"(?!.*Python)tensor '(?P<source>.*?)' dispatch key set (?:(?!.*Autograd.*actual).*actual"
        r".*Autograd|(?!.*ADI.*actual).*actual.*ADI)",
        "was made or used inside torch.inference_mode, is made or used outside",
        "",
    ),
    (
        r"expected type of '(?P<source>.+?)' to be (?:a )?(?P<was>.+?)(?: type, '|,) but found "
        r"(?P<now>.+)",
        "type was {was}, is {now}",
        "",
    ),
    (
        r"check_type_id\((?P<source>.+?), \.\.\.\)(?:, type=(?P<was>.+))?",
        "type was {was}, is {now}",
        r"type(\g<source>)",
    ),
    (
        # A guard on a function checks its `__code__`.
        r"check_obj_id\((?P<source>.+?)(?:\.__code__)?, \.\.\.\)"
        r"(?:, type=<?(?:code|(?P<was>.+?))>?\Z)?",
        "another object: was {was}, is {now}",
        r"\g<source>",
    ),
    (
        r"len\((?P<source>.+)\) (?:==|!=) (?P<was>\d+)\Z",
        "length was {was}, is {now}",
        r"len(\g<source>)",
    ),
    (
        r"list\(dict\.keys\((?P<source>.+)\)\)\[(?P<number>\d+)\] == (?P<was>.+)\Z",
        r"key \g<number> was {was}, is {now}",
        r"list(dict.keys(\g<source>))[\g<number>]",
    ),
    (
        r"Duplicate tensors found: \[\"(?P<source>.*?)\", (?P<now>.*)\]",
        r"was another tensor than {now}, is the same",
        "",
    ),
    (
        # `mark_dynamic` and similar functions store the dims as attributes of the tensor.
        r"hasattr\((?P<source>.+), '_dynamo_(?P<what>\w+)_indices'\) == False",
        r"\g<what> dims are {now}, were none",
        r"\g<source>._dynamo_\g<what>_indices",
    ),
    (
        r"KeyError on (?P<source>.+)\[(?P<was>[^\[\]]+)\]\Z",
        "key {was} is missing, the keys are {now}",
        r"list(dict.keys(\g<source>))",
    ),
    (
        r"(?P<source>(?!.*\.(?:size|stride)\(\))[^()]+?) (?:==|is(?= None| True| False)) "
        r"(?P<was>.+)\Z",
        "was {was}, is {now}",
        r"\g<source>",
    ),
)
"""Prefixes of texts, with the words for the change, and the expression to read for the new value.

The first match counts. For any other text, the words are the text and the values in it.
"""


def check_of(text: str) -> Check:
    """Parse the check of a guard.

    Args:
        text: `GuardText.check`.
    """
    text = tidy(text)
    for pattern, words, expression in _CHECKS:
        if match := re.match(pattern, text, re.DOTALL):
            # A pattern need not have the groups `was` and `now`, and a group need not match.
            found = {"was": "", "now": "", **match.groupdict("")}
            if not found["was"]:  # before torch 2.11
                words = words.replace("was {was}, ", "")
            source, was, now = found["source"], found["was"], found["now"]
            return Check(text, source, match.expand(words), was, now, match.expand(expression))
    return Check(text)


def sizes_in(text: str) -> list[tuple[str, str, int]]:
    """Return the sizes and strides in the text of a guard as (tensor source, kind, dimension)."""
    return [(source, kind, int(dim)) for source, kind, dim in _SIZE.findall(text)]


def describe_source(name: str) -> str:
    """Describe the source of a guard: an argument, a global, or a part of either."""
    if name.isidentifier():
        return f"argument {name}"
    # Dynamo accesses a Python module through a global that it created itself.
    path = _IMPORTED.sub(lambda module: module[1].replace("_dot_", "."), name)
    is_global = path.startswith("G['")
    # Only a value of a module has a path like `layers.0.weight`.
    path = source_to_fqn(path) if _MODULE.search(path) else _GLOBAL.sub(r"\1", path)
    return f"global {path}" if is_global else path


def tidy(text: str) -> str:
    """Return torch's text without ids and addresses, and without the names of its helpers."""
    text = re.sub(r'file "(.+?)"', lambda file: f'file "{relative(file[1])}"', text)
    for pattern, words in _TIDY:
        text = re.sub(pattern, words, text)
    return text
