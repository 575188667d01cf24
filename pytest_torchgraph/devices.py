"""The devices of the fixture `graph_device`: how they are selected, and whether torch has them.

    options      parse_devices     the selected devices, from the command line or the ini file
    collection   parametrize       one case of a test for each, as far as its markers leave them
                 misused           markers that would do nothing
    setup        expect_during     captures of this test must involve its device
                 select            the `torch.device`; skips or fails where torch has none

torch is imported only by `select`, never while tests are collected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from .device_types import FIXTURE, KNOWN, MARKER

if TYPE_CHECKING:
    import torch

_expected: str | None = None
"""See `expected_device`."""


def expected_device() -> str | None:
    """The device type that captures of the running test must involve, as "cuda"; None for any.

    Set while a test that uses `graph_device` runs, from its function-scoped fixtures on.
    """
    return _expected


def expect_during(request: pytest.FixtureRequest) -> None:
    """Make captures involve the test's device, if it has one, until this request ends.

    Args:
        request: the request of a function-scoped fixture.

    Raises:
        pytest.skip.Exception: where a marker leaves out the device of this case. `parametrize`
            skips most of these; it does not know markers of a `pytest.param`.
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

    Args:
        text: names separated by commas.
        option: the option or ini value that the text is of, for the message.

    Raises:
        pytest.UsageError: if there is none, or one that is unknown.
    """
    return _checked([name.strip() for name in text.split(",") if name.strip()], option)


def _checked(names: Sequence[Any], where: str) -> tuple[str, ...]:
    """These names, each once.

    Raises:
        pytest.UsageError: if there is none, or one that is not in `KNOWN`; it begins with `where`.
    """
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

    The test's markers narrow the devices: it runs for those that every marker names. Where there is
    none, it has a skipped case for each device of the closest marker. A test that parametrizes the
    fixture itself, or a module that redefines it, is left as it is.

    Args:
        metafunc: the test.
        names: the selected devices.

    Raises:
        pytest.Collector.CollectError: for a marker without a device, or with an unknown one.
    """
    if FIXTURE not in metafunc.fixturenames or _parametrized(metafunc) or _redefined(metafunc):
        return
    try:
        by_marker = [_named_by(mark) for mark in metafunc.definition.iter_markers(MARKER)]
    except pytest.UsageError as error:
        raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: {error}") from None
    chosen = [name for name in names if all(name in marked for marked in by_marker)]
    cases: list[Any] = list(chosen)
    if not chosen:
        reason = f"@pytest.mark.{MARKER} leaves none of the selected devices: {', '.join(names)}"
        cases = [pytest.param(name, marks=pytest.mark.skip(reason)) for name in by_marker[0]]
    ids = chosen or by_marker[0]
    metafunc.parametrize(FIXTURE, cases, indirect=True, scope="class", ids=ids)


def misused(items: Iterable[Any]) -> str:
    """The mistakes in the device markers of these tests, a line for each; "" for none.

    A mistake is a marker of a test itself that does not use `graph_device`, where it does nothing.
    A class or module may have one for those of its tests that use it.

    Args:
        items: what a collector collected; all but functions are ignored.
    """
    lines = []
    for item in items:
        if not isinstance(item, pytest.Function) or FIXTURE in item.fixturenames:
            continue
        if any(mark.name == MARKER for mark in getattr(item.function, "pytestmark", ())):
            lines.append(
                f"{item.nodeid}: @pytest.mark.{MARKER} does nothing, because the test does not use "
                f"{FIXTURE}: name that among its arguments, and make the captures there"
            )
    return "\n".join(lines)


def _named_by(mark: pytest.Mark) -> tuple[str, ...]:
    """The devices that a marker names, each once.

    Raises:
        pytest.UsageError: if there is none, or one that is unknown, or a keyword.
    """
    where = f"@pytest.mark.{MARKER}"
    if mark.kwargs:
        raise pytest.UsageError(f'{where} takes names of devices, as in {MARKER}("cpu", "cuda")')
    return _checked(mark.args, where)


def _parametrized(metafunc: pytest.Metafunc) -> bool:
    """Whether `@pytest.mark.parametrize` gives the test its devices."""
    for mark in metafunc.definition.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
        if isinstance(names, str):
            names = names.split(",")
        if FIXTURE in (name.strip() for name in names):
            return True
    return False


def _redefined(metafunc: pytest.Metafunc) -> bool:
    """Whether the `graph_device` that the test sees is a fixture of the project's own."""
    by_name: Mapping[str, Sequence[Any]] = getattr(metafunc, "_arg2fixturedefs", {})
    definitions = by_name.get(FIXTURE, ())
    return bool(definitions) and not definitions[-1].func.__module__.startswith(f"{__package__}.")


def select(request: pytest.FixtureRequest, names: Sequence[str], required: bool) -> torch.device:
    """The `torch.device` of the running test.

    Args:
        request: the request of the fixture, with the device's name as its parameter. A test that
            gets the fixture by `getfixturevalue` has none; it gets the only device of `names`.
        names: the selected devices.
        required: whether they were named on the command line.

    Raises:
        pytest.skip.Exception: where torch cannot use the device; with the reason.
        pytest.fail.Exception: the same where it is required, and where there is no parameter and
            more than one device.
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
    """The reason why torch cannot use this device, in words; None if it can."""
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
    """What torch was built with, for a device type that is not available."""
    import torch

    if kind == "cuda":
        if torch.version.cuda is None and torch.version.hip is None:
            return "is built without CUDA"
        return "is built with CUDA, and sees no device and driver that it can use"
    if kind == "mps" and not torch.backends.mps.is_built():
        return "is built without MPS"
    return "sees no such device"
