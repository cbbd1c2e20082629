"""IdMap: the caller's ids (strings, integers, UUIDs) <-> codes 0 … n-1 for arrays."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from truepair.errors import InputError
from truepair.storage.types import Array, Ids

Codes = npt.NDArray[np.int64]


def pair_keys(users: Array, items: Array, n_items: int) -> Codes:
    """user·n_items + item, in 64 bits whatever the codes have."""
    keys = np.multiply(users, n_items, dtype=np.int64)
    return np.asarray(np.add(keys, items, out=keys if keys.ndim and keys.shape == items.shape else None))


def canonical_ids(values: Ids, what: str = "id") -> pa.Array:
    """`values` as one Arrow array of int64, uint64, large_string, large_binary or uuid; nulls stay null.

    Integers of any width become int64, text of any Arrow layout becomes large_string, and floats that
    are all whole become integers: pandas stores integers with missing values as floats.
    """
    array = to_arrow(values, f"{what} ids")
    kind = array.type
    if pa.types.is_null(kind):
        return pa.nulls(len(array), pa.int64())
    if pa.types.is_integer(kind):
        found = cast_or_none(array, pa.int64())
        return array.cast(pa.uint64()) if found is None else found  # above 2^63 - 1
    if pa.types.is_floating(kind):
        return _whole_floats(array, what)
    if is_text(kind) or kind == pa.uuid():
        return array
    if pa.types.is_fixed_size_binary(kind) or kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        return array.cast(pa.large_binary())
    raise InputError(f"{what} ids of type {kind} cannot be used; give integers, strings or UUIDs.")


def cast_or_none(array: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The array as one of this type; None if a value cannot be of it."""
    try:
        return array.cast(kind)
    except pa.ArrowInvalid:
        return None


def to_arrow(values: Ids, what: str) -> pa.Array:
    """`values` (a list, a NumPy, pandas, polars or Arrow array) as one Arrow array; NaN becomes null.

    Categories become their values, and text becomes large_string.
    """
    if isinstance(values, pa.ChunkedArray):
        kind = plain_type(values.type)
        return pa.chunked_array([to_arrow(chunk, what) for chunk in values.chunks], kind).combine_chunks()
    if isinstance(values, pa.DictionaryArray):
        return to_arrow(values.dictionary, what).take(values.indices)
    if isinstance(values, pa.Array):
        if values.null_count and values.type in (pa.string_view(), pa.binary_view()):
            values = _with_empty_nulls(values)
        return values.cast(plain_type(values.type)) if is_text(values.type) else values
    if isinstance(values, IdMap):
        return values.ids
    if isinstance(values, str | bytes):
        raise InputError(f"{what} must be a list or an array, not the single value {values!r}.")
    try:
        if not isinstance(values, np.ndarray) and hasattr(values, "__arrow_c_stream__"):
            return to_arrow(pa.chunked_array(values), what)
        return to_arrow(_infer(values), what)
    except UnicodeEncodeError as error:  # a lone surrogate, as Python makes of a file name's odd bytes
        raise InputError(f"{what} holds text that is no Unicode ({error}); correct it.") from error
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise InputError(f"{what} must be 1-D and of one kind, all integers or all text: {error}.") from error


def _with_empty_nulls(array: pa.Array) -> pa.Array:
    """The same views, empty where a value is null.

    Arrow does not validate the views of nulls, and its casts read them: in a damaged file they may lead
    anywhere.
    """
    valid = np.asarray(array.is_valid())
    _, views, *data = array.buffers()
    kept = np.frombuffer(views, np.int64, 2 * len(array), 16 * array.offset).reshape(-1, 2).copy()
    kept[~valid] = 0
    bits = np.packbits(valid, bitorder="little")
    return pa.Array.from_buffers(array.type, len(array), [pa.py_buffer(bits), pa.py_buffer(kept), *data])


def is_text(kind: pa.DataType) -> bool:
    """Whether `kind` is one of Arrow's string layouts."""
    return kind in (pa.string(), pa.large_string(), pa.string_view())


