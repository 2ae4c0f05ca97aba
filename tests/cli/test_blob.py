"""`omnigraph blob get` and `stat`, and the flag with which blobs may be named by URI."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from random import Random

import pytest

import omnigraph as og
from omnigraph.storage.blobs import OpenBlob
from tests.cli.conftest import PROGRAM, ROOT, Run
from tests.support.forked import Command

SCHEMA = "node Person { name: String @key  photo: Blob?  age: I32? }"
PHOTO = bytes(range(256)) * 40
LARGE = Random(3).randbytes(9_000_000)
ADA = ("node", "Person", "ada", "photo")


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    folder = tmp_path / "pictures"
    folder.mkdir()
    graph = og.init(tmp_path / "team.omni", SCHEMA, external_blobs=[folder.as_uri()])
    rows = {
        "ada": f"base64:{b64encode(PHOTO).decode()}",
        "empty": "base64:",
        "none": None,
        "far": (folder / "far.png").as_uri(),
    }
    records = [{"type": "Person", "data": {"name": n, "photo": p}} for n, p in rows.items()]
    graph.load(mode="overwrite", data="\n".join(map(json.dumps, records)))
    return graph


def of(name: str) -> tuple[str, str, str, str]:
    return ("node", "Person", name, "photo")


def piped(graph: og.Graph, *arguments: str) -> tuple[int, bytes, str]:
    """What a program of its own writes to a pipe."""
    command = Command("blob", *arguments, "--store", graph.uri)
    out, err = command.communicate()
    return command.wait(), out, err.decode()


# --- get ------------------------------------------------------------------------------------------


def test_get_writes_the_bytes_and_nothing_else(graph: og.Graph):
    assert piped(graph, "get", *ADA) == (0, PHOTO, "")
    assert piped(graph, "get", *of("empty")) == (0, b"", "")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--offset", "10", "--length", "5"), PHOTO[10:15]),
        (("--offset", "10200"), PHOTO[10200:]),
        (("--offset", "10200", "--length", "1000000"), PHOTO[10200:]),
        (("--length", "3"), PHOTO[:3]),
    ],
)
def test_c_cli_033_ranges_end_with_the_value(
    run: Run, graph: og.Graph, tmp_path: Path, flags: tuple[str, ...], expected: bytes
):
    out = tmp_path / "part"
    done = run("blob", "get", *ADA, "--store", graph.uri, "--out", out, *flags)
    assert (done.code, done.err) == (0, "")
    assert out.read_bytes() == expected


@pytest.mark.parametrize(
    ("name", "flags", "code"),
    [
        ("ada", ("--length", "0"), 2),
        ("ada", ("--offset", "-1"), 2),
        ("ada", ("--length", "-5"), 2),
        ("ada", ("--offset", "9223372036854775807", "--length", "1"), 2),
        ("ada", ("--offset", str(len(PHOTO))), 1),
        ("empty", ("--offset", "1"), 1),
        ("empty", ("--length", "1"), 1),
        ("none", (), 1),
        ("nobody", (), 1),
        ("far", (), 1),
    ],
)
def test_c_cli_033_a_failure_before_the_first_byte_leaves_the_file_alone(
    run: Run, graph: og.Graph, tmp_path: Path, name: str, flags: tuple[str, ...], code: int
):
    out = tmp_path / "kept"
    out.write_bytes(b"what was there")
    done = run("blob", "get", *of(name), "--store", graph.uri, "--out", out, *flags)
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("error: ")
    assert out.read_bytes() == b"what was there"
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_c_cli_033_a_range_that_fits_nothing_fails_before_a_graph_is_looked_for(run: Run):
    done = run("blob", "get", *ADA, "--store", "no/such/graph", "--length", "0")
    assert done.code == 2
    assert "is not a range" in done.err


def test_a_failure_in_the_middle_leaves_the_file_alone(
    run: Run, graph: og.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    row = {"type": "Person", "data": {"name": "ada"}}
    row["data"]["photo"] = f"base64:{b64encode(LARGE).decode()}"  # type: ignore[index]
    graph.load(mode="merge", data=json.dumps(row))
    out = tmp_path / "kept"
    out.write_bytes(b"what was there")
    read = OpenBlob.read

    def fails_later(self: object, start: int, length: int) -> bytes:
        if start:
            raise og.errors.StorageError("the store went away")
        return read(self, start, length)  # type: ignore[arg-type]

    monkeypatch.setattr(OpenBlob, "read", fails_later)
    done = run("blob", "get", *ADA, "--store", graph.uri, "--out", out)
    assert (done.code, out.read_bytes()) == (1, b"what was there")
    assert "the store went away" in done.err


def test_get_into_a_file_says_so(run: Run, graph: og.Graph, tmp_path: Path):
    out = tmp_path / "ada.png"
    done = run("blob", "get", *ADA, "--store", graph.uri, "--out", out)
    assert done.out == f"10240 bytes of photo of node Person 'ada' written to {out}\n"
    document = json.loads(
        run("blob", "get", *ADA, "--store", graph.uri, "--out", out, "--json").out
    )
    assert (document["out"], document["bytes"], document["size"]) == (str(out), 10240, 10240)
    run("blob", "get", *of("empty"), "--store", graph.uri, "--out", out)
    assert out.read_bytes() == b""


def test_a_large_value_goes_through_a_pipe(graph: og.Graph):
    row = {
        "type": "Person",
        "data": {"name": "big", "photo": f"base64:{b64encode(LARGE).decode()}"},
    }
    graph.load(mode="merge", data=json.dumps(row))
    assert piped(graph, "get", *of("big")) == (0, LARGE, "")


def test_a_reader_that_goes_away_ends_it_quietly(graph: og.Graph):
    row = {
        "type": "Person",
        "data": {"name": "big", "photo": f"base64:{b64encode(LARGE).decode()}"},
    }
    graph.load(mode="merge", data=json.dumps(row))
    command = [*PROGRAM, "blob", "get", *of("big"), "--store", graph.uri]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as it:
        assert it.stdout is not None and it.stderr is not None
        assert it.stdout.read(10) == LARGE[:10]
        it.stdout.close()
        assert it.stderr.read() == b""
        assert it.wait() == 141


def test_bytes_are_not_written_to_a_terminal(
    run: Run, graph: og.Graph, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    done = run("blob", "get", *ADA, "--store", graph.uri)
    assert done.code == 2
    assert "`--out FILE`" in done.err


def test_errors_as_json_stay_out_of_the_bytes(graph: og.Graph):
    code, out, err = piped(graph, "get", *of("nobody"), "--json")
    assert (code, out) == (1, b"")
    assert json.loads(err)["code"] == "not_found"
    code, out, err = piped(graph, "get", *of("empty"), "--offset", "3", "--json")
    assert (code, out) == (1, b"")
    assert json.loads(err)["blob_range"] == {"start": 3, "end": 3, "length": 0}


def test_c_cli_035_of_an_external_value_only_the_uri_is_told(graph: og.Graph, tmp_path: Path):
    far = tmp_path / "pictures" / "far.png"
    far.write_bytes(b"must not be read")
    code, out, err = piped(graph, "get", *of("far"))
    assert (code, out) == (1, b"")
    assert far.as_uri() in err
    assert "blob stat" in err


# --- stat -----------------------------------------------------------------------------------------


def test_c_cli_034_stat_leaves_out_what_does_not_apply(run: Run, graph: og.Graph, tmp_path: Path):
    head = graph.snapshot().graph_commit_id
    managed = json.loads(run("blob", "stat", *ADA, "--store", graph.uri, "--json").out)
    etag = managed.pop("etag")
    assert etag.startswith('"') and etag.endswith('"')
    assert managed == {
        "selector": {"entity": "node", "type": "Person", "id": "ada", "property": "photo"},
        "kind": "managed",
        "size": len(PHOTO),
        "target": {"branch": "main", "resolved_snapshot": head},
    }
    external = json.loads(
        run("blob", "stat", *of("far"), "--store", graph.uri, "--snapshot", head, "--json").out
    )
    assert external == {
        "selector": {"entity": "node", "type": "Person", "id": "far", "property": "photo"},
        "kind": "external",
        "uri": (tmp_path / "pictures" / "far.png").as_uri(),
        "target": {"snapshot": head, "resolved_snapshot": head},
    }


def test_stat_for_people(run: Run, graph: og.Graph):
    lines = run("blob", "stat", *ADA, "--store", graph.uri).out.splitlines()
    assert lines[0] == "photo of node Person 'ada'"
    assert lines[1:3] == ["kind  managed", "size  10240"]
    assert lines[-1].startswith("at    branch main, commit ")


def test_stat_knows_branches(run: Run, graph: og.Graph):
    graph.create_branch("review")
    change = 'query q { update Person set { photo: "base64:AAE=" } where name = "ada" }'
    graph.mutate(change, branch="review")
    found = run("blob", "stat", *ADA, "--store", graph.uri, "--branch", "review", "--json")
    assert json.loads(found.out)["size"] == 2
    both = run("blob", "stat", *ADA, "--store", graph.uri, "--branch", "main", "--snapshot", "x")
    assert (both.code, "mutually exclusive" in both.err) == (2, True)


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        (("nodes", "Person", "ada", "photo"), "say `node` or `edge`"),
        (("node", "Persn", "ada", "photo"), "did you mean `Person`?"),
        (("node", "Person", "ada", "foto"), "did you mean `photo`?"),
        (("node", "Person", "ada", "age"), "is not a Blob"),
        (("node", "Person", "none", "photo"), "is null on branch main"),
    ],
)
def test_a_wrong_selector_is_explained(
    run: Run, graph: og.Graph, selector: tuple[str, ...], said: str
):
    done = run("blob", "stat", *selector, "--store", graph.uri)
    assert (done.code, done.out) == (1, "")
    assert said in done.err


def test_without_a_verb_the_group_says_what_there_is(run: Run):
    done = run("blob")
    assert done.code == 2
    assert "get" in done.err and "stat" in done.err


# --- naming objects elsewhere ---------------------------------------------------------------------


def test_load_and_mutate_take_the_folders_that_blobs_may_name(
    run: Run, graph: og.Graph, tmp_path: Path
):
    folder = tmp_path / "pictures"
    (folder / "x.png").write_bytes(b"x of pictures")
    uri = (folder / "x.png").as_uri()
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps({"type": "Person", "data": {"name": "x", "photo": uri}}))
    load = ("load", graph.uri, "--data", data, "--mode", "merge")
    refused = run(*load)
    assert (refused.code, "`--external-blobs`" in refused.err) == (1, True)
    assert run(*load, "--external-blobs", folder.as_uri()).code == 0
    assert graph.blob("node", "Person", "x", "photo").read() == b"x of pictures"

    change = f'query q {{ insert Person {{ name: "y", photo: "{uri}" }} }}'
    mutate = ("mutate", "--store", graph.uri, "-e", change)
    assert run(*mutate).code == 1
    assert run(*mutate, "--external-blobs", folder.as_uri()).code == 0
    assert graph.blob("node", "Person", "y", "photo").read() == b"x of pictures"
    bad = run(*mutate, "--external-blobs", str(folder))
    assert (bad.code, "does not begin with a scheme" in bad.err) == (1, True)
