"""Launches in generated code, read from texts in inductor's format."""

from __future__ import annotations

import pytest

from pytest_torchgraph.watching import Kernel, Origin, kernels_of
from pytest_torchgraph.watching.output_code import UnreadableCodeError

HEAD = """
from torch._inductor.select_algorithm import extern_kernels
aten = torch.ops.aten
inductor_ops = torch.ops.inductor
reinterpret_tensor = torch._C._dynamo.guards._reinterpret_tensor
empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda
alloc_from_pool = torch.ops.inductor._alloc_from_pool
async_compile = AsyncCompile()
triton_poi_fused_add_0 = async_compile.triton('triton_poi_fused_add_0', '''
import triton
@triton.jit
def kernel(): pass
''', device_str='cuda')
"""


def read(code: str) -> list[Kernel]:
    return kernels_of(HEAD + code, "forward")


def launches(code: str) -> list[tuple[str, int]]:
    return [(kernel.name, kernel.launches) for kernel in read(code)]


def test_a_triton_kernel() -> None:
    (kernel,) = read("def call(args):\n    triton_poi_fused_add_0.run(args, stream=stream0)\n")
    assert (kernel.kind, kernel.device, kernel.launches) == ("triton", "cuda", 1)
    assert kernel.ops == ("aten.add",)
    assert "@triton.jit" in kernel.source
    assert not kernel.is_extern


def test_library_calls_in_each_form() -> None:
    called = [
        each
        for each in read("""
def call(args):
    arg0_1, = args
    buf0 = empty_strided_cuda((6, 6), (6, 1), torch.float32)
    extern_kernels.mm(arg0_1, reinterpret_tensor(arg0_1, (8, 6), (1, 8), 0), out=buf0)
    buf1 = torch.ops.aten.sort.stable(buf0, stable=True)
    aten.randint.low_out(-9, 9, [1], out=buf0)
    aten.scatter_reduce_.two(buf0, 1, buf1, buf1, reduce='sum')
    extern_kernels.bias_addmm(arg0_1, buf0, buf1, out=buf0)
    inductor_ops.accumulate_grad_(buf0, buf1)
    torch.ops.mylib.foo.default(buf0)
    buf0.copy_(arg0_1, False)
""")
        if each.is_extern
    ]
    assert [kernel.ops for kernel in called] == [
        ("aten.mm",),
        ("aten.sort",),
        ("aten.randint",),
        ("aten.scatter_reduce_",),
        ("aten.addmm",),
        ("inductor.accumulate_grad_",),
        ("mylib.foo",),
        ("aten.copy_",),
    ]
    assert called[0].name == "extern_kernels.mm"
    assert called[0].source.startswith("extern_kernels.mm(arg0_1, ")
    assert called[1].name == "torch.ops.aten.sort.stable"
    assert {kernel.device for kernel in called} == {"cuda"}
    assert {kernel.kind for kernel in called} == {"extern"}


def test_output_code_without_a_launch_has_no_library_call() -> None:
    assert launches("""
def call(args):
    arg0_1, = args
    args.clear()
    assert_size_stride(arg0_1, (6, 8), (8, 1), 'input')
    buf0 = alloc_from_pool(pool1, 0, torch.float32, (6,), (1,))
    buf1 = aten.as_strided(buf0, (2,), (1,))
    buf2 = torch.ops.aten.view.dtype(buf1, torch.int32)
    buf3 = torch.ops._c10d_functional.wait_tensor.default(buf2)
    u0 = buf3.item()
    torch.ops.aten._assert_scalar.default(u0 > 1, 'positive')
    return (buf3, )
""") == [("triton_poi_fused_add_0", 0)]