@dataclass(frozen=True, eq=False, repr=False)
class IdMap:
    """The distinct ids in sorted order; the code of an id is its position in that order.

    Because ids are sorted, codes do not depend on the order of the rows.

    >>> ids = IdMap.of(["b", "a", "b"])
    >>> ids.codes(["b", "a"]), ids.outside([0, 1]).to_pylist()
    (array([1, 0]), ['a', 'b'])
    """

    ids: pa.Array

    @staticmethod
    def of(values: Ids, what: str = "id") -> IdMap:
        """The map of the distinct ids in `values`."""
        array = _present_ids(values, what)
        distinct = _distinct(array)
        return IdMap(distinct.take(pc.sort_indices(storage_of(distinct))))

    @staticmethod
    def encode(values: Ids, what: str = "id") -> tuple[IdMap, npt.NDArray[np.int32]]:
        """The map of the distinct ids in `values`, and the code of each value.

        >>> IdMap.encode(["b", "a", "b"])[1]
        array([1, 0, 1], dtype=int32)
        """
        array = _present_ids(values, what)
        if pa.types.is_integer(array.type) and (found := _encode_dense(array)) is not None:
            return found
        encoded = storage_of(array).dictionary_encode()
        order = pc.sort_indices(encoded.dictionary)
        codes = np.empty(len(order), dtype=np.int32)
        codes[order.to_numpy()] = np.arange(len(order), dtype=np.int32)
        return IdMap(restored(encoded.dictionary.take(order), array.type)), codes[encoded.indices.to_numpy()]

    @staticmethod
    def range(n: int) -> IdMap:
        """The ids 0 … n-1, for matrices whose rows have no names."""
        return IdMap(pa.array(np.arange(n, dtype=np.int64)))

    def codes(self, values: Ids, what: str = "id") -> Codes:
        """The codes of `values`; an unknown id raises an error that names it."""
        array = canonical_ids(values, what)
        codes = self.find(array, what)
        if (codes < 0).any():
            unknown = _distinct(array.filter(pa.array(codes < 0)))
            shown = ", ".join(repr(x) for x in unknown.slice(0, 5).to_pylist())
            more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
            raise InputError(f"unknown {what}: {shown}{more}; the {len(self)} known are {self._sample()}.")
        return codes

    def find(self, values: Ids, what: str = "id") -> Codes:
        """The codes of `values`; -1 for an unknown id."""
        array = _cast_ids(canonical_ids(values, what), self.ids.type, what)
        found = pc.index_in(storage_of(array), value_set=storage_of(self.ids))
        return np.asarray(found.fill_null(-1), dtype=np.int64)

    def outside(self, codes: npt.ArrayLike) -> pa.Array:
        """The ids of `codes` (of any shape), as one flat Arrow array; null for -1."""
        flat = np.asarray(codes, dtype=np.int64).ravel()
        if len(flat) and (flat.min() < -1 or flat.max() >= len(self)):
            raise InputError(
                f"codes go from {flat.min()} to {flat.max()}; allowed are -1 to {len(self) - 1}."
            )
        return self.ids.take(pa.array(flat, mask=flat < 0))

    def union(self, other: IdMap, what: str = "id") -> IdMap:
        """The map of the ids of both maps."""
        if self is other or not len(self) or not len(other):
            return self if len(self) else other
        wide = other.ids.type if self.ids.type == pa.int64() else self.ids.type
        both = [_cast_ids(ids, wide, what) for ids in (self.ids, other.ids)]
        return IdMap.of(pa.concat_arrays(both), what)

    def digest(self) -> bytes:
        """A checksum of the ids that does not depend on the machine."""
        plain = storage_of(self.ids)
        digest = hashlib.blake2b(str(self.ids.type).encode() + b"\0", digest_size=16)
        if pa.types.is_integer(plain.type):
            digest.update(
                plain.to_numpy().astype("<i8" if plain.type == pa.int64() else "<u8", copy=False).data
            )
        else:
            plain = plain.cast(pa.large_binary())
            digest.update(pc.binary_length(plain).to_numpy().astype("<i8", copy=False).data)
            starts = np.frombuffer(plain.buffers()[1], np.int64, len(plain) + 1, 8 * plain.offset)
            content = plain.buffers()[2]
            if content is not None:
                digest.update(memoryview(content)[int(starts[0]) : int(starts[-1])])
        return digest.digest()

    def __len__(self) -> int:
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdMap) and bool(self.ids.equals(other.ids))

    def __hash__(self) -> int:
        return hash(self.digest())

    def __repr__(self) -> str:
        return f"<IdMap of {len(self)} {self.ids.type} ids: {self._sample()}>"

    def _sample(self) -> str:
        shown = ", ".join(repr(x) for x in self.ids.slice(0, 3).to_pylist())
        return shown + (", …" if len(self) > 3 else "")


