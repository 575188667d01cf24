"""Every write and removal passes `files.write`, which a link of a stranger's branch cannot lead."""

from __future__ import annotations

import ast
import io
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pytest_torchgraph import files
from pytest_torchgraph.errors import OutsideRootError, TorchGraphError

PACKAGE = Path(__file__).parents[1] / "pytest_torchgraph"
posix = pytest.mark.skipif(os.name != "posix", reason="links and FIFOs need rights on Windows")

# -- nothing goes around it ------------------------------------------------------------------------

WRITING = set(
    """write_text write_bytes touch mkdir makedirs mkfifo rmdir removedirs rmtree unlink remove
    rename renames replace symlink symlink_to hardlink_to link link_to truncate copy copy2 copyfile
    copytree copymode move chmod lchmod mkstemp mkdtemp NamedTemporaryFile TemporaryDirectory dup2
    """.split()
)
"""Names of functions that write, create or remove files."""
COMMON = {"replace", "copy", "link", "move", "remove", "rename"}
"""Names that also other objects have: calls of a module or on a path."""
MODULES = {"os", "shutil", "tempfile", "pathlib"}
ELSEWHERE = {
    "api/second_process.py": ["mkdir", "write_bytes", "write_bytes"],  # below a new directory
    "api/warm_start.py": ["TemporaryDirectory"],
    "cli/__init__.py": ["dup2", "open"],  # the null device
    "cli/review/prompt.py": ["mkdtemp"],
    "render/_pygraphviz.py": ["write_bytes"],  # below a new directory
    "render/output.py": ["open", "TemporaryDirectory", "write_bytes"],  # the same
    "report/artifacts.py": ["mkdtemp", "mkdir"],  # pytest's own `cache.mkdir`
    "report/surfaces/github.py": ["open"],  # appends to the step summary, which GitHub names
    "snapshot/run.py": ["open", "mkstemp"],  # the journal, in a file of mkstemp
}
"""Calls that may stay outside `files.write`: below a new temporary directory, or not by path."""


