"""A refused capture, or a target that raises, leaves nothing changed, or names what it leaves."""

from __future__ import annotations

import contextlib
import functools
import operator
import random
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from mechanisms.models import MECHANISMS, Mlp, example, mlp
from mechanisms.test_training_step import Training, batch, same
from torch import Tensor, nn
from torch_releases import skip_before

from pytest_torchgraph import CaptureError, capture

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _torchs_own_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.slow(
    "Dynamo traces the optimizer", unless=["*dispatch", "AdamW-2-step-fx", "SGD-0-returns-export"]
)
@pytest.mark.parametrize(
    ("optimizer", "stepped", "ends", "via"),
    [
        (*started, ends, via)
        for row, ends in enumerate(["returns", "forward", "step"])
        for column, via in enumerate(MECHANISMS)
        for started in [("SGD", 0), ("AdamW", 2)]
        if via == "dispatch" or ((row + column) % 2 == 0) == (started[1] == 0)
    ],
)
def test_a_training_step_is_undone_bit_by_bit(
    via: str, optimizer: str, stepped: int, ends: str
) -> None:
    if via == "export" and ends == "returns":
        skip_before("2.10", "torch.export takes a training step")
    training, inputs = Training(optimizer, "for"), batch()
    for _ in range(stepped):
        training.step(*inputs)

    def step(x: Tensor, y: Tensor) -> Tensor:
        if ends == "forward":
            training.optimizer.zero_grad()
            raise LookupError(training.model(x).sum())
        loss = training.step(x, y)
        if ends == "step":
            raise LookupError("mine")
        return loss

    kept = [value for values in training.optimizer.state.values() for value in values.values()]
    before = training.state()
    with pytest.raises((CaptureError, LookupError)) as refusal:
        capture(step, *inputs, via=via)
    if via not in ("fx", "export"):
        assert refusal.type is (CaptureError if ends == "returns" else LookupError)
    assert same(before, training.state())
    now = [value for values in training.optimizer.state.values() for value in values.values()]
    assert all(map(operator.is_, now, kept))
    assert len(now) == len(kept)
    training.step(*inputs)  # training continues undisturbed


def test_optimizer_of_parameters_outside_modules_is_restored() -> None:
    weights = [torch.ones(3, requires_grad=True) for _ in range(2)]
    optimizer = torch.optim.SGD(weights, 0.1, momentum=0.9)

    def train(x: Tensor) -> Tensor:
        for weight in weights:
            weight.grad = torch.ones(3)
        optimizer.step()
        return x * 2

    holder = [[[[[train]]]]]  # nested deeper than the search for modules and tensors
    with pytest.raises(CaptureError, match=r"changed its parameters \(parameter 0 of SGD"):
        capture(lambda x: holder[0][0][0][0][0](x), example(3), via="dispatch", backward=False)
    assert all(torch.equal(weight, torch.ones(3)) for weight in weights)
    assert not optimizer.state


def test_optimizer_without_groups_is_ignored() -> None:
    weight = torch.ones(3, requires_grad=True)
    weight.grad = torch.ones(3)
    optimizer = torch.optim.SGD([weight], 0.1)
    # While Dynamo traces a function that creates an optimizer, it creates such an object.
    half_made = object.__new__(torch.optim.SGD)

    def train(x: Tensor) -> Tensor:
        optimizer.step()
        return x * 2

    with pytest.raises(CaptureError, match="changed its parameters"):
        capture(train, torch.ones(3), via="dispatch", backward=False)
    assert not vars(half_made)
    assert torch.equal(weight, torch.ones(3))
    assert weight.grad is not None  # the optimizer steps by the gradient of an earlier backward


