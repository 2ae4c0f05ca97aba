"""The catalog the rest of the product asks."""

from __future__ import annotations

import pytest

from tests.schema.library import compiled

TEXT = """
interface Titled { title: String @index }
node Plant @description("green") @instruction("water it") @owner("ops") implements Titled {
    code: String @key
    zone: I32 @description("hardiness") @unit("degree")
    photo: Blob?
    leaf: Vector(8)? @embed("title", model="m1") @index
    @unique(zone, code)
    @range(zone, 1..13)
    @check(code, "^[A-Z]+$")
}
node Bed {}
edge GrowsIn: Plant -> Bed @card(0..1) @description("place") { since: Date? @unique(src, dst) }
edge Beside: Bed -> Bed
"""


def test_a_node_type_knows_everything_about_itself():
    plant = compiled(TEXT).catalog.nodes["Plant"]
    assert list(plant.properties) == ["code", "leaf", "photo", "title", "zone"]
    assert plant.table_key == "node:Plant"
    assert (plant.description, plant.instruction) == ("green", "water it")
    assert [(a.name, a.value) for a in plant.annotations] == [("owner", "ops")]
    assert plant.properties["zone"].description == "hardiness"
    assert [a.name for a in plant.properties["zone"].annotations] == ["unit"]
    assert plant.key == ("code",)
    assert plant.unique == (("code", "zone"),)
    assert plant.indexes == (("leaf",), ("title",))
    assert [(r.property, r.minimum, r.maximum) for r in plant.ranges] == [("zone", 1, 13)]
    assert [(c.property, c.pattern) for c in plant.checks] == [("code", "^[A-Z]+$")]
    assert [p.name for p in plant.properties.values() if p.type.is_blob] == ["photo"]
    assert [p.name for p in plant.properties.values() if p.embed] == ["leaf"]


def test_an_edge_type_knows_its_ends():
    edge = compiled(TEXT).catalog.edges["GrowsIn"]
    assert (edge.source, edge.target, edge.table_key) == ("Plant", "Bed", "edge:GrowsIn")
    assert (edge.cardinality.minimum, edge.cardinality.maximum) == (0, 1)
    assert edge.unique == (("dst", "src"),)
    assert edge.description == "place"


def test_edges_are_found_by_the_nodes_they_touch():
    catalog = compiled(TEXT).catalog
    assert [e.name for e in catalog.edges_touching("Bed")] == ["Beside", "GrowsIn"]
    assert [e.name for e in catalog.edges_touching("Plant")] == ["GrowsIn"]


def test_interfaces_are_listed_with_ids_of_their_own():
    catalog = compiled(TEXT).catalog
    title = catalog.interfaces["Titled"].properties["title"]
    assert title.property_id != catalog.nodes["Plant"].properties["title"].property_id


def test_a_catalog_cannot_be_changed():
    catalog = compiled(TEXT).catalog
    for mapping in (catalog.nodes, catalog.edges, catalog.nodes["Plant"].properties):
        with pytest.raises(TypeError):
            mapping["X"] = None  # type: ignore[index]


def test_the_schema_hash_tells_versions_apart():
    first = compiled(TEXT).catalog.schema_hash
    assert compiled(TEXT).catalog.schema_hash == first
    assert compiled(TEXT + "node New {}").catalog.schema_hash != first
