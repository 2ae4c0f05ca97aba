"""C-SCH-025: column order, Arrow types, nullability and metadata of tables."""

from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph.model.arrow import (
    BLOB_STORAGE,
    arrow_type,
    edge_schema,
    node_schema,
    property_field,
    property_id,
)
from omnigraph.model.types import Scalar, ValueType

SCALARS = {
    Scalar.STRING: pa.utf8(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.U64: pa.uint64(),
    Scalar.F32: pa.float32(),
    Scalar.F64: pa.float64(),
    Scalar.DATE: pa.date32(),
    Scalar.DATETIME: pa.timestamp("ms", tz="UTC"),
}


@pytest.mark.parametrize("scalar", SCALARS)
def test_c_sch_025_arrow_type_of_every_scalar(scalar: Scalar) -> None:
    assert arrow_type(ValueType(scalar)) == SCALARS[scalar]
    assert arrow_type(ValueType(scalar, nullable=True)) == SCALARS[scalar]


@pytest.mark.parametrize("scalar", SCALARS)
def test_c_sch_025_list_is_a_list_of_nullable_items(scalar: Scalar) -> None:
    item = pa.field("item", SCALARS[scalar], nullable=True)
    found = arrow_type(ValueType(scalar, is_list=True))
    assert found == pa.list_(item)
    assert found.value_field == item


def test_c_sch_025_vector_is_a_fixed_size_list_of_nullable_float32() -> None:
    found = arrow_type(ValueType(Scalar.VECTOR, vector_dim=8))
    assert found == pa.list_(pa.float32(), 8)
    assert found.value_field == pa.field("item", pa.float32(), nullable=True)


def test_c_sch_025_enum_is_utf8() -> None:
    assert arrow_type(ValueType(Scalar.STRING, enum_values=("a", "b"))) == pa.utf8()


def test_c_sch_025_node_table_has_id_then_properties_in_byte_order() -> None:
    schema = node_schema(
        [
            ("name", ValueType(Scalar.STRING), 12),
            ("_rank", ValueType(Scalar.U64, nullable=True), 11),
            ("nAme", ValueType(Scalar.BOOL), 13),
            ("name2", ValueType(Scalar.F32), 14),
        ]
    )
    assert schema.names == ["id", "_rank", "nAme", "name", "name2"]
    assert [field.nullable for field in schema] == [False, True, False, False, False]
    assert schema.field("id").type == pa.utf8()
    assert schema.field("id").metadata == {b"lance-schema:unenforced-primary-key": b"true"}
    assert schema.field("name").metadata == {b"omnigraph.stable_property_id": b"12"}


def test_c_sch_025_edge_table_has_id_src_dst_then_properties() -> None:
    schema = edge_schema([("since", ValueType(Scalar.DATE, nullable=True), 9)])
    assert schema.names == ["id", "src", "dst", "since"]
    for name in ("id", "src", "dst"):
        assert schema.field(name).type == pa.utf8()
        assert not schema.field(name).nullable
    assert schema.field("src").metadata is None
    assert [property_id(field) for field in schema] == [None, None, None, 9]


def test_c_sch_025_type_without_properties_has_only_structural_columns() -> None:
    assert node_schema([]).names == ["id"]
    assert edge_schema([]).names == ["id", "src", "dst"]


def test_c_sch_025_blob_field_is_marked_as_lance_blob() -> None:
    field = property_field("photo", ValueType(Scalar.BLOB, nullable=True), 7)
    assert field.type == BLOB_STORAGE
    assert field.nullable
    assert field.metadata == {
        b"omnigraph.stable_property_id": b"7",
        b"ARROW:extension:name": b"lance.blob.v2",
    }