def _present_ids(values: Ids, what: str) -> pa.Array:
    array = canonical_ids(values, what)
    if array.null_count:
        raise InputError(f"{array.null_count} {what} ids are missing (null or NaN); remove those rows.")
    return array


def _infer(values: object) -> pa.Array:
    try:
        return pa.array(values, from_pandas=True)
    except OverflowError:  # Arrow guesses int64 for Python integers, also above 2^63 - 1
        return pa.array(values, pa.uint64(), from_pandas=True)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of values: not of categories, and of text large_string."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    # 32-bit offsets overflow when chunks of long text are joined, and few functions take string_view
    return pa.large_string() if is_text(kind) else kind


def _whole_floats(array: pa.Array, what: str) -> pa.Array:
    array = pc.if_else(pc.is_nan(array), None, array)
    try:
        return array.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{what} ids are numbers that are not all whole ({error}); give integers, strings or UUIDs."
        ) from error


def _cast_ids(array: pa.Array, kind: pa.DataType, what: str) -> pa.Array:
    """`array` cast to `kind`; integers out of its range become null. Other types raise an error."""
    if array.type == kind:
        return array
    if array.null_count == len(array):
        return pa.nulls(len(array), kind)
    if not (pa.types.is_integer(array.type) and pa.types.is_integer(kind)):
        raise InputError(
            f"{what} ids are of type {array.type} here and of type {kind} elsewhere; convert one of them."
        )
    if kind == pa.int64():  # the two share 0 … 2^63 - 1
        fits = pc.less_equal(array, pa.scalar(2**63 - 1, array.type))
    else:
        fits = pc.greater_equal(array, pa.scalar(0, array.type))
    return pc.if_else(fits, array, None).cast(kind)


def _encode_dense(array: pa.Array) -> tuple[IdMap, npt.NDArray[np.int32]] | None:
    """The map and the codes by a table of all integers from the lowest to the highest; None if it is long."""
    values = array.to_numpy()
    if not len(values):
        return None
    low, high = int(values.min()), int(values.max())
    if high - low >= 4 * len(values) + 1024:
        return None
    places = values if low == 0 else values - values.dtype.type(low)
    present = np.zeros(high - low + 1, dtype=bool)
    present[places] = True
    ids = np.flatnonzero(present).astype(values.dtype)
    ids += values.dtype.type(low)
    code_at = np.cumsum(present, dtype=np.int32)
    code_at -= np.int32(1)
    return IdMap(pa.array(ids, array.type)), code_at[places]


def _distinct(array: pa.Array) -> pa.Array:
    return restored(storage_of(array).unique(), array.type)  # there is no `unique` for types such as uuid


def restored(plain: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array of this type, from its storage."""
    if not isinstance(kind, pa.BaseExtensionType):
        return plain.cast(kind)
    return pa.ExtensionArray.from_storage(kind, plain.cast(kind.storage_type))


def storage_of(array: pa.Array) -> pa.Array:
    """The array in a type of Arrow's own: UUIDs as bytes."""
    return array.storage if isinstance(array, pa.ExtensionArray) else array
