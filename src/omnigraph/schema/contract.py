"""The three objects in which a root stores its accepted schema, and their verification.

The source is the text that people edit, the IR is the authority for ids, and the state record has
the hashes of both. This module encodes and decodes them; it does no I/O.
"""

from __future__ import annotations

from dataclasses import field
from functools import lru_cache

from omnigraph.errors import CompileError, SchemaContractError
from omnigraph.model.records import dataclass
from omnigraph.schema.admission import admit
from omnigraph.schema.catalog import Catalog, canonical_json, sha256_of
from omnigraph.schema.compile import project
from omnigraph.schema.encoding import ir_hash, ir_text, read_ir, read_json_object, shape_hash
from omnigraph.schema.shape import OFFLINE_DOMAIN, SchemaIR, shape_of
from omnigraph.syntax.schema_parser import parse_schema

SOURCE_OBJECT = "_schema.pg"
IR_OBJECT = "_schema.ir.json"
STATE_OBJECT = "__schema_state.json"

STATE_FORMAT_VERSION = 2
IDENTITY_VERSION = 2


@dataclass(frozen=True, slots=True)
class SchemaContract:
    """The texts of the three persisted objects."""

    source: str
    ir: str
    state: str

    def objects(self) -> dict[str, str]:
        """The texts by object name, the state record last: it holds the hashes."""
        return {SOURCE_OBJECT: self.source, IR_OBJECT: self.ir, STATE_OBJECT: self.state}


@dataclass(frozen=True, slots=True)
class AcceptedSchema:
    """A verified contract: its texts, and the decoded IR."""

    contract: SchemaContract
    ir: SchemaIR
    catalog: Catalog
    schema_hash: str = field(init=False)
    """`sha256:` hash of the IR: the identity of this schema version."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema_hash", self.catalog.schema_hash)


def build_contract(source: str, ir: SchemaIR) -> SchemaContract:
    """The texts to persist for a source and the IR it was accepted as."""
    if ir.domain == OFFLINE_DOMAIN:
        raise SchemaContractError(
            "a schema compiled without an identity domain cannot be persisted",
            hint="compile it with the domain minted for the graph",
        )
    state = {
        "format_version": STATE_FORMAT_VERSION,
        "schema_shape_hash": shape_hash(ir.shape),
        "schema_ir_hash": ir_hash(ir),
        "schema_identity_version": IDENTITY_VERSION,
        "schema_identity_domain": ir.domain,
    }
    return SchemaContract(source, ir_text(ir), canonical_json(state))


@lru_cache(maxsize=16)
def open_contract(source: str | None, ir: str | None, state: str | None) -> AcceptedSchema:
    """Verify the three texts of a root against each other; ``None`` stands for a missing object.

    Raises `SchemaContractError` if one is missing or malformed, if they do not belong together, and
    if the source was edited by hand. Results are cached.
    """
    if source is None or ir is None or state is None:
        texts = {SOURCE_OBJECT: source, IR_OBJECT: ir, STATE_OBJECT: state}
        missing = ", ".join(name for name, text in texts.items() if text is None)
        raise SchemaContractError(
            f"the schema contract is incomplete: {missing} is missing",
            hint="restore it from a copy of this graph; it is never rebuilt, "
            "because ids cannot be derived from the source",
        )
    recorded = _read_state(state)
    if sha256_of(ir) != recorded["schema_ir_hash"]:
        raise _mismatch(f"{IR_OBJECT} does not have the hash {STATE_OBJECT} names")
    known = read_ir(ir)
    if known.domain != recorded["schema_identity_domain"]:
        raise _mismatch(f"{IR_OBJECT} and {STATE_OBJECT} name different identity domains")
    accepted_hash = shape_hash(known.shape)
    if accepted_hash != recorded["schema_shape_hash"]:
        raise _mismatch(f"{IR_OBJECT} does not have the shape {STATE_OBJECT} names")
    _check_source(source, accepted_hash)
    return AcceptedSchema(SchemaContract(source, ir, state), known, project(known))


def _check_source(source: str, accepted_hash: str) -> None:
    details: dict[str, str] = {}
    try:
        found = shape_hash(shape_of(admit(parse_schema(source))))
    except CompileError as bad:
        found, details = "", {"cause": bad.message}
    if found != accepted_hash:
        raise SchemaContractError(
            f"current {SOURCE_OBJECT} no longer matches the accepted compiled schema",
            hint=f"put the accepted text back into {SOURCE_OBJECT}; "
            "to change the schema, run `omnigraph schema apply`",
            details=details,
        )


def _read_state(text: str) -> dict[str, str]:
    record = read_json_object(text, STATE_OBJECT)
    for member, version in (
        ("format_version", STATE_FORMAT_VERSION),
        ("schema_identity_version", IDENTITY_VERSION),
    ):
        found = record.pop(member, None)
        if found != version:
            raise SchemaContractError(
                f"{STATE_OBJECT} has {member} {found!r} (expected {version})",
                hint="this graph was written by another version of the product",
            )
    members = {"schema_shape_hash", "schema_ir_hash", "schema_identity_domain"}
    if record.keys() != members or not all(isinstance(v, str) for v in record.values()):
        raise SchemaContractError(f"{STATE_OBJECT} is malformed")
    return record


def _mismatch(message: str) -> SchemaContractError:
    return SchemaContractError(
        message, hint="the objects belong to different versions; restore all three together"
    )
