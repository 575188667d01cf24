"""Devices of the `graph_device` fixture: selection, and availability in torch.

    options      parse_devices         the selected devices, from command line or ini file
    collection   parametrize           one case of a test per device that its markers allow
                 find_misused_markers  markers without effect
    setup        expect_during         captures of this test must involve its device
                 select                the `torch.device`; skips or fails if torch lacks it
    captures     parse                 the argument `device=`; refuses what torch lacks

Only `select` and `parse` import torch; collection never does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from .context import CONTEXT
from .device_types import FIXTURE, KNOWN, MARKER
from .errors import CaptureError

if TYPE_CHECKING:
    import torch


def expect_during(request: pytest.FixtureRequest) -> None:
    """Require the test's device, if any, in captures until this request ends.

    Args:
        request: the request of a function-scoped fixture.

    Raises:
        pytest.skip.Exception: if a marker excludes the device of this case. `parametrize` skips
            most of these cases, but does not see markers of a `pytest.param`.
    """
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and FIXTURE in callspec.params:
        name = str(callspec.params[FIXTURE])
        for mark in request.node.iter_markers(MARKER):
            if name.partition(":")[0] not in _devices_of_marker(mark):
                pytest.skip(f"@pytest.mark.{MARKER} excludes device {name!r}")
        CONTEXT.device = name.partition(":")[0]
        request.addfinalizer(lambda: setattr(CONTEXT, "device", None))


def parse_devices(text: str, option: str) -> tuple[str, ...]:
    """Return the devices named in `text`, in order, without duplicates.

    Args:
        text: names separated by commas.
        option: name of the option or ini value, for the message.

    Raises:
        pytest.UsageError: if there is no device, or an unknown device.
    """
    return _check_names([name.strip() for name in text.split(",") if name.strip()], option)


def _check_names(names: Sequence[Any], source: str) -> tuple[str, ...]:
    """Return the names without duplicates.

    Raises:
        pytest.UsageError: if there is no name, or a name outside `KNOWN`. The message starts with
            `source`.
    """
    if not names:
        raise pytest.UsageError(f"{source} names no device: use {', '.join(KNOWN)}")
    for name in names:
        if name not in KNOWN:
            hint = " (without an index)" if str(name).partition(":")[0] in KNOWN else ""
            raise pytest.UsageError(
                f"{source}: unknown device {name!r}: use {', '.join(KNOWN)}{hint}"
            )
    return tuple(dict.fromkeys(names))


def parametrize(metafunc: pytest.Metafunc, names: Sequence[str]) -> None:
    """Run a test that uses `graph_device` once for each of these devices.

    The test's markers narrow the devices: the test runs on devices that every marker names. If no
    device remains, the test has a skipped case for each device of the closest marker. Tests that
    parametrize the fixture themselves, and modules that redefine it, are left unchanged.

    Args:
        metafunc: the test.
        names: the selected devices.

    Raises:
        pytest.Collector.CollectError: for a marker without a device, or with an unknown device.
    """
    if FIXTURE not in metafunc.fixturenames or _parametrized(metafunc) or _redefined(metafunc):
        return
    try:
        by_marker = [_devices_of_marker(mark) for mark in metafunc.definition.iter_markers(MARKER)]
    except pytest.UsageError as error:
        raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: {error}") from None
    selected = [name for name in names if all(name in allowed for allowed in by_marker)]
    cases: list[Any] = list(selected)
    # Without any case, pytest would skip the test for a reason of its own.
    if not selected:
        reason = f"@pytest.mark.{MARKER} excludes all selected devices: {', '.join(names)}"
        cases = [pytest.param(name, marks=pytest.mark.skip(reason)) for name in by_marker[0]]
    ids = selected or by_marker[0]
    metafunc.parametrize(FIXTURE, cases, indirect=True, scope="class", ids=ids)


def find_misused_markers(items: Iterable[Any]) -> str:
    """Return the mistakes in the tests' device markers, one line each; "" if there are none.

    A marker is a mistake on a test that does not use `graph_device`, because it has no effect
    there. A class or module may be marked for the sake of its tests that use the fixture.

    Args:
        items: collected items; everything except functions is ignored.
    """
    lines = []
    for item in items:
        if not isinstance(item, pytest.Function) or FIXTURE in item.fixturenames:
            continue
        if any(mark.name == MARKER for mark in getattr(item.function, "pytestmark", ())):
            lines.append(
                f"{item.nodeid}: @pytest.mark.{MARKER} has no effect, because the test does not "
                f"use {FIXTURE}: add the argument {FIXTURE}, and capture on it"
            )
    return "\n".join(lines)


def _devices_of_marker(mark: pytest.Mark) -> tuple[str, ...]:
    """Return the devices that a marker names, without duplicates.

    Raises:
        pytest.UsageError: for no device, an unknown device, or a keyword argument.
    """
    source = f"@pytest.mark.{MARKER}"
    if mark.kwargs:
        raise pytest.UsageError(f'{source} takes device names, as in {MARKER}("cpu", "cuda")')
    return _check_names(mark.args, source)


def _parametrized(metafunc: pytest.Metafunc) -> bool:
    """Return True if `@pytest.mark.parametrize` sets the test's devices."""
    for mark in metafunc.definition.iter_markers("parametrize"):
        # "a,b", or a sequence of names.
        names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
        if isinstance(names, str):
            names = names.split(",")
        if FIXTURE in (name.strip() for name in names):
            return True
    return False


