"""One corpus of inputs, loaded in process and on Spark: same rows, same receipts, same problems."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.errors import InputError, OmnigraphError
from omnigraph.graph import CsvOptions, ErrorOptions, Graph, SparkOptions
from tests.commit.loading import edge, lines, node
from tests.pipeline.conftest import SCHEMA

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def rates(edge_id: str, person: str, on: str) -> dict[str, Any]:
    """An edge of the type that has a key of both ends and a date."""
    data = {"id": edge_id, "on": on}
    return {"edge": "Rates", "from": person, "to": "n1", "data": data}


SEED = lines(
    node("Person", slug="ada", name="Ada", age=36, email="ada@x.org", visits=2**64 - 1),
    node("Person", slug="bob", name="Bob", email="bob@x.org"),
    node("Slot", region="north", code=7, on="2024-02-29", note="a"),
    {"type": "Note", "data": {"id": "n1", "text": "first"}},
    {"edge": "Knows", "from": "ada", "to": "bob", "data": {"id": "k1", "since": "2020-01-01"}},
    {"edge": "About", "from": "n1", "to": "ada", "data": {"id": "a1"}},
    rates("r1", "ada", "2024-02-29"),
)

EXTREMES = [
    node(
        "Person",
        slug=f"x{i}",
        name="naïve 🙂",
        age=age,
        visits=visits,
        small=small,
        height=0.1,
        weight=1e308,
        active=bool(i % 2),
        born=born,
        seen=seen,
        tags=tags,
        leaf=leaf,
        photo=photo,
        mood="wild",
    )
    for i, (age, visits, small, born, seen, tags, leaf, photo) in enumerate(
        [
            (0, 0, 0, "1899-12-31", "1969-12-31T23:59:59.999Z", [], [0, 1.5], "base64:"),
            (150, 2**64 - 1, 2**32 - 1, "9999-12-31", 1, ["", 'a\n"b'], None, "base64:AAECAw=="),
            (None, 2**63, 1, -1, "2024-02-29T12:00:00+02:00", None, [1e-45, -0.0], None),
        ]
    )
]


def loaded(
    graph: Graph, engine: str, path: Path, mode: Any, spark: Any, grammar: Any = "strict"
) -> Any:
    """The receipt of a load, or the failure it ended with."""
    try:
        return graph.load(
            path,
            mode=mode,
            grammar=grammar,
            engine=engine,  # type: ignore[arg-type]
            spark=SparkOptions(spark),
            errors=ErrorOptions(1000),
        )
    except OmnigraphError as error:
        return error


def both(tmp_path: Path, data: bytes, mode: str, spark: Any, grammar: str = "strict") -> Any:
    """What the two engines make of the same input on the same graph."""
    path = tmp_path / f"{mode}.jsonl"
    path.write_bytes(data)
    results = []
    for engine in ("local", "spark"):
        graph = omnigraph.init(tmp_path / f"{mode}-{engine}.omni", SCHEMA)
        graph.load(data=SEED, mode="append")
        results.append((graph, loaded(graph, engine, path, mode, spark, grammar)))
    return results


def exported(graph: Graph) -> list[Any]:
    """Every entity; ids that were minted are told from given ones by their length alone."""
    records = [json.loads(line) for line in b"".join(graph.export()).splitlines()]
    for record in records:
        if len(record["data"].get("id", "")) == 26:
            record["data"]["id"] = "minted"
    return sorted(records, key=json.dumps)


def counts(receipt: Any) -> Any:
    return {key: receipt.to_dict()[key] for key in ("nodes", "edges", "total_entities")}


GOOD = {
    "append": lines(
        edge("Knows", "x0", "x1", weight=0.5),
        *EXTREMES,
        node("Slot", region="south", code=-1),
        node("Note", text="second", stars=-5),
        {"type": "Note", "data": {"id": "n2", "text": "third"}},
        edge("About", "n1", "x2"),
        edge("Owns", "x0", '["7","north"]'),
        rates("r2", "ada", "2024-03-01"),
        rates("r3", "bob", "2024-02-29"),
    ),
    "merge": lines(
        node("Person", slug="ada", name="Countess"),
        node("Person", slug="bob", name="Bob", email="bob@x.org"),
        *EXTREMES,
        {"type": "Note", "data": {"id": "n1", "text": "again"}},
        {"type": "Note", "data": {"id": "n1", "text": "and again"}},
        {"edge": "Knows", "from": "bob", "to": "x0", "data": {"id": "k1"}},
        edge("Knows", "x0", "x1", id="k2"),
    ),
    "overwrite": lines(
        *EXTREMES,
        node("Person", slug="ada"),
        node("Person", slug="bob"),
        {"edge": "Knows", "from": "ada", "to": "x0", "data": {"id": "k9"}},
    ),
}


@pytest.mark.parametrize("mode", GOOD)
def test_c_pip_001_both_engines_give_the_same_tables_ids_and_counts(mode, tmp_path, spark):
    (local, here), (distributed, there) = both(tmp_path, GOOD[mode], mode, spark)
    assert not isinstance(here, Exception), here
    assert not isinstance(there, Exception), there
    assert exported(local) == exported(distributed)
    assert counts(here) == counts(there)
    assert there.engine == "spark" and here.engine == "local"
    assert len(distributed.list_commits()) == len(local.list_commits()) == 3


def test_c_pip_001_mapped_tables_are_the_same_on_both_engines(tmp_path, spark):
    people, knows, notes = (tmp_path / name for name in ("p.csv", "k.csv", "n.json"))
    people.write_text("Id|kind|born|tags|Mail\nADA|p|86400000|a;b| A@x.org \nx|thing|||\nBo|p|||\n")
    knows.write_text("P.id|P.id|on\nada|bo|05/01/2026\n")
    notes.write_text(json.dumps([{"id": "n7", "T": "Über", "S": "3"}, {"id": "n8", "T": "b"}]))
    options: dict[str, Any] = {
        "nodes": {"Person": people, "Note": notes},
        "edges": {"Knows": knows},
        "map": {
            "Person": {
                "lower(Id)": "slug",
                "from_millis(born)": "born",
                "lower(trim(Mail))": "email",
                "const(7)": "age",
            },
            "Knows": {"#1": "from", "#2": "to", 'date(on, "%d/%m/%Y")': "since"},
            "Note": {"upper(T)": "text", "trim(S)": "stars"},
        },
        "where": {"Person": {"kind": "p"}},
        "csv": CsvOptions("|", {"Person": ";"}),
        "mode": "append",
    }
    results: list[Any] = []
    for engine in ("local", "spark"):
        graph = omnigraph.init(tmp_path / f"{engine}.omni", SCHEMA)
        receipt = graph.load(engine=engine, spark=SparkOptions(spark), **options)
        knows.write_text("P.id|P.id|on\nada|bo|05/01/2026\n|bo|31/02/2026\nada|eve|05/01/2026\n")
        with pytest.raises(InputError) as caught:
            graph.load(engine=engine, spark=SparkOptions(spark), **options)
        results.append((exported(graph), counts(receipt), caught.value.details))
        knows.write_text("P.id|P.id|on\nada|bo|05/01/2026\n")
    assert results[0] == results[1]
    (ada,) = [r["data"] for r in results[0][0] if r.get("data", {}).get("slug") == "ada"]
    assert (ada["born"], ada["tags"], ada["email"], ada["age"]) == (1, ["a", "b"], "a@x.org", 7)
    frame = spark.createDataFrame([("EVE", 1)], "Id string, junk int")
    graph.load(frames={"Person": frame}, map={"lower(Id)": "slug", "junk": None}, mode="append")
    options = {"type": "Person", "map": '{"lower(Id)": "slug", "junk": null}'}
    renamed = frame.selectExpr("concat(Id, '2') as Id", "junk")
    renamed.write.format("omnigraph").options(**options).mode("append").save(graph.uri)
    assert {"eve", "eve2"} <= {r["data"].get("slug") for r in exported(graph)}


def test_c_pip_001_older_ids_mean_the_same_nodes_on_both_engines(tmp_path, spark):
    data = lines(
        edge("Owns", "ada", "south"),
        {"type": "Slot", "data": {"id": "south", "region": "south", "code": 1}},
    )
    (local, here), (distributed, there) = both(tmp_path, data, "append", spark, "compatible")
    assert not isinstance(here, Exception), here
    assert not isinstance(there, Exception), there
    assert exported(local) == exported(distributed)


BAD = {
    "append": lines(
        node("Person", slug="ok"),
        "{broken",
        '{"type": "Person", "data": {"slug": "d", "slug": "e"}}',
        node("Persn", slug="x"),
        node("Person", slug="p1", age="old"),
        node("Person", slug="p2", age=2**40),
        node("Person", slug="p3", agee=1),
        node("Person", name="no key"),
        node("Person", slug="p4", age=151),
        node("Person", slug="Upper", mood="grim"),
        {"type": "Person", "data": {"slug": "p5", "id": "other"}},
        {"edge": "Knows", "to": "ada"},
        node("Person", slug="bob"),
        node("Person", slug="twice"),
        node("Person", slug="twice", name="again"),
        node("Person", slug="e1", email="ada@x.org"),
        node("Person", slug="e2", email="new@x.org"),
        node("Person", slug="e3", email="new@x.org"),
        node("Slot", region="s", code=1, on="2024-02-29", note="a"),
        edge("Knows", "ok", "nobody"),
        edge("Knows", "nobody", "ada"),
        edge("Knows", "ok", "p1"),
        {"edge": "Knows", "from": "ok", "to": "ada", "data": {"id": "k1"}},
        {"type": "Note", "data": {"id": "m", "text": "x"}},
        {"type": "Note", "data": {"id": "m", "text": "y"}},
        edge("About", "n1", "ok"),
        edge("About", "n1", "ada"),
        rates("r2", "ada", "2024-02-29"),
        rates("r3", "bob", "2024-02-29"),
        rates("r4", "bob", "2024-02-29"),
    ),
    "merge": lines(
        node("Person", slug="ok", email="ada@x.org"),
        node("Person", slug="p4", age=-1),
        node("Person", slug="twice"),
        node("Person", slug="twice", name="again"),
        edge("Knows", "ok", "nobody", id="k2"),
        edge("About", "n1", "ok", id="a2"),
        edge("About", "n1", "ada", id="a3"),
    ),
    "overwrite": lines(
        node("Person", slug="ok", email="ada@x.org"),
        node("Person", slug="ok2", email="ada@x.org"),
        {"type": "Note", "data": {"id": "m", "text": "x"}},
        edge("About", "m", "ok"),
        edge("About", "m", "ok2"),
        edge("About", "m", "ada"),
        rates("r2", "ok", "2024-02-29"),
        rates("r3", "ok", "2024-02-29"),
    ),
}


REPEATED: dict[str, list[list[str]]] = {
    "append": [["14", "15"]],
    "merge": [["3", "4"]],
    "overwrite": [],
}
"""The lines of both records of each key that an input of `BAD` has twice."""


def problems(error: Any) -> set[tuple[Any, ...]]:
    assert isinstance(error, OmnigraphError), error
    return {
        (
            each["kind"],
            each["file"] and Path(each["file"]).name,
            each.get("line"),
            each["type"],
            each["property"],
            each["message"],
        )
        for each in error.details["problems"]
    }


@pytest.mark.parametrize(
    ("mode", "keys_max"),
    [("append", 10**6), ("append", 0), ("merge", 10**6), ("overwrite", 10**6), ("overwrite", 0)],
)
def test_c_pip_002_both_engines_find_the_same_problems(
    mode, keys_max, tmp_path, spark, monkeypatch
):
    # Keys are counted by single workers, or by Spark where they are too many for one.
    monkeypatch.setattr("omnigraph.loading.checks.KEYS_MAX", keys_max)
    (local, here), (distributed, there) = both(tmp_path, BAD[mode], mode, spark)
    assert problems(here) == problems(there)
    repeated = [each["message"] for each in there.details["problems"] if "key" in each["kind"]]
    assert [re.findall(r":(\d+)\b", each) for each in repeated] == REPEATED[mode]
    assert here.details["counts"] == there.details["counts"]
    assert len(distributed.list_commits()) == 2
    assert exported(distributed) == exported(local)
