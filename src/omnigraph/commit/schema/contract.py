"""Reading and writing the accepted schema contract of a root.

A schema change writes the three objects of the new contract under staging names, and moves them
over the old ones after the publish. During the move readers assemble the new contract from moved
and staged objects, so they do not wait.
"""

from __future__ import annotations

from functools import partial

from omnigraph.effects.objects import ObjectStore
from omnigraph.effects.requests import concurrently
from omnigraph.errors import SchemaContractError
from omnigraph.schema.catalog import Catalog, sha256_of
from omnigraph.schema.compile import project
from omnigraph.schema.contract import (
    AcceptedSchema,
    SchemaContract,
    build_contract,
    open_contract,
)
from omnigraph.schema.encoding import read_ir
from omnigraph.storage.digests import digest_of, update_listing
from omnigraph.storage.layout import (
    SCHEMA_OBJECTS,
    STAGING_SUFFIX,
    past_schema_name,
    past_source_name,
)
from omnigraph.storage.legacy import AcceptedTables
from omnigraph.storage.manifest_rows import TableIdentity

LAST_STAGED_OBJECT = f"{SCHEMA_OBJECTS[-1]}{STAGING_SUFFIX}"
"""The object that is staged last and promoted last."""


def read_contract(store: ObjectStore, published: str | None = None) -> AcceptedSchema:
    """Read and verify the contract: three reads; texts that are cached are not verified again.

    ``published`` is the schema hash of the head. Between the publish of a schema change and its
    completion, the contract with this hash is still staged.
    """
    try:
        accepted = promoted_contract(store)
    except SchemaContractError:
        found = staged_contract(store)
        if found is None:
            raise
        return found
    if published in (None, accepted.schema_hash):
        return accepted
    found = staged_contract(store)
    return found if found is not None and found.schema_hash == published else accepted


def promoted_contract(store: ObjectStore) -> AcceptedSchema:
    """The contract in the accepted objects, ignoring staged ones."""
    return open_contract(*map(_text, store.read_each(SCHEMA_OBJECTS)))


def staged_contract(store: ObjectStore) -> AcceptedSchema | None:
    """The contract of a schema change in progress, from staged and already promoted objects.

    None if these are no consistent contract. Objects are moved one by one, so one that is no longer
    staged has been promoted.
    """
    texts = [_text(_staged_or_promoted(store, name)) for name in SCHEMA_OBJECTS]
    try:
        return open_contract(*texts)
    except SchemaContractError:
        return None


def _staged_or_promoted(store: ObjectStore, name: str) -> bytes | None:
    staged = store.read_if_exists(f"{name}{STAGING_SUFFIX}")
    return store.read_if_exists(name) if staged is None else staged


def staged_objects(store: ObjectStore) -> list[str]:
    """The staged objects of a schema change that are not promoted yet."""
    names = [f"{name}{STAGING_SUFFIX}" for name in SCHEMA_OBJECTS]
    found = concurrently(
        *(partial(store.exists, name) for name in names), threads=not store.root.is_local
    )
    return [name for name, is_there in zip(names, found, strict=True) if is_there]


def keep_past(store: ObjectStore, accepted: AcceptedSchema) -> None:
    """Store the accepted schema among the replaced ones, before another is promoted.

    Older commits are read with it, and branches continue to write with it. Idempotent, as the name
    is the hash of the content.
    """
    name = past_schema_name(accepted.schema_hash)
    store.write(past_source_name(name), accepted.contract.source.encode())
    store.write(name, accepted.contract.ir.encode())


def past_catalog(store: ObjectStore, schema_hash: str) -> Catalog | None:
    """The types of a replaced schema; None if it was replaced before schemas were stored."""
    text = _past_ir(store, schema_hash)
    return None if text is None else project(read_ir(text))


def past_schema(store: ObjectStore, schema_hash: str) -> AcceptedSchema | None:
    """A replaced schema, which branches may still have, with its source.

    None if it was replaced before sources were stored: no branch can have it then.
    """
    ir = _past_ir(store, schema_hash)
    source = _text(store.read_if_exists(past_source_name(past_schema_name(schema_hash))))
    if ir is None or source is None:
        return None
    contract = build_contract(source, read_ir(ir))
    return open_contract(contract.source, contract.ir, contract.state)


def _past_ir(store: ObjectStore, schema_hash: str) -> str | None:
    text = _text(store.read_if_exists(past_schema_name(schema_hash)))
    if text is not None and sha256_of(text) != schema_hash:
        raise SchemaContractError(
            f"{past_schema_name(schema_hash)} does not have the hash of its name",
            hint="restore it from a copy of this graph",
        )
    return text


def promote_contract(store: ObjectStore, target_hash: str) -> None:
    """Move the staged contract over the accepted one; may be repeated after an interruption.

    Raises `SchemaContractError` if the objects are not the published contract.
    """
    found = staged_contract(store)
    if found is None or found.schema_hash != target_hash:
        raise SchemaContractError(
            "the objects of a published schema change are missing or damaged",
            hint="restore the schema objects from a copy of this graph; the data is still there",
        )
    for name in SCHEMA_OBJECTS:
        if store.exists(f"{name}{STAGING_SUFFIX}"):
            store.rename(f"{name}{STAGING_SUFFIX}", name)
    list_contract(store, found.contract, target_hash)


def list_contract(store: ObjectStore, contract: SchemaContract, schema_hash: str) -> None:
    """Record the digests of an accepted contract, by the names it will have when it is replaced.

    The schema hash does not cover comments and layout of the source. On local disk only, like all
    listings.
    """
    if store.root.path is not None:
        texts = zip(schema_digest_names(schema_hash), contract.objects().values(), strict=True)
        digests = {name: digest_of(text.encode()) for name, text in texts}
        update_listing(store.root.path, "schema", digests)


def schema_digest_names(schema_hash: str) -> tuple[str, str, str]:
    """The names under which source, IR and state of a contract are listed, in this order."""
    name = past_schema_name(schema_hash)
    return past_source_name(name), name, name.replace(".json", ".state")


def discard_staged(store: ObjectStore) -> None:
    """Remove the staged objects of a schema change."""
    for name in SCHEMA_OBJECTS:
        store.delete(f"{name}{STAGING_SUFFIX}")


def accepted_tables(accepted: AcceptedSchema) -> AcceptedTables:
    """The identities of the tables of an accepted schema."""
    identities = {
        each.table_key: TableIdentity(each.type_id, each.incarnation_id)
        for each in accepted.catalog.types
    }
    return AcceptedTables(identities, accepted.schema_hash)


def write_contract(store: ObjectStore, contract: SchemaContract, suffix: str = "") -> None:
    """Write the three objects, last the state record, which has the hashes of the others.

    With `STAGING_SUFFIX` they are written under staging names.
    """
    for name, text in contract.objects().items():
        store.write(f"{name}{suffix}", text.encode())


def _text(content: bytes | None) -> str | None:
    # A damaged text that is not UTF-8 fails the check of its hash.
    return None if content is None else content.decode(errors="replace")