def _redefined(metafunc: pytest.Metafunc) -> bool:
    """Return True if the project redefines `graph_device` for this test."""
    # The last definition is the closest one. Without this private name of pytest, none is known.
    by_name: Mapping[str, Sequence[Any]] = getattr(metafunc, "_arg2fixturedefs", {})
    definitions = by_name.get(FIXTURE, ())
    return bool(definitions) and not definitions[-1].func.__module__.startswith(f"{__package__}.")


def select(request: pytest.FixtureRequest, names: Sequence[str], required: bool) -> torch.device:
    """Return the `torch.device` of the running test.

    Args:
        request: the request of the fixture, with the device name as its parameter. A test that
            calls `getfixturevalue` has no parameter; it gets the only device of `names`.
        names: the selected devices.
        required: True if the devices were named on the command line.

    Raises:
        pytest.skip.Exception: if torch cannot use the device, with the reason.
        pytest.fail.Exception: if a required device cannot be used, or if there are several devices
            and no parameter to choose one.
    """
    name = getattr(request, "param", None)
    if name is None:
        if len(names) > 1:
            pytest.fail(
                f"{FIXTURE} has several devices here ({' or '.join(names)}), so the test itself "
                f"must use it: add the argument {FIXTURE} to the test, or select one device with "
                "--torchgraph-devices",
                pytrace=False,
            )
        name = names[0]
    import torch

    reason = why_absent(name)
    if reason is not None:
        if required:
            pytest.fail(
                f"device {name!r} of --torchgraph-devices is not available: {reason}", pytrace=False
            )
        pytest.skip(f"device {name!r} is not available: {reason}")
    return torch.device(name)


def parse(device: Any) -> torch.device:
    """Return the device of an argument `device=`.

    Raises:
        TypeError: if it is not a string, an int or a `torch.device`.
        ValueError: if torch knows no such device, with the known types.
        CaptureError: if this build of torch or this machine lacks the device. torch ends the
            process if a fake tensor on such a device requires grad.
    """
    import torch

    if isinstance(device, bool) or not isinstance(device, str | int | torch.device):
        raise TypeError(
            f"device must be a string, an int or a torch.device, not {type(device).__name__}: pass "
            "a device such as 'cpu' or 'cuda:1'"
        )
    # An int is an index of the accelerator. `torch.device` refuses a negative one.
    if isinstance(device, int) and device >= 0 and not torch.accelerator.is_available():
        raise CaptureError(f"device {device!r} is not available: torch finds no accelerator")
    try:
        parsed = torch.device(device)
    except Exception as error:  # also a warning, if the filters make it an error
        raise ValueError(
            f"unknown device {device!r}: choose from {', '.join(KNOWN)}, as in 'cpu' or 'cuda:1' "
            f"(torch: {error})"
        ) from None
    reason = why_absent(parsed)
    if reason is not None:
        raise CaptureError(f"device {str(parsed)!r} is not available: {reason}")
    return parsed


def why_absent(device: str | torch.device) -> str | None:
    """Return why torch cannot use a device; `None` if it can."""
    import torch

    release = f"torch {torch.__version__}"
    try:
        device = torch.device(device)
    except RuntimeError:  # "npu" is unknown until its package renames "privateuseone"
        return f"{release} does not know it: the package of this backend was not imported"
    if device.type in ("cpu", "meta"):
        return None
    is_mps = device.type == "mps"
    name = "torch.backends.mps" if is_mps else f"torch.{device.type}"
    module: Any = torch.backends.mps if is_mps else getattr(torch, device.type, None)
    if not hasattr(module, "is_available"):
        try:  # there is no `torch.xla`, even if the package of XLA was imported
            torch.empty(0, device=device)
        except Exception:
            return f"{release} has no {name}: the package of this backend was not imported"
        return None
    if not module.is_available():
        return f"{name}.is_available() is False: {release} {_explain_build(device.type)}"
    count = module.device_count() if hasattr(module, "device_count") else 1
    if device.index is not None and device.index >= count:
        return f"{name}.device_count() is {count}"
    return None


def _explain_build(kind: str) -> str:
    """Explain an unavailable device type by the build of torch."""
    import torch

    if kind == "cuda":
        if torch.version.cuda is None and torch.version.hip is None:
            return "is built without CUDA"
        return "is built with CUDA, but finds no usable device or driver"
    if kind == "mps" and not torch.backends.mps.is_built():
        return "is built without MPS"
    return "finds no device"
