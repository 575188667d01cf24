"""Read, write and remove files safely, in a checkout with files and links of a stranger's branch.

`write` and `append` are the only functions of this package that write or remove a file outside a
new temporary directory. `write` writes a file completely under a temporary name and then moves it
into place. If anything fails before the move, the old file is unchanged.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import stat
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from .errors import OutsideRootError, TorchGraphError

MOST_BYTES = 64 * 2**20
"""Maximum size of a file to read, in bytes."""
TEMPORARY = "tgraph-tmp"
"""Suffix of the temporary file that is written before it replaces a file."""
REPOSITORIES = frozenset({".git", "git~1", ".hg", ".jj", ".svn"})
"""Names of directories that belong to version control; `git~1` is the short name on Windows."""
HAS_DIR_FD = os.open in os.supports_dir_fd
"""True where the system can open a file relative to an opened directory; not on Windows."""
# O_PATH needs no permission to list the directory.
_DIRECTORY = sum(getattr(os, name, 0) for name in ("O_PATH", "O_DIRECTORY", "O_NOFOLLOW"))


def read_bytes(path: Path, *, only_files: bool = True) -> bytes:
    """Return the content of a file.

    Raises:
        OSError: if the file cannot be read, has more than `MOST_BYTES`, or, with `only_files`, is a
            FIFO, socket or device.
    """

    def check(status: os.stat_result) -> os.stat_result:
        if only_files and not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return status

    # Opening a FIFO waits for a writer, and /dev/zero never ends. Check the file type before and
    # after: a branch may swap the file.
    check(path.stat())
    flags = getattr(os, "O_NONBLOCK", 0) if only_files else 0
    with open(path, "rb", opener=lambda name, mode: os.open(name, mode | flags)) as file:
        status = check(os.fstat(file.fileno()))
        # A limit costs time. Devices and files in /proc report 0 bytes.
        data = file.read() if 0 < status.st_size <= MOST_BYTES else file.read(MOST_BYTES + 1)
    if data is None:  # /proc/kmsg is a regular file by its type
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    if len(data) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"larger than {MOST_BYTES // 2**20} MiB", str(path))
    return data


def parse_json(text: str | bytes, pairs: Callable[..., Any] | None = None) -> Any:
    """Return the JSON values of a text from others.

    Args:
        text: the text.
        pairs: as `object_pairs_hook` of `json.loads`.

    Raises:
        ValueError: for invalid JSON, values nested too deep, and numbers from 1e20 on.
    """
    integer, number = (functools.partial(_bounded, kind) for kind in (int, float))
    try:
        return json.loads(
            text,
            object_pairs_hook=pairs,
            parse_int=integer,
            parse_float=number,
            parse_constant=number,
        )
    except RecursionError:
        raise ValueError("nested too deep") from None


def _bounded(kind: type[float], text: str) -> float:
    """Parse a number of JSON. Raise `ValueError` for one that is too large, infinite or NaN."""
    number = kind(text)
    if not abs(number) < 1e20:  # NaN is not
        raise ValueError(f"{text[:20]} is out of range")
    return number


def decode(hint: Any, value: Any, where: str = "value") -> Any:
    """Return JSON values as values of a type, so that nothing else has to check their types.

    Args:
        hint: the type, as in annotations: `Any`, a class, a dataclass, or `Literal`, `tuple`,
            `list`, `dict`, `Mapping` or `| None` with other types. Or a list with the type of its
            elements, or a dictionary of the types of keys, which may be `None`. Keys with the same
            type are separated by spaces, and other keys are left out.
        value: the values.
        where: their place, for the message.

    Raises:
        TypeError, ValueError: for a value of another type, and an unknown or missing key.
    """
    if type(value) is hint:  # most values
        return value
    origin, arguments = get_origin(hint), get_args(hint)
    if isinstance(hint, list):
        origin, arguments = list, tuple(hint)
    # A union is `X | None`; a dictionary of types may be `None` as a whole.
    if origin is UnionType or (value is None and isinstance(hint, dict)):
        return None if value is None else decode(arguments[0], value, where)
    # `hints` has the type of each key, and `build` makes the result of the decoded values.
    hints, build = None, hint
    if isinstance(value, dict):
        if isinstance(hint, dict):
            hints, build = {name: hint[names] for names in hint for name in names.split()}, dict
            # A missing key is `None`, which only some types accept.
            value = {name: value.get(name) for name in hints}
        elif origin in (dict, Mapping):
            hints, build = dict.fromkeys(value, arguments[1]), dict
        elif hasattr(hint, "__dataclass_fields__"):
            hints = _hints(hint)
            if unknown := value.keys() - hints.keys():
                raise ValueError(f"{where}: unknown: {', '.join(sorted(unknown))}")
    if hints is not None:
        return build(**{key: decode(hints[key], value[key], f"{where}.{key}") for key in value})
    if isinstance(value, list | tuple) and origin in (list, tuple):
        # A list, and `tuple[X, ...]`, have one type for all items.
        is_fixed = origin is tuple and arguments[-1] is not Ellipsis
        item_hints = arguments if is_fixed else arguments[:1] * len(value)
        pairs = zip(item_hints, value, strict=True)
        return origin(decode(*pair, where) for pair in pairs)
    if (origin is Literal and value in arguments) or hint is Any:
        return value
    # On Python 3.10, `list[int]` is an instance of `type`.
    if (
        origin is None
        and isinstance(hint, type)
        and isinstance(value, (int, float) if hint is float else hint)
    ):
        return value
    raise ValueError(f"{where}: expected {getattr(hint, '__name__', hint)}, got {value!r:.40}")


_hints: Any = functools.cache(get_type_hints)


def write(
    path: Path, content: str | bytes | None, *, root: Path | None = None, sync: bool = True
) -> bool:
    """Write a complete file, or remove it. If this fails, the file is unchanged.

    A link at `path` itself is replaced or removed; the file that it points to is unchanged. Missing
    directories are created.

    Args:
        path: the file.
        content: the new content; `None` to remove the file, or the empty directory.
        root: the directory that must contain the file, see `inside`; `None` for an output whose
            path the user chose. If such an output is a device, a FIFO or a socket, the content is
            written to it.
        sync: if True, the file survives a power failure right after this call, which takes a few
            milliseconds.

    Returns:
        False if there is nothing to remove, else True.

    Raises:
        OutsideRootError: if the file is not inside `root`.
        TorchGraphError: if the directory or the file cannot be written.
    """
    action = "remove" if content is None else "write"
    data = content.encode() if isinstance(content, str) else content
    try:
        if root is None and is_stream(path) and data is not None:
            _write_stream(path, data)
        else:
            _replace(path, data, root, sync)
    except OutsideRootError as error:
        raise OutsideRootError(error.reason, f"cannot {action} {path}") from None
    except OSError as error:
        if data is None and isinstance(error, FileNotFoundError):
            return False
        raise failed(action, path, error) from None
    return True


def append(path: Path, text: str, *, root: Path) -> None:
    """Add a text to the end of a file in one piece, so that a crash leaves all of it or nothing.

    Args:
        path: the file, created if it is missing. A link at `path` is refused.
        text: the text.
        root: see `write`.

    Raises:
        OutsideRootError, TorchGraphError: see `write`.
    """
    data = text.encode()
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    try:
        with _opened_parent(path, root, create=True) as (target, folder):
            name = target if folder is None else Path(target.name)
            # Without a buffer, the text is one call of the system.
            with open(os.open(name, flags, 0o666, dir_fd=folder), "ab", buffering=0) as file:
                if file.write(data) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OutsideRootError as error:
        raise OutsideRootError(error.reason, f"cannot write {path}") from None
    except OSError as error:
        raise failed("write", path, error) from None


def _replace(path: Path, data: bytes | None, root: Path | None, sync: bool) -> None:
    """Write a file by moving a temporary one into its place, or remove it; see `write`.

    Raises:
        OSError: if this fails; `FileNotFoundError` if there is nothing to remove.
    """
    with _opened_parent(path, root, create=data is not None) as (target, folder):
        # Names relative to the opened directory: a branch cannot swap it for a link.
        home = target.parent if folder is None else Path()
        name, temporary = home / target.name, home / f".{os.urandom(8).hex()}.{TEMPORARY}"
        mode = 0
        with suppress(FileNotFoundError):
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if data is None:
            (os.rmdir if stat.S_ISDIR(mode) else os.unlink)(name, dir_fd=folder)
            return
        try:
            # Not mkstemp, which creates files that only the owner can read.
            create = functools.partial(os.open, mode=0o666, dir_fd=folder)
            with open(temporary, "xb", opener=create) as file:
                file.write(data)
                file.flush()
                if sync:
                    os.fsync(file.fileno())
            # A new file, or one that replaces a link, has the mode of any new file.
            if stat.S_ISREG(mode):
                os.chmod(temporary, stat.S_IMODE(mode), dir_fd=folder)
            # A link may have been created since `_opened_parent`.
            if inside(path, root) != target:
                raise OSError(errno.EBUSY, "a symbolic link in the path changed during the write")
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise


@contextmanager
def _opened_parent(
    path: Path, root: Path | None, *, create: bool
) -> Iterator[tuple[Path, int | None]]:
    """Yield the path with all links of directories resolved, and its opened directory.

    Below `root`, each directory is opened relative to the one above it, without following links.
    On Windows, which cannot do so, the directory is `None`.
    """
    target = inside(path, root)
    base = target.parent if root is None else Path(os.path.realpath(root))
    if create:
        (base if HAS_DIR_FD else target.parent).mkdir(parents=True, exist_ok=True)
    folder = None
    with ExitStack() as stack:
        for part in (str(base), *target.parent.relative_to(base).parts) if HAS_DIR_FD else ():
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
            folder = os.open(part, _DIRECTORY, dir_fd=folder)
            stack.callback(os.close, folder)
        yield target, folder


def inside(path: Path, root: Path | None) -> Path:
    """Return the path of a file that may be written, with all links of directories resolved.

    git stores symbolic links, so a branch may contain a link to any location: as the file itself,
    which `write` replaces, or as a directory on the path of the file.

    Args:
        path: the file, which need not exist.
        root: pytest's root directory; `None` if the file may be anywhere.

    Raises:
        OutsideRootError: if the path is outside `root`, or inside a version control directory.
    """
    real_path = Path(os.path.realpath(path.parent), path.name)
    if root is None:
        return real_path
    real_root = Path(os.path.realpath(root))
    if not real_path.is_relative_to(real_root):
        raise OutsideRootError(f"{real_path} is outside the root directory {real_root}")
    below_root = real_path.relative_to(real_root)
    if any(_is_repository(part) for part in below_root.parts):
        raise OutsideRootError(f"{below_root} is inside a version control directory")
    return real_path


def _is_repository(name: str) -> bool:
    """Return True for a version control directory in any spelling that a file system accepts."""
    # macOS ignores format characters and case. Windows ignores trailing dots and spaces, and
    # treats `.git::$INDEX_ALLOCATION` as `.git`.
    visible_name = "".join(c for c in name if unicodedata.category(c) != "Cf").partition(":")[0]
    return visible_name.rstrip(". ").casefold() in REPOSITORIES


def is_stream(path: Path) -> bool:
    """Return True for a device, FIFO or socket, and for this process's output: /dev/stdout."""
    is_special = path.exists() and not (path.is_file() or path.is_dir())
    return is_special or _descriptor(path) is not None


def _descriptor(path: Path) -> int | None:
    """Return 1 or 2 if a path leads to the standard output or error of this process."""
    for descriptor in (1, 2):
        with suppress(OSError):  # a missing file, or a closed descriptor
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
    return None


def _write_stream(path: Path, data: bytes) -> None:
    """Write to a device, FIFO or socket, or to this process's output, after what was printed."""
    sys.stdout.flush()
    descriptor = _descriptor(path)
    if descriptor is None and path.is_socket():
        import socket

        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(data)
        return
    # Opening a redirected file again would truncate it.
    with open(path if descriptor is None else os.dup(descriptor), "wb") as stream:
        stream.write(data)


def failed(action: str, path: Path, error: OSError) -> TorchGraphError:
    """Return the error of a file that cannot be read, written or removed."""
    return TorchGraphError(f"cannot {action} {path}: {error.strerror or error}")
