"""Which indexes a schema asks for.

Declaring an index is intent only. Whether it exists never decides what a query returns, so nothing
but the upkeep of a graph reads this to act on it.
"""

from __future__ import annotations

from omnigraph.model.types import Scalar, ValueType
from omnigraph.model.upkeep import IndexSpec
from omnigraph.schema.catalog import EdgeType, NodeType


def declared_indexes(type: NodeType | EdgeType) -> tuple[IndexSpec, ...]:
    """The indexes a type should have: its ids and endpoints first, then properties by name.

    Declarations over several properties, and those of edges, ask for none.
    """
    if isinstance(type, EdgeType):
        return tuple(IndexSpec(column, "btree") for column in ("id", "src", "dst"))
    declared = {group[0] for group in (type.key, *type.indexes) if len(group) == 1}
    specs = [IndexSpec("id", "btree")]
    for name in sorted(declared):
        specs += _of_property(name, type.properties[name].type, is_key=type.key == (name,))
    return tuple(specs)


def _of_property(name: str, type: ValueType, *, is_key: bool) -> list[IndexSpec]:
    if type.is_list or type.is_blob:
        return []
    if type.is_vector:
        return [IndexSpec(name, "vector")]
    if type.scalar is not Scalar.STRING or type.enum_values is not None:
        return [IndexSpec(name, "btree")]
    text = IndexSpec(name, "inverted")
    # A key is mostly looked up by its whole value, which the words of a text are no help for.
    return [IndexSpec(name, "btree"), text] if is_key else [text]
