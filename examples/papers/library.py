"""Makes up a library of papers as Parquet files: the same one every time.

Citations go back in time and prefer papers of the same field; titles and abstracts are made of the
words of a field; a subject is a point near the centre of its field.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

DIMENSIONS = 16
SEED = 2
AUTHORS_PER_PAPER = 2
CITATIONS_PER_PAPER = 5
PAPERS_PER_AUTHOR = 3
FIRST_DAY = dt.date(2000, 1, 1)
DAYS = 9_000
COUNTRIES = ["at", "br", "ca", "de", "fr", "in", "jp", "ke", "us"]

FIELDS: dict[str, str] = {
    "graphs": "graph node edge path traversal cluster walk community centrality subgraph",
    "storage": "table column page commit snapshot log compaction replica index recovery",
    "vision": "image pixel camera depth texture segment contour lens motion frame",
    "language": "word grammar sentence parser translation meaning dialogue speech token corpus",
    "climate": "rain wind ocean ice season storm carbon drought current glacier",
    "genes": "protein cell genome mutation enzyme tissue sequence strain marker membrane",
    "robots": "arm gripper sensor plan balance joint obstacle map wheel torque",
    "markets": "price auction trade risk credit bond demand forecast contract supply",
}
GENERAL = [
    "model",
    "method",
    "result",
    "study",
    "measure",
    "sample",
    "survey",
    "bound",
    "scale",
    "limit",
    "design",
    "test",
]
GIVEN = [
    "Ada",
    "Bo",
    "Chen",
    "Dina",
    "Emil",
    "Fatou",
    "Gus",
    "Hana",
    "Ivo",
    "Jun",
    "Kira",
    "Leo",
    "Mona",
    "Nils",
    "Olga",
    "Pia",
]
FAMILY = [
    "Abe",
    "Brandt",
    "Costa",
    "Diaz",
    "Eze",
    "Fuchs",
    "Gomez",
    "Haas",
    "Ito",
    "Jansen",
    "Kaya",
    "Lund",
    "Meyer",
    "Novak",
]

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Library:
    """The files of a made-up library, by type."""

    nodes: dict[str, Path]
    edges: dict[str, Path]
    node_count: int
    edge_count: int


def centre(field: str) -> list[float]:
    """The point around which the papers of a field lie."""
    random = np.random.default_rng([SEED, list(FIELDS).index(field)])
    return [round(float(x), 3) for x in random.standard_normal(DIMENSIONS)]


def make_library(directory: Path, papers: int) -> Library:
    """Write a library with so many papers; a third as many people have written them."""
    random = np.random.default_rng(SEED)
    authors = max(papers // PAPERS_PER_AUTHOR, 3)
    fields = random.integers(0, len(FIELDS), papers)
    days = np.sort(random.integers(0, DAYS, papers))
    tables = {
        "Author": _authors(random, authors),
        "Paper": _papers(random, fields, days),
        "Wrote": _wrote(random, authors, papers),
        "Cites": _cites(random, fields),
    }
    paths = {name: directory / f"{name.lower()}.parquet" for name in tables}
    for name, table in tables.items():
        pq.write_table(table, paths[name], row_group_size=max(1, table.num_rows // 4))
    return Library(
        {name: paths[name] for name in ("Author", "Paper")},
        {name: paths[name] for name in ("Wrote", "Cites")},
        authors + papers,
        tables["Wrote"].num_rows + tables["Cites"].num_rows,
    )


def handle(number: int) -> str:
    """The key of an author."""
    return f"a{number:06}"


def doi(number: int) -> str:
    """The key of a paper."""
    return f"10.5555/{number:07}"


def _authors(random: np.random.Generator, count: int) -> pa.Table:
    given, family = random.integers(0, len(GIVEN), count), random.integers(0, len(FAMILY), count)
    return pa.table(
        {
            "handle": [handle(at) for at in range(count)],
            "name": [f"{GIVEN[g]} {FAMILY[f]}" for g, f in zip(given, family, strict=True)],
            "country": [COUNTRIES[c] for c in random.integers(0, len(COUNTRIES), count)],
        }
    )


def _papers(random: np.random.Generator, fields: Numbers, days: Numbers) -> pa.Table:
    names = list(FIELDS)
    words = [FIELDS[name].split() for name in names]
    own = random.integers(0, 10, (len(fields), 8))
    general = random.integers(0, len(GENERAL), (len(fields), 4))
    texts = [
        [words[field][word] for word in picks] + [GENERAL[word] for word in others]
        for field, picks, others in zip(
            fields.tolist(), own.tolist(), general.tolist(), strict=True
        )
    ]
    centres = np.array([centre(name) for name in names], np.float32)
    noise = random.standard_normal((len(fields), DIMENSIONS), dtype=np.float32)
    points = centres[fields] + np.float32(0.6) * noise
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), DIMENSIONS)
    return pa.table(
        {
            "doi": [doi(at) for at in range(len(fields))],
            "title": [f"{t[0]} and {t[1]}: a {t[8]} of {t[2]}".capitalize() for t in texts],
            "abstract": [" ".join(text) for text in texts],
            "field": [names[field] for field in fields.tolist()],
            "published": pa.array(_days_since_epoch(days), pa.int32()).cast(pa.date32()),
            "subject": vectors,
        }
    )


def _days_since_epoch(days: Numbers) -> Numbers:
    return days + (FIRST_DAY - dt.date(1970, 1, 1)).days


def _wrote(random: np.random.Generator, authors: int, papers: int) -> pa.Table:
    written = np.repeat(np.arange(papers), AUTHORS_PER_PAPER)
    # Authors of neighbouring papers know each other: they write together again.
    writers = (written * authors // papers + random.integers(0, 50, len(written))) % authors
    places = np.tile(np.arange(1, AUTHORS_PER_PAPER + 1, dtype=np.int32), papers)
    return pa.table(
        {
            "from": [handle(at) for at in writers.tolist()],
            "to": [doi(at) for at in written.tolist()],
            "place": places,
        }
    )


def _cites(random: np.random.Generator, fields: Numbers) -> pa.Table:
    """Citations of older papers; most of the same field."""
    papers = len(fields)
    citing = np.repeat(np.arange(1, papers), CITATIONS_PER_PAPER)
    # Squared, so that recent papers are cited more often.
    back = (random.random(len(citing)) ** 2 * citing).astype(np.int64) + 1
    cited = np.maximum(citing - back, 0)
    for _ in range(4):
        other = (fields[cited] != fields[citing]) & (random.random(len(citing)) < 0.7)
        cited[other] = np.maximum(cited[other] - 1, 0)
    return pa.table(
        {
            "from": [doi(at) for at in citing.tolist()],
            "to": [doi(at) for at in cited.tolist()],
        }
    )