def test_optimizer_of_parameters_that_the_target_creates_has_its_own_advice() -> None:
    def target(x: Tensor) -> Tensor:
        parameter = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([parameter], 0.1)
        (parameter * x).sum().backward()
        optimizer.step()
        return parameter.detach() * x

    advice = r"unless the target creates them \(then update them without torch\.optim\)"
    with pytest.raises(CaptureError, match=advice):
        capture(target, torch.ones(3), via="dispatch", backward=False)

    def advised(x: Tensor) -> Tensor:
        parameter = nn.Parameter(torch.ones(3))
        (parameter * x).sum().backward()
        with torch.no_grad():
            parameter.sub_(0.1 * parameter.grad)
        return parameter.detach() * x

    assert capture(advised, torch.ones(3), via="dispatch", backward=False).count("aten.sub_") == 1
    model = nn.Linear(3, 3)
    with pytest.raises(CaptureError, match=r"get a different model\. If the target") as caught:
        capture(lambda x: (model.weight.data.mul_(2), model(x))[1], torch.ones(3), via="dispatch")
    assert "torch.optim" not in str(caught.value)


LARGE = (600, 600)
OTHERS = torch.zeros(LARGE)
"""Above this size (1.4 MB), dispatch copies a parameter only once something may write to it."""


@torch.library.custom_op("refusal::sneaky", mutates_args=())
def sneaky(x: Tensor) -> Tensor:
    x.mul_(2)
    return x * 1


def in_a_thread(weight: Tensor) -> None:
    thread = threading.Thread(target=lambda: weight.detach().mul_(2))
    thread.start()
    thread.join()


WRITES: dict[str, Callable[[Tensor], Any]] = {
    "in place": lambda weight: weight.detach().mul_(2),
    "data": lambda weight: weight.data.mul_(2),
    "through a view": lambda weight: weight.detach().view(-1)[3:5].zero_(),
    "in a list": lambda weight: torch._foreach_mul_([weight.detach()], 2),
    "as out": lambda weight: torch.mul(weight.detach(), 2, out=weight.detach()),
    "memory of others": lambda weight: setattr(weight, "data", OTHERS),
    "undeclared": lambda weight: sneaky(weight.detach()),
    "in a thread": in_a_thread,
    "by numpy": lambda weight: weight.detach().numpy().fill(2),
    "by numpy, through a view": lambda weight: np.asarray(weight.data[1:3]).fill(2),
    "by numpy, from dlpack": lambda weight: (
        torch.from_numpy(np.from_dlpack(weight.detach())).numpy().fill(2)
    ),
}


@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize(("large", "raises"), [(False, True), (True, False)])
def test_written_parameter_is_restored(how: str, large: bool, raises: bool) -> None:
    model = nn.Module()
    model.weight = nn.Parameter(torch.rand(LARGE if large else (6, 6)))
    before, address = model.weight.detach().clone(), model.weight.data_ptr()

    def target(x: Tensor) -> Tensor:
        y = x * model.weight.sum()
        WRITES[how](model.weight)
        if raises:
            raise LookupError("mine")
        return y

    with pytest.raises(LookupError if raises else CaptureError) as refusal:
        capture(target, example(3), via="dispatch", backward=False)
    assert torch.equal(model.weight, before)
    assert model.weight.data_ptr() == address
    assert not OTHERS.any()
    assert "Not restored" not in "".join([str(refusal.value), *notes(refusal.value)])


def notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", ()))


@pytest.mark.parametrize("raises", [False, True])
def test_large_parameter_written_by_an_older_array_is_named(raises: bool) -> None:
    model = nn.Module()
    model.weight = nn.Parameter(torch.rand(LARGE))
    array = model.weight.detach().numpy()

    def target(x: Tensor) -> Tensor:
        array[:] = 2
        if raises:
            raise LookupError("mine")
        return x * model.weight.sum()

    with pytest.raises((CaptureError, LookupError)) as refusal:
        capture(target, example(3), via="dispatch", backward=False)
    said = "".join([str(refusal.value), *notes(refusal.value)])
    assert (
        "Not restored, because they were written without an op, for example by numpy: weight"
        in said
    )


class CastsLayerwise(nn.Linear):
    """Stores its parameters in half precision, as diffusers' `enable_layerwise_casting` does."""

    def __call__(self, x: Tensor) -> Tensor:
        self.to(torch.float32)
        y = super().__call__(x)
        self.to(torch.bfloat16)
        return y