def writing_calls(source: str) -> Iterator[str]:
    """Yield the name of each call that may write, create or remove a file."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        name = getattr(function, "attr", getattr(function, "id", ""))
        if name not in WRITING | {"open"}:
            continue
        owner = ast.unparse(getattr(function, "value", function))
        if name == "open" and owner not in ("HUB", "recorder", "self", "webbrowser"):
            modes = [*node.args, *(word.value for word in node.keywords if word.arg == "mode")]
            values = {mode.value for mode in modes if isinstance(mode, ast.Constant)}
            if values.isdisjoint({"r", "rb"}):
                yield name
        elif name in WRITING and (name not in COMMON or owner in MODULES):
            yield name


@pytest.mark.slow("parses the whole package")
def test_nothing_goes_around_the_one_function() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): calls
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.name != "files.py" or path.parent != PACKAGE
        if (calls := sorted(writing_calls(path.read_text(encoding="utf-8"))))
    }
    assert found == {name: sorted(calls) for name, calls in ELSEWHERE.items()}


@pytest.mark.parametrize(
    "code",
    [
        "path.write_text('x')",
        "open(path, 'w')",
        "path.open('a')",
        "os.replace(a, b)",
        "os.open(path, flags)",
        "shutil.rmtree(path)",
        "(path / name).unlink()",
        "(path / name).open(mode='xb')",
    ],
)
def test_call_that_goes_around_is_found(code: str) -> None:
    assert len([*writing_calls(code)]) == 1
    for harmless in ("text.replace('a', 'b')", "open(path, 'rb')", "path.open('rb')", "read(path)"):
        assert [*writing_calls(harmless)] == []


# -- links, devices, directories -------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("root/sub", "outside"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "outside" / "notes.txt").write_text("mine")
    return tmp_path / "root"


def everything(root: Path) -> dict[str, str]:
    """Return the content of all files, with the targets of links."""
    return {
        path.relative_to(root.parent).as_posix(): str(path.readlink())
        if path.is_symlink()
        else path.read_text()
        for path in sorted(root.parent.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


@posix
@pytest.mark.parametrize("target", ["../outside/notes.txt", "../outside/new", "/dev/null", "."])
@pytest.mark.parametrize("limited", [True, False])
def test_link_at_the_file_itself_is_replaced(root: Path, target: str, limited: bool) -> None:
    path = root / "a.txt"
    before = everything(root)
    path.symlink_to(target)
    if not limited and target == "/dev/null":
        assert files.write(path, "new")
        assert path.is_symlink()  # the user named a device
        return
    assert files.write(path, "new", root=root if limited else None)
    assert everything(root) == {**before, "root/a.txt": "new"}
    path.unlink()
    path.symlink_to(target)
    assert files.write(path, None, root=root)
    assert everything(root) == before


@posix
@pytest.mark.parametrize(
    "target", ["../outside", "..", "/", "../outside/missing", "/proc/self/cwd"]
)
@pytest.mark.parametrize("content", ["new", None])
def test_directory_link_out_of_the_root_is_refused(
    root: Path, target: str, content: str | None
) -> None:
    (root / "link").symlink_to(target)
    before = everything(root)
    for name in ("link/notes.txt", "link/new/deep.txt"):
        with pytest.raises(OutsideRootError, match="is outside the root directory"):
            files.write(root / name, content, root=root)
    assert everything(root) == before


@posix
def test_directory_link_inside_the_root_is_followed(root: Path) -> None:
    (root / "link").symlink_to("sub")
    files.write(root / "link" / "deep" / "a.txt", b"new", root=root)
    assert (root / "sub" / "deep" / "a.txt").read_bytes() == b"new"
    assert files.write(root / "link" / "deep" / "a.txt", None, root=root)
    assert files.write(root / "link" / "deep", None, root=root)
    assert [*(root / "sub").iterdir()] == []


@pytest.mark.parametrize("name", ["a.txt", "new/deep/a.txt"])
def test_system_without_dir_fd_writes_by_path(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(files, "HAS_DIR_FD", False)
    for text in ("old", "new"):
        files.write(root / name, text, root=root)
        assert (root / name).read_text() == text
    assert len(os.listdir((root / name).parent)) == (2 if name == "a.txt" else 1)
    assert files.write(root / name, None, root=root)
    assert not files.write(root / name, None, root=root)


@posix
def test_version_control_is_refused(root: Path) -> None:
    (root / "link").symlink_to(".git")
    (root / ".git").mkdir()
    for name in (".git/a.txt", "link/a.txt", "sub/.GIT/a.txt"):
        with pytest.raises(OutsideRootError, match="version control"):
            files.write(root / name, "new", root=root)


@posix
@pytest.mark.parametrize("content", ["new", None])
@pytest.mark.parametrize("call", ["open", "stat", "fsync", "replace", "unlink", "mkdir"])
def test_directory_swapped_for_a_link_never_escapes(
    root: Path, monkeypatch: pytest.MonkeyPatch, call: str, content: str | None
) -> None:
    """The swap happens before each call of one kind in turn."""
    victim = root.parent / "outside" / "a.txt"
    real: Callable[..., object] = getattr(os, call)
    for swap_at in range(4):
        victim.write_text("mine")
        (root / "sub" / "a.txt").write_text("old")
        calls = iter(range(99))

        def swapping(*args: object, **kwargs: object) -> object:
            if next(calls) == swap_at:  # noqa: B023
                (root / "sub").rename(root / "was")
                (root / "sub").symlink_to("../outside")
            return real(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(files.os, call, swapping)
            with suppress(TorchGraphError):
                files.write(root / "sub" / "a.txt", content, root=root)
        assert sorted(os.listdir(root.parent / "outside")) == ["a.txt", "notes.txt"]
        assert victim.read_text() == "mine"
        if (root / "sub").is_symlink():
            (root / "sub").unlink()
            (root / "was").rename(root / "sub")


def test_missing_file_is_no_error_and_a_full_directory_stays(root: Path) -> None:
    assert not files.write(root / "no" / "a.txt", None, root=root)
    assert not files.write(root / "a.txt", None, root=root)
    files.write(root / "sub" / "a.txt", "new", root=root)
    with pytest.raises(TorchGraphError, match="cannot remove "):
        files.write(root / "sub", None, root=root)
    with pytest.raises(TorchGraphError, match=r"cannot write .*: Is a directory"):
        files.write(root / "sub", "new", root=root)
    with pytest.raises(TorchGraphError, match=r"cannot write .*: Not a directory"):
        files.write(root / "sub" / "a.txt" / "b.txt", "new", root=root)
    assert os.listdir(root) == ["sub"]
    assert os.listdir(root / "sub") == ["a.txt"]


@posix
def test_mode_of_the_file_is_kept(root: Path) -> None:
    files.write(root / "a.txt", "old", root=root)
    mask = os.umask(0)
    os.umask(mask)
    assert (root / "a.txt").stat().st_mode & 0o777 == 0o666 & ~mask
    (root / "a.txt").chmod(0o640)
    files.write(root / "a.txt", "new", root=root)
    assert (root / "a.txt").stat().st_mode & 0o777 == 0o640


@posix
@pytest.mark.parametrize("linked", [False, True])
def test_named_fifo_is_written_to(root: Path, linked: bool) -> None:
    path = fifo = root / "fifo"
    os.mkfifo(fifo)
    if linked:
        path = root / "link.svg"
        path.symlink_to("fifo")
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append(fifo.read_text()))
    reader.start()
    assert files.write(path, "new")
    reader.join(20)
    assert received == ["new"]
    assert fifo.is_fifo()


@posix
def test_named_socket_is_written_to(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        server.listen()
        files.write(Path("s"), "new")
        client, _ = server.accept()
        with client:
            assert client.recv(99) == b"new"
    assert Path("s").is_socket()
    with pytest.raises(TorchGraphError, match="cannot write s: "):
        files.write(Path("s"), "new")
    assert Path("s").is_socket()


@posix
def test_fifo_below_the_root_is_replaced(root: Path) -> None:
    os.mkfifo(root / "a.txt")
    files.write(root / "a.txt", "new", root=root)
    assert (root / "a.txt").read_text() == "new"


@posix
@pytest.mark.parametrize("kind", ["pipe", "file", "socket"])
def test_standard_output_is_written_to(root: Path, kind: str) -> None:
    code = (
        "import pathlib; from pytest_torchgraph.files import write; print('before');"
        "write(pathlib.Path('/dev/stdout'), 'new'); print('after')"
    )
    command, environment = [sys.executable, "-c", code], {**os.environ}
    environment["PYTHONPATH"] = os.pathsep.join([str(PACKAGE.parent), *sys.path])
    if kind == "pipe":
        printed = subprocess.run(command, env=environment, stdout=subprocess.PIPE).stdout
    elif kind == "file":
        with (root / "out").open("wb") as out:
            subprocess.run(command, env=environment, stdout=out)
        printed = (root / "out").read_bytes()
    else:
        here, there = socket.socketpair()
        with here, there:
            subprocess.run(command, env=environment, stdout=there)
            printed = here.recv(99)
    assert printed == b"before\nnewafter\n"
    assert Path("/dev/stdout").is_symlink()


@pytest.mark.skipif(sys.platform != "linux", reason="swaps two names in one step")
def test_file_that_becomes_a_fifo_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at its type and the opening."""
    file = tmp_path / "a"
    file.write_text("x")
    real = Path.stat

    def stat(path: Path, **options: Any) -> os.stat_result:
        found = real(path, **options)
        file.unlink()
        os.mkfifo(file)
        return found

    monkeypatch.setattr(Path, "stat", stat)
    with pytest.raises(OSError, match="not a regular file"):
        files.read_bytes(file)


def test_file_without_content_for_now_is_not_a_regular_file(root: Path, monkeypatch: Any) -> None:
    """Such as /proc/kmsg, a regular file by its type: without O_NONBLOCK, `read` would wait."""

    class Waiting(io.BytesIO):
        def read(self, size: int | None = -1) -> Any:
            return None

        def fileno(self) -> int:
            return descriptor

    (root / "kmsg").touch()
    with open(root / "kmsg", "rb") as file:
        descriptor = file.fileno()
        monkeypatch.setattr(files, "open", lambda *_, **__: Waiting(), raising=False)
        with pytest.raises(OSError, match=re.escape(f"not a regular file: '{root / 'kmsg'}'")):
            files.read_bytes(root / "kmsg")
