"""Reading and writing the accepted schema contract of a root."""

from __future__ import annotations

from functools import partial

from omnigraph.effects.objects import ObjectStore
from omnigraph.effects.side_by_side import side_by_side
from omnigraph.schema.catalog import EdgeType, NodeType
from omnigraph.schema.contract import AcceptedSchema, SchemaContract, open_contract
from omnigraph.storage.layout import SCHEMA_IR, SCHEMA_SOURCE, SCHEMA_STATE
from omnigraph.storage.legacy import AcceptedTables
from omnigraph.storage.manifest_rows import TableIdentity


def read_contract(store: ObjectStore) -> AcceptedSchema:
    """The verified contract: three reads, and nothing to verify when the texts are known."""
    with side_by_side(threads=not store.root.is_local) as side:
        source, ir, state = (
            side.start(partial(store.read_if_exists, name))
            for name in (SCHEMA_SOURCE, SCHEMA_IR, SCHEMA_STATE)
        )
    return open_contract(_text(source()), _text(ir()), _text(state()))


def accepted_tables(accepted: AcceptedSchema) -> AcceptedTables:
    """What an accepted schema says about the identity of tables."""
    catalog = accepted.catalog
    types: list[NodeType | EdgeType] = [*catalog.nodes.values(), *catalog.edges.values()]
    identities = {
        each.table_key: TableIdentity(each.type_id, each.incarnation_id) for each in types
    }
    return AcceptedTables(identities, accepted.schema_hash)


def write_contract(store: ObjectStore, contract: SchemaContract) -> None:
    """Write the three objects, the state record last: it vouches for the others."""
    for name, text in contract.objects().items():
        store.write(name, text.encode())


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode()
