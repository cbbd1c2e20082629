"""Sixteen floats at a time in compiled code: a cache line of an embedding row is one value.

Left to itself the compiler makes poor loops of rows this short: it does not know that they are whole lines,
and keeps sums over many rows in memory. With lines the sums stay in registers. LLVM splits a line into the
vectors that the processor has. Rows are C-contiguous float32[rows, columns] with columns a multiple of LINE.
"""

# Numba says nothing about the types of most of these
# mypy: allow-untyped-calls
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.base import BaseContext
from numba.core.datamodel.manager import DataModelManager
from numba.core.typing.templates import Signature
from numba.extending import intrinsic, models, register_model
from numba.np.arrayobj import make_array

Made = tuple[Signature, object]  # the types of an intrinsic, and the function that writes its code
code_writer: Callable[[Callable[..., Made]], Any] = (
    intrinsic  # in compiled code it is called without `typing`
)

LINE = 16  # floats
_FAST = ("contract", "reassoc", "nsz", "arcp")  # NaN and infinity keep their meaning
_VECTOR = ir.VectorType(ir.FloatType(), LINE)
_NUMBER = ir.IntType(32)
_TINY = 1e-10  # what PyTorch's Adagrad adds to the root


class Line(types.Type):
    """The type of a line; its values exist in compiled code only."""

    def __init__(self) -> None:
        super().__init__(name="Line")


_KIND = Line()


@register_model(Line)
class _LineModel(models.PrimitiveModel):
    def __init__(self, manager: DataModelManager, kind: types.Type) -> None:
        super().__init__(manager, kind, _VECTOR)


def _place(
    context: BaseContext,
    builder: ir.IRBuilder,
    kind: types.Array,
    array: ir.Value,
    row: ir.Value,
    column: ir.Value,
) -> ir.Value:
    """The address of array[row, column]."""
    data = make_array(kind)(context, builder, array)
    width = builder.extract_value(data.shape, 1)
    place = builder.gep(data.data, [builder.add(builder.mul(row, width), column)])
    return builder.bitcast(place, _VECTOR.as_pointer())


@code_writer
def load_line(typing: BaseContext, array: types.Type, row: types.Type, column: types.Type) -> Made:
    """array[row, column : column + 16]."""

    def code(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: list[ir.Value]
    ) -> ir.Value:
        return builder.load(_place(context, builder, signature.args[0], *args), align=4)

    return _KIND(array, types.intp, types.intp), code


@code_writer
def store_line(
    typing: BaseContext, array: types.Type, row: types.Type, column: types.Type, line: types.Type
) -> Made:
    """array[row, column : column + 16] = line."""

    def code(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: list[ir.Value]
    ) -> ir.Value:
        builder.store(args[3], _place(context, builder, signature.args[0], *args[:3]), align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, _KIND), code


@code_writer
def fetch_line(typing: BaseContext, array: types.Type, row: types.Type, column: types.Type) -> Made:
    """Ask the memory for a line, without waiting for it."""

    def code(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: list[ir.Value]
    ) -> ir.Value:
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, _NUMBER, _NUMBER, _NUMBER])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        address = builder.bitcast(_place(context, builder, signature.args[0], *args), byte)
        builder.call(prefetch, [address, _NUMBER(0), _NUMBER(3), _NUMBER(1)])  # to read; keep; data
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp), code


@code_writer
def same(typing: BaseContext, value: types.Type) -> Made:
    """A line of sixteen equal numbers."""

    def code(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: list[ir.Value]
    ) -> ir.Value:
        one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), args[0], _NUMBER(0))
        mask = ir.Constant(ir.VectorType(_NUMBER, LINE), [0] * LINE)
        return builder.shuffle_vector(one, one, mask)

    return _KIND(types.float32), code


@code_writer
def add_product(typing: BaseContext, a: types.Type, b: types.Type, c: types.Type) -> Made:
    """a + b·c."""

    def code(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: list[ir.Value]
    ) -> ir.Value:
        return builder.fadd(args[0], builder.fmul(args[1], args[2], flags=_FAST), flags=_FAST)

    return _KIND(_KIND, _KIND, _KIND), code


@code_writer
def total(typing: BaseContext, line: types.Type) -> Made:
    """The sum of a line's floats."""

    def code(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: list[ir.Value]
    ) -> ir.Value:
        number = ir.FloatType()
        kind = ir.FunctionType(number, [number, _VECTOR])
        reduce = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.fadd.v{LINE}f32")
        return builder.call(reduce, [number(0.0), args[0]], fastmath=_FAST)

    return types.float32(_KIND), code


@code_writer
def over_root(typing: BaseContext, a: types.Type, b: types.Type) -> Made:
    """a / (√b + 10⁻¹⁰)."""

    def code(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: list[ir.Value]
    ) -> ir.Value:
        kind = ir.FunctionType(_VECTOR, [_VECTOR])
        root = cgutils.get_or_insert_function(builder.module, kind, f"llvm.sqrt.v{LINE}f32")
        tiny = ir.Constant(_VECTOR, [_TINY] * LINE)
        return builder.fdiv(args[0], builder.fadd(builder.call(root, [args[1]]), tiny))

    return _KIND(_KIND, _KIND), code