def test_forward_that_casts_its_parameters_and_back_is_not_called_an_optimizer() -> None:
    model = CastsLayerwise(2, 2).to(torch.bfloat16)
    before = model.weight.detach().clone()
    with pytest.raises(CaptureError) as failure:
        capture(model, example(3, 2), via="dispatch", backward=False)
    message = str(failure.value)
    assert "changed its parameters (weight, bias): it gave them different memory" in message
    assert "casts its parameters and casts them back" in message
    assert "weight.to(x.dtype)" in message
    assert "optimizer step" not in message
    assert torch.equal(model.weight, before)


def test_sign_of_zero_is_restored() -> None:
    x = torch.zeros(3)
    capture(lambda x: x.neg_() + 1, x, via="dispatch")
    assert not torch.signbit(x).any()


def test_a_parameter_that_is_nan_or_empty_is_not_changed() -> None:
    model = nn.Linear(2, 2)
    nn.init.constant_(model.weight, float("nan"))
    model.empty = nn.Parameter(torch.ones(0, 3))
    capture(lambda x: (model.empty.data.mul_(2), model(x))[1], example(3, 2), via="dispatch")


class Counted(Mlp):
    """Changes Python attributes, and raises on request."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.seen: list[int] = []
        self.raises = False

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen.append(len(x))
        self.fresh = True
        if self.raises:
            raise LookupError("mine")
        return super().forward(x)


def test_python_values_that_stay_changed_are_named() -> None:
    model = Counted()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def train(x: Tensor) -> Tensor:
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    with pytest.raises(
        CaptureError, match=r"were not restored: `calls` was 0, and is now "
    ) as refusal:
        capture(train, example(4, 8), via="dispatch")
    said = "\n".join([str(refusal.value), *notes(refusal.value)])
    assert "not effects outside of torch, such as written files" in said
    assert "`seen` was []" in said
    assert "`fresh` was missing, and is now True" in said
    model.raises = True
    with pytest.raises(LookupError) as raised:
        capture(model, example(4, 8), via="dispatch")
    assert str(raised.value) == "'mine'" or str(raised.value) == "mine"
    assert any("`calls` was " in note for note in notes(raised.value))


@pytest.mark.slow("compiles several models")
def test_torch_compile_mark_on_a_module_is_removed() -> None:
    model = mlp()
    before = set(vars(model))
    capture(model, example(4, 8), via="aot")
    assert set(vars(model)) == before
    torch.compile(model)
    marked = set(vars(model))
    capture(model, example(4, 8), via="aot")
    assert set(vars(model)) == marked


@pytest.mark.parametrize("via", ["aot", "dispatch"])
def test_plain_tensors_and_generators_are_restored(via: str) -> None:
    cache, caches = torch.ones(2**19), [torch.ones(4)]
    generator = torch.Generator().manual_seed(1)
    state = generator.get_state()

    def function(x: Tensor) -> Tensor:
        drawn = torch.rand(4, generator=generator)
        return x * drawn * cache.add_(1)[:4] * caches[0].add_(1)

    capture(function, torch.ones(4), via=via).assert_matches_eager()
    assert cache.eq(1).all()
    assert caches[0].eq(1).all()
    assert generator.get_state().equal(state)


GLOBAL, BY_KEY = torch.ones(4), {"w": torch.ones(4)}
OBJECT = SimpleNamespace(inner=SimpleNamespace(w=torch.ones(4)))
SCALE = nn.Parameter(torch.ones(4))
NORMS = {"norm": nn.BatchNorm1d(4)}


def _write(tensor: Tensor, x: Tensor) -> Tensor:
    with torch.no_grad():
        tensor.add_(1)
    return x * tensor


def _in_helper(x: Tensor) -> Tensor:
    return _write(GLOBAL, x)


def _wrapped(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    @functools.wraps(function)
    def wrapper(x: Tensor) -> Tensor:
        return function(x)

    return wrapper


_first = _wrapped(_in_helper)
_second = _wrapped(lambda x: _first(x))
_third = _wrapped(lambda x: _second(x))


class _WritesGlobal(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return _in_helper(x)


class _Callable:
    def __call__(self, x: Tensor) -> Tensor:
        return _in_helper(x)


def _in_nested_function(x: Tensor) -> Tensor:
    def nested() -> Tensor:
        return _write(BY_KEY["w"], x)

    return nested()


def _in_module(x: Tensor) -> Tensor:
    return cast(Tensor, NORMS["norm"](x * torch.arange(3.0)[:, None]))


@pytest.mark.parametrize(
    "target",
    [
        _in_helper,
        lambda x: _third(x),
        _WritesGlobal(),
        _Callable(),
        lambda x: _write(BY_KEY["w"], x),
        lambda x: _write(OBJECT.inner.w, x),
        _in_nested_function,
        _in_module,
        lambda x: _write(SCALE, x),
        lambda x: ((x * SCALE).sum().backward(), x * 2)[1],
        lambda x: (setattr(SCALE, "grad", None), x * SCALE)[1],
    ],
)
def test_tensors_that_globals_reach_are_restored(target: Any) -> None:
    SCALE.grad = torch.full((4,), 3.0)
    norm = cast(Tensor, NORMS["norm"].running_mean)
    tensors = [GLOBAL, BY_KEY["w"], OBJECT.inner.w, SCALE, norm, SCALE.grad]
    before = [(tensor.detach().clone(), tensor._version) for tensor in tensors]
    capture(target, torch.ones(4), via="dispatch").assert_matches_eager()
    assert SCALE.grad is tensors[-1]
    for tensor, (value, version) in zip(tensors, before, strict=True):
        assert torch.equal(tensor, value)
        assert tensor._version == version


def test_parameter_argument_is_restored() -> None:
    scale = nn.Parameter(torch.ones(4))
    capture(_write, scale, torch.ones(4), via="dispatch").assert_matches_eager()
    assert torch.equal(scale, torch.ones(4))


def test_large_sparse_tensor_in_a_closure_is_captured() -> None:
    sparse = torch.eye(600).to_sparse()
    assert sparse.to_dense().nbytes > 2**20
    graphs = capture(lambda x: torch.mm(sparse, x), torch.ones(600, 1), via="dispatch").graphs
    assert len(graphs) == 1


def test_modules_of_helper_functions_rename_no_input() -> None:
    model = nn.Linear(4, 4)
    names = [
        node.name
        for target in (model, lambda x: _in_module(model(x)[0]))
        for node in capture(target, torch.ones(3, 4), via="aot").graphs[0].inputs
    ]
    assert names.count("weight") == 2


class _Slots:
    __slots__ = ("member",)

    def __init__(self, member: Any) -> None:
        self.member = member


def _by_keyword(held: Any) -> Any:
    def target(x: Tensor, *, held: Any = held) -> Tensor:
        return x * _use(held)

    return target


def _of_object(held: Any) -> Any:
    slots = _Slots(held)
    return lambda x: x * _use(slots.member)


def _in_a_deque(held: Any) -> Any:
    held_values = deque([held])
    return lambda x: x * _use(held_values[0])


def _of_a_module(held: Any) -> Any:
    model = nn.Identity()
    model.held = held
    return lambda x: model(x) * _use(model.held)


def _use(held: Any) -> Any:
    """Write to a tensor, or draw from a generator."""
    if isinstance(held, Tensor):
        return held.add_(1).clone()
    if isinstance(held, torch.Generator):
        return torch.rand(3, generator=held)
    return torch.tensor(float(held.random()))


HELD: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "tensor": (lambda: torch.zeros(3), Tensor.tolist),
    "torch": (lambda: torch.Generator().manual_seed(1), lambda held: held.get_state().tolist()),
    "random.Random": (lambda: random.Random(1), random.Random.getstate),
    "numpy": (lambda: np.random.default_rng(1), lambda held: held.bit_generator.state),
}


@pytest.mark.parametrize("place", [_by_keyword, _of_object, _in_a_deque, _of_a_module, None])
@pytest.mark.parametrize("kind", HELD)
def test_tensors_and_generators_that_the_target_holds_are_restored(kind: str, place: Any) -> None:
    make, state = HELD[kind]
    held = make()
    before = state(held)
    if place is None:
        seen = capture(lambda x, held: x * _use(held), torch.ones(3), held, via="dispatch")
    else:
        seen = capture(place(held), torch.ones(3), via="dispatch")
    assert state(held) == before
    seen.assert_matches_eager()
    assert state(held) == before


MEMBERS: dict[str, Callable[[Tensor], Tensor]] = {
    "coo": Tensor.to_sparse,
    "uncoalesced": lambda eye: torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 2)),
    "csr": Tensor.to_sparse_csr,
    "csc": Tensor.to_sparse_csc,
    "bsr": lambda eye: eye.to_sparse_bsr((1, 1)),
    "expanded": lambda eye: eye[:1].expand(2, 2),
}
MEMBER_WRITES: dict[str, Callable[[Tensor], Any]] = {
    "in place": lambda t: (t[0] if t.layout is torch.strided else t).mul_(2),
    "its values": lambda t: (t._values() if t.layout is torch.sparse_coo else t.values()).mul_(2),
    "to zero": lambda t: (t[0] if t.layout is torch.strided else t).zero_(),
}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(
    ("member", "write"),
    [(m, w) for m in MEMBERS for w in MEMBER_WRITES if (m, w) != ("expanded", "its values")],
)
def test_sparse_and_expanded_arguments_are_restored(member: str, write: str) -> None:
    raises = write == "to zero"

    def target(x: Tensor, other: Tensor) -> Tensor:
        MEMBER_WRITES[write](other)
        if raises:
            raise ValueError("mine")
        return x * 2

    other = MEMBERS[member](torch.eye(2))
    values = other._values() if other.layout is torch.sparse_coo else other
    before = other.to_dense().clone()
    with pytest.raises(ValueError, match="mine") if raises else contextlib.nullcontext():
        capture(target, torch.ones(2), other, via="dispatch").assert_matches_eager()
    assert torch.equal(other.to_dense(), before)
    if other.layout is torch.sparse_coo:
        assert other._values().data_ptr() == values.data_ptr()  # type: ignore[no-untyped-call]


class Unwritable(Tensor):
    """A tensor that torch cannot restore."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.copy_:
            raise RuntimeError("read\nonly")
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize("raises", [False, True])
def test_tensor_that_cannot_be_restored_is_named_and_the_others_are_restored(raises: bool) -> None:
    def target(x: Tensor, first: Tensor, last: Tensor) -> Tensor:
        first.add_(1)
        last.add_(1)
        if raises:
            raise ValueError("mine")
        return x * 2

    first, last = torch.zeros(3).as_subclass(Unwritable), torch.zeros(3)
    with pytest.raises(ValueError if raises else CaptureError) as caught:
        capture(target, torch.ones(3), first, last, via="dispatch")
    notes = getattr(caught.value, "__notes__", [])
    message = "\n".join([str(caught.value), *notes])
    assert "torch refused to restore a tensor of shape (3,): read?only" in message
    assert ("mine" in message) is raises
    assert not last.any()


