"""Sixteen floats at a time in compiled code: a cache line of an embedding row is one value.

Left to itself the compiler makes poor loops of rows this short: it does not know that they are whole lines,
and keeps sums over many rows in memory. With lines the sums stay in registers. LLVM splits a line into the
vectors that the processor has. Rows are C-contiguous float32[rows, columns] with columns a multiple of LINE.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils as _cgutils
from numba.core import types
from numba.extending import intrinsic as _intrinsic
from numba.extending import models as _models
from numba.extending import register_model
from numba.np.arrayobj import make_array as _make_array

# Numba says nothing about the types of these
cgutils: Any = _cgutils
intrinsic: Any = _intrinsic
models: Any = _models
make_array: Any = _make_array

LINE = 16  # floats
_FAST = ("contract", "reassoc", "nsz", "arcp")  # NaN and infinity keep their meaning
_VECTOR = ir.VectorType(ir.FloatType(), LINE)
_NUMBER = ir.IntType(32)
_TINY = 1e-10  # what PyTorch's Adagrad adds to the root


class LineType(types.Type):
    """The type of a line; its values exist in compiled code only."""

    def __init__(self) -> None:
        super().__init__(name="Line")


_KIND = LineType()


@register_model(LineType)
class _LineModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


def _place(context: Any, builder: Any, array_type: Any, array: Any, row: Any, column: Any) -> Any:
    """The address of array[row, column]."""
    data = make_array(array_type)(context, builder, array)
    width = builder.extract_value(data.shape, 1)
    place = builder.gep(data.data, [builder.add(builder.mul(row, width), column)])
    return builder.bitcast(place, _VECTOR.as_pointer())


@intrinsic  # type: ignore[untyped-decorator]
def _load_line(typing: Any, array: Any, row: Any, column: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_place(context, builder, signature.args[0], *args), align=4)

    return _KIND(array, types.intp, types.intp), code


@intrinsic  # type: ignore[untyped-decorator]
def _store_line(typing: Any, array: Any, row: Any, column: Any, line: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[3], _place(context, builder, signature.args[0], *args[:3]), align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, _KIND), code


@intrinsic  # type: ignore[untyped-decorator]
def _fetch_line(typing: Any, array: Any, row: Any, column: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, _NUMBER, _NUMBER, _NUMBER])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        address = builder.bitcast(_place(context, builder, signature.args[0], *args), byte)
        builder.call(prefetch, [address, _NUMBER(0), _NUMBER(3), _NUMBER(1)])  # to read; keep; data
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp), code


@intrinsic  # type: ignore[untyped-decorator]
def _same(typing: Any, value: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), args[0], _NUMBER(0))
        mask = ir.Constant(ir.VectorType(_NUMBER, LINE), [0] * LINE)
        return builder.shuffle_vector(one, one, mask)

    return _KIND(types.float32), code


@intrinsic  # type: ignore[untyped-decorator]
def _add_product(typing: Any, total: Any, left: Any, right: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fadd(args[0], builder.fmul(args[1], args[2], flags=_FAST), flags=_FAST)

    return _KIND(_KIND, _KIND, _KIND), code


@intrinsic  # type: ignore[untyped-decorator]
def _total(typing: Any, line: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number = ir.FloatType()
        kind = ir.FunctionType(number, [number, _VECTOR])
        reduce = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.fadd.v{LINE}f32")
        return builder.call(reduce, [number(0.0), args[0]], fastmath=_FAST)

    return types.float32(_KIND), code


@intrinsic  # type: ignore[untyped-decorator]
def _over_root(typing: Any, line: Any, squares: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_VECTOR, [_VECTOR])
        root = cgutils.get_or_insert_function(builder.module, kind, f"llvm.sqrt.v{LINE}f32")
        tiny = ir.Constant(_VECTOR, [_TINY] * LINE)
        return builder.fdiv(args[0], builder.fadd(builder.call(root, [args[1]]), tiny))

    return _KIND(_KIND, _KIND), code


load_line: Any = _load_line  # (array, row, column) -> Line: array[row, column : column + 16]
store_line: Any = _store_line  # (array, row, column, Line)
fetch_line: Any = _fetch_line  # (array, row, column): ask the memory for a line, without waiting for it
same: Any = _same  # (number) -> Line of sixteen equal ones
add_product: Any = _add_product  # (Line a, Line b, Line c) -> a + b·c
total: Any = _total  # (Line) -> the sum of its floats
over_root: Any = _over_root  # (Line a, Line b) -> a / (√b + 10⁻¹⁰)
