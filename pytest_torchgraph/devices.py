"""Which devices a test runs on, and whether they are there.

torch is needed only to tell whether a device is there, so it is imported when a test that needs one
starts, never while tests are collected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import torch

FIXTURE = "graph_device"
MARKER = "torchgraph_devices"
DESCRIPTION = (
    f"{MARKER}(*names): of the selected devices, {FIXTURE} gives only these to the test; where "
    "none of these is selected, it is skipped"
)
DEFAULT = "cpu,cuda"
KNOWN = ("cpu", "cuda", "mps", "xpu", "hpu", "mtia", "npu", "xla", "meta")
"""The device types that can be selected: those of torch and of its common backends, no indices."""

_expected: str | None = None


def expected_device() -> str | None:
    """The device type that captures of the running test must involve; None where it says none.

    Set while a test that uses `graph_device` runs, from its function-scoped fixtures on.
    """
    return _expected


def expect_during(request: pytest.FixtureRequest) -> None:
    """Until this function-scoped request ends, captures must involve the test's device, if any.

    A case is skipped that a marker leaves out which was not there when devices were chosen: one of
    a `pytest.param`, say.
    """
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and FIXTURE in callspec.params:
        name = str(callspec.params[FIXTURE])
        for mark in request.node.iter_markers(MARKER):
            if name.partition(":")[0] not in _named_by(mark):
                pytest.skip(f"@pytest.mark.{MARKER} leaves out device {name!r}")
        _expect(name.partition(":")[0])
        request.addfinalizer(lambda: _expect(None))


def _expect(name: str | None) -> None:
    # Not a ContextVar: the threads and event loops that a test starts must see it as well.
    global _expected
    _expected = name


def parse_devices(text: str, option: str) -> tuple[str, ...]:
    """The devices named in `text`, in order, each once.

    Raises:
        pytest.UsageError: if there is none, or one that is unknown.
    """
    return _checked([name.strip() for name in text.split(",") if name.strip()], option)


def _checked(names: Sequence[Any], where: str) -> tuple[str, ...]:
    if not names:
        raise pytest.UsageError(f"{where} names no device: choose from {', '.join(KNOWN)}")
    for name in names:
        if name not in KNOWN:
            hint = " (without an index)" if str(name).partition(":")[0] in KNOWN else ""
            raise pytest.UsageError(
                f"{where}: unknown device {name!r}: choose from {', '.join(KNOWN)}{hint}"
            )
    return tuple(dict.fromkeys(names))


def parametrize(metafunc: pytest.Metafunc, names: Sequence[str]) -> None:
    """Run a test that uses `graph_device` once for each of these devices.

    A test that parametrizes the fixture itself, or a module that redefines it, has its own way.
    The markers of a test leave some of the devices: what none of them leaves, and what they name
    and nobody selected, is skipped.

    Raises:
        pytest.Collector.CollectError: for a marker that means nothing.
    """
    if FIXTURE not in metafunc.fixturenames or _parametrized(metafunc) or _redefined(metafunc):
        return
    try:
        wanted = [_named_by(mark) for mark in metafunc.definition.iter_markers(MARKER)]
    except pytest.UsageError as error:
        raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: {error}") from None
    left = [name for name in names if all(name in each for each in wanted)]
    cases: list[Any] = list(left)
    if not left:
        reason = f"@pytest.mark.{MARKER} leaves none of the selected devices: {', '.join(names)}"
        cases = [pytest.param(name, marks=pytest.mark.skip(reason)) for name in wanted[0]]
    ids = left or wanted[0]
    metafunc.parametrize(FIXTURE, cases, indirect=True, scope="class", ids=ids)


def misused(items: Iterable[Any]) -> str:
    """What is wrong with the markers of these tests, "" if nothing is.

    A class or module may have a marker for those of its tests that use `graph_device`; on a test
    that does not use it, it would do nothing.
    """
    wrong = []
    for item in items:
        if not isinstance(item, pytest.Function) or FIXTURE in item.fixturenames:
            continue
        if any(mark.name == MARKER for mark in getattr(item.function, "pytestmark", ())):
            wrong.append(
                f"{item.nodeid}: @pytest.mark.{MARKER} does nothing, because the test does not use "
                f"{FIXTURE}: name that among its arguments, and make the captures there"
            )
    return "\n".join(wrong)


def _named_by(mark: pytest.Mark) -> tuple[str, ...]:
    """The devices that a marker names.

    Raises:
        pytest.UsageError: if there is none, or one that is unknown.
    """
    where = f"@pytest.mark.{MARKER}"
    if mark.kwargs:
        raise pytest.UsageError(f'{where} takes names of devices, as in {MARKER}("cpu", "cuda")')
    return _checked(mark.args, where)


def _parametrized(metafunc: pytest.Metafunc) -> bool:
    for mark in metafunc.definition.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
        if isinstance(names, str):
            names = names.split(",")
        if FIXTURE in (name.strip() for name in names):
            return True
    return False


def _redefined(metafunc: pytest.Metafunc) -> bool:
    definitions: Mapping[str, Sequence[Any]] = getattr(metafunc, "_arg2fixturedefs", {})
    found = definitions.get(FIXTURE, ())
    return bool(found) and not found[-1].func.__module__.startswith(f"{__package__}.")


def select(request: pytest.FixtureRequest, names: Sequence[str], required: bool) -> torch.device:
    """The device of the running test.

    An absent one skips the test, or fails it where `required`, with the reason.
    """
    name = getattr(request, "param", None)
    if name is None:
        if len(names) > 1:
            pytest.fail(
                f"{FIXTURE} can be {' or '.join(names)} here: name it among the arguments of the "
                "test, so that the test runs once for each, or select one with "
                "--torchgraph-devices",
                pytrace=False,
            )
        name = names[0]
    import torch

    device = torch.device(name)
    reason = why_absent(device)
    if reason is not None and required:
        pytest.fail(
            f"device {str(device)!r}, asked for with --torchgraph-devices, is absent: {reason}",
            pytrace=False,
        )
    if reason is not None:
        pytest.skip(f"device {str(device)!r} is absent: {reason}")
    return device


def why_absent(device: torch.device) -> str | None:
    """Why torch cannot use this device; None if it can."""
    import torch

    if device.type in ("cpu", "meta"):
        return None
    release = f"torch {torch.__version__}"
    is_mps = device.type == "mps"
    name = "torch.backends.mps" if is_mps else f"torch.{device.type}"
    module: Any = torch.backends.mps if is_mps else getattr(torch, device.type, None)
    if module is None:
        return f"{release} has no {name}: the package of this backend is not imported"
    if not hasattr(module, "is_available"):
        return f"{name} of {release} cannot tell whether the device is there"
    if not module.is_available():
        return f"{name}.is_available() is False: {release} {_built(device.type)}"
    count = module.device_count() if hasattr(module, "device_count") else 1
    if device.index is not None and device.index >= count:
        return f"{name}.device_count() is {count}"
    return None


def _built(kind: str) -> str:
    import torch

    if kind == "cuda":
        if torch.version.cuda is None and torch.version.hip is None:
            return "is built without CUDA"
        return "is built with CUDA, and sees no device and driver that it can use"
    if kind == "mps" and not torch.backends.mps.is_built():
        return "is built without MPS"
    return "sees no such device"