@pytest.mark.slow("compiles several models")
def test_second_capture_of_an_argument_with_a_graph_names_the_remedy() -> None:
    hidden = nn.Embedding(10, 4)(torch.tensor([[1, 2]]))
    block = nn.Linear(4, 4)
    capture(block, hidden)
    message = r"freed the graph that computed input\. .* pass input\.detach\(\)\.requires_grad_\(\)"
    with pytest.raises(CaptureError, match=message):
        capture(block, hidden)
    remedy = hidden.detach().requires_grad_()
    capture(block, remedy).assert_matches_eager()
    capture(block, remedy)


class _Written(nn.Module):
    """A module that writes a result with a graph into a plain tensor and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.cache = torch.zeros(4)
        self.register_buffer("buffer", torch.zeros(4))

    def forward(self, x: Tensor, out: Tensor) -> Tensor:
        for tensor in (self.cache, self.buffer, out):
            tensor.copy_(self.linear(x))
        return self.cache + self.buffer + out


@pytest.mark.slow("another mechanism", only=["aot"])
@pytest.mark.parametrize("via", ["aot", "dispatch"])
def test_tensors_written_with_a_graph_have_none_afterwards(via: str) -> None:
    module, out = _Written(), torch.zeros(4)
    for _ in range(2):  # with the graph of the first capture, the second could not run its backward
        capture(module, torch.ones(4), out, via=via).assert_matches_eager()
        for tensor in (module.cache, module.buffer, out):
            assert tensor.equal(torch.zeros(4))
            assert not tensor.requires_grad