def test_devices_of_two_kinds() -> None:
    kernels = read("""
def call(args):
    arg0_1, = args
    buf0 = empty_strided_cpu((6, 6), (6, 1), torch.float32)
    buf1 = empty_strided_cuda((6, 6), (6, 1), torch.float32)
    extern_kernels.mm(arg0_1, buf0, out=buf1)
    torch.ops.mylib.foo.default(arg0_1)
    buf0.copy_(buf1, False)
    torch.ops.mylib.bar.default(buf9)
def get_args():
    arg0_1 = rand_strided((6, 8), (8, 1), device='cpu', dtype=torch.float32)
""")
    assert [kernel.device for kernel in kernels[:4]] == ["cuda", "cpu", "cpu", ""]


def test_output_code_outside_call_is_not_counted() -> None:
    assert launches("""
def call(args):
    triton_poi_fused_add_0.run(args)
def benchmark_compiled_module(args):
    extern_kernels.mm(args)
    triton_poi_fused_add_0.run(args)
""") == [("triton_poi_fused_add_0", 1)]


def test_a_body_counts_for_each_call_of_it() -> None:
    assert launches("""
def repeated(args):
    extern_kernels.mm(args)
    triton_poi_fused_add_0.run(args)
class Runner:
    def call(self, args):
        triton_poi_fused_add_0.run(args)
        buf0 = repeated(args)
        buf1 = repeated(args)
""") == [("triton_poi_fused_add_0", 3), ("extern_kernels.mm", 2)]


def test_partitions_for_cuda_graphs_are_followed() -> None:
    assert launches("""
def partition_0(args):
    triton_poi_fused_add_0.run(args)
    extern_kernels.mm(args)
def partition_1(args):
    triton_poi_fused_add_0.run(args)
class Runner:
    def call(self, args):
        (buf0,) = self.partitions[0](partition0_args)
        buf1 = torch.ops.mylib.foo.default(buf0)
        (buf2,) = self.partitions[1](partition1_args)
runner = Runner(partitions=[partition_0, partition_1])
""") == [
        ("triton_poi_fused_add_0", 2),
        ("extern_kernels.mm", 1),
        ("torch.ops.mylib.foo.default", 1),
    ]


def test_alternatives_are_one_kernel() -> None:
    assert launches("""
other = async_compile.triton('other', 'short', device_str='cuda')
multi_kernel_0 = async_compile.multi_kernel('multi_kernel_0', [triton_poi_fused_add_0, other])
def call(args):
    multi_kernel_0.run(args)
""") == [("multi_kernel_0", 1)]
    (kernel,) = read("""
multi_kernel_0 = async_compile.multi_kernel('multi_kernel_0', [triton_poi_fused_add_0])
def call(args):
    multi_kernel_0.run(args)
""")
    assert (kernel.kind, kernel.device) == ("triton", "cuda")
    assert "@triton.jit" in kernel.source


def test_kernel_origins_are_assigned_by_order() -> None:
    code = "def call(args):\n    extern_kernels.mm(a)\n    extern_kernels.bmm(b)\n"
    code += "    extern_kernels.mm(c)\n"
    origins = [
        Origin(name, (module,))
        for name, module in (("mm", "first"), ("bmm", "second"), ("mm", "third"))
    ]
    origins = [Origin(f"extern_kernels.{each.name}", each.modules) for each in origins]
    found = kernels_of(HEAD + code, "forward", origins)
    assert [each.modules for each in found[:3]] == [("first",), ("second",), ("third",)]
    # There is one origin fewer than kernels: assigning them would be a guess.
    assert [each.modules for each in kernels_of(HEAD + code, "forward", origins[1:])[:3]] == [
        (),
        ("second",),
        (),
    ]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("cpp_wrapper_src = r'''\n#include <x>\n'''\ndef call(args): pass", "cpp_wrapper"),
        ("x = 1", "cpp_wrapper"),
        ('extern "C" void kernel() {}', "not Python .*: 'extern"),
    ],
)
def test_other_code_is_refused(code: str, message: str) -> None:
    with pytest.raises(UnreadableCodeError, match=message):
        kernels_of(code, "forward")
