"""The schema the query tests speak about, and short ways to compile against it."""

from __future__ import annotations

from functools import lru_cache

import pytest

from omnigraph.errors import QueryTypeError
from omnigraph.query import plan
from omnigraph.query.compile import compile_query
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.compile import compile_schema

SCHEMA = """
interface Named { name: String }

node Author implements Named {
    handle: String @key
    born: Date?
    fame: F32?
    photo: Blob?
}
node Book {
    isbn: String @key
    title: String @index
    blurb: String?
    genre: enum(fiction, poetry, science)
    language: enum(de, en)?
    pages: I32?
    chapters: U32?
    sold: I64?
    printed: U64?
    weight: F32?
    price: F64?
    available: Bool?
    released: Date?
    updated: DateTime?
    tags: [String]?
    grades: [F32]?
    moments: [DateTime]?
    cover: Blob?
    vec: Vector(4)? @embed("blurb", model="acme/text-1")
}
node Shop {
    region: String
    code: I32
    opened: DateTime
    open: Bool @default(true)
    @key(region, code)
}
node Review { stars: I32  text: String  vec: Vector(2) @embed("text") }
node Cites { name: String @key }

edge Wrote: Author -> Book { role: String?  share: F32?  contract: Blob? }
edge Cites: Book -> Book { note: String? }
edge Knows: Author -> Author { since: Date  trust: F64? }
edge Sells: Shop -> Book
edge Contains: Book -> Book
edge About: Review -> Book
edge SoldInTown: Book -> Shop
"""


@lru_cache(maxsize=1)
def catalog() -> Catalog:
    """The catalog of `SCHEMA`."""
    return compile_schema(SCHEMA).catalog


def read(text: str) -> plan.ReadPlan:
    """The plan of a text that holds one read."""
    compiled = compile_query(text, catalog())
    assert isinstance(compiled, plan.ReadPlan)
    return compiled


def mutation(text: str) -> plan.MutationPlan:
    """The plan of a text that holds one mutation."""
    compiled = compile_query(text, catalog())
    assert isinstance(compiled, plan.MutationPlan)
    return compiled


def matching(
    clauses: str, items: str = "count(*)", parameters: str = "", tail: str = ""
) -> plan.ReadPlan:
    """The plan of a read with these clauses."""
    return read(query(clauses, items, parameters, tail))


def query(clauses: str, items: str = "count(*)", parameters: str = "", tail: str = "") -> str:
    """The text of a read with these clauses."""
    return f"query q({parameters}) {{ match {{ {clauses} }} return {{ {items} }} {tail} }}"


def refusal(text: str) -> QueryTypeError:
    """The type error of a text that parses and does not check."""
    with pytest.raises(QueryTypeError) as caught:
        compile_query(text, catalog())
    return caught.value


def pointed_at(error: QueryTypeError, text: str) -> str:
    """The part of ``text`` an error points at."""
    assert error.position is not None
    return text.encode()[error.position.byte_start : error.position.byte_end].decode()
