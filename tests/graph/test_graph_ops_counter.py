"""`OpCounts` together with plain counters."""

from __future__ import annotations

import operator
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_torchgraph import OpCounts


def test_op_counts_compare_with_counters_of_different_ops() -> None:
    ours = OpCounts({"aten.mm.default": 2})
    other = Counter({"aten.add.Tensor": 1})
    assert ours != other
    assert other != ours
    assert ours == Counter({"aten.mm.default": 2})
    assert ours == {"aten.mm.default": 2}
    assert other - ours == other
    assert ours - other == {"aten.mm.default": 2}


# A key can be a packet's own name, at levels where ops have no overloads. Looking it up sums.
OPS = st.sampled_from(["aten.mm", "aten.mm.default", "aten.mm.out", "aten.add.Tensor", "relu"])
COUNTS = st.dictionaries(OPS, st.integers(-2, 3))
ARITHMETIC = [operator.add, operator.sub, operator.and_, operator.or_]
IN_PLACE = [operator.iadd, operator.isub, operator.iand, operator.ior]
ORDER = [operator.lt, operator.le, operator.gt, operator.ge]


@pytest.mark.parametrize("operate", [*ARITHMETIC, *IN_PLACE, *ORDER])
@settings(max_examples=20)
@given(a=COUNTS, b=COUNTS)
def test_op_counts_arithmetic_equals_counter_arithmetic(operate, a, b) -> None:
    expected = operate(Counter(a), Counter(b))
    found = [operate(OpCounts(a), OpCounts(b)), operate(OpCounts(a), Counter(b))]
    if operate not in IN_PLACE:  # in-place, the left side stays a Counter
        found.append(operate(Counter(a), OpCounts(b)))
    for each in found:
        assert each == expected
        assert type(each) is (bool if operate in ORDER else OpCounts)
    assert type(+OpCounts(a)) is type(-OpCounts(a)) is OpCounts


def test_op_counts_of_captures_can_be_summed() -> None:
    total = sum((OpCounts({"aten.mm.default": 2}), OpCounts({"aten.mm.out": 1})), Counter())

    assert total["aten.mm"] == 3
    with pytest.raises(KeyError, match=r"'aten\.add' does not occur; ops: aten\.mm\.default"):
        total["aten.add"]
