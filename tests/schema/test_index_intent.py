"""Which indexes a schema asks for."""

from __future__ import annotations

import pytest

from omnigraph.schema.catalog import declared_indexes
from tests.schema.library import compiled

TEXT = """
interface Named { name: String @index }
node Memo implements Named {
    code: String @key
    body: String? @index
    plain: String?
    lang: enum(en, de) @index
    seen: Bool @index
    day: Date? @index
    at: DateTime @index
    small: I32 @index
    wide: U64? @index
    real: F64 @index
    tags: [String]?
    photo: Blob?
    leaf: Vector(8)? @index
    @index(body, lang)
}
node Number { value: I64 @key @index }
node Pair { a: String  b: I32  @key(a, b) }
node Loose {}
edge Replies: Memo -> Memo { weight: I32? @index }
"""


def asked(name: str) -> list[str]:
    catalog = compiled(TEXT).catalog
    return [str(spec) for spec in declared_indexes(catalog.nodes.get(name) or catalog.edges[name])]


def test_c_srch_021_each_kind_of_property_has_its_kind_of_index() -> None:
    ordered = [f"{name} (btree)" for name in ("at", "code", "day", "lang", "real", "seen")]
    ordered += ["small (btree)", "wide (btree)"]
    words = [f"{name} (inverted)" for name in ("body", "code", "name")]
    assert asked("Memo")[0] == "id (btree)"
    assert sorted(asked("Memo")[1:]) == sorted([*ordered, *words, "leaf (vector)"])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Number", ["id (btree)", "value (btree)"]),
        ("Pair", ["id (btree)"]),
        ("Loose", ["id (btree)"]),
        ("Replies", ["id (btree)", "src (btree)", "dst (btree)"]),
    ],
)
def test_c_srch_021_ids_and_endpoints_always_several_columns_and_edge_properties_never(
    name: str, expected: list[str]
) -> None:
    assert asked(name) == expected
