"""`omnigraph lsp`: the language service for editors, by the Language Server Protocol on stdio.

The answers come from `query.editing`, which Studio uses over HTTP; this module converts positions,
and finds the schema of a query file: the one that the command or the editor names, else the nearest
`schema.pg` in the folder of the file or above it. Texts open in the editor take precedence over
files on disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls import uris
from pygls.lsp.server import LanguageServer
from pygls.workspace import PositionCodec

from omnigraph.model.editing import Diagnostic, Place
from omnigraph.query.editing import Document
from omnigraph.syntax.formatting import language_of

SCHEMA_NAME = "schema.pg"
TEXT_CHARACTERS_MAX = 1_000_000
"""Larger texts are not analysed, which a message tells."""

_SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "info": types.DiagnosticSeverity.Information,
}
_KINDS = {
    "keyword": types.CompletionItemKind.Keyword,
    "type": types.CompletionItemKind.Class,
    "edge": types.CompletionItemKind.Reference,
    "property": types.CompletionItemKind.Field,
    "variable": types.CompletionItemKind.Variable,
    "function": types.CompletionItemKind.Function,
}


class Opened:
    """A text in the editor, with the schema for its names."""

    def __init__(self, server: OmnigraphLanguageServer, uri: str) -> None:
        self.uri = uri
        self._codec = server.workspace.position_codec
        self.schema_uri = server.schema_of(uri)
        schema = None if self.schema_uri is None else server.text_of(self.schema_uri)
        self.document = Document(server.text_of(uri) or "", language_of(uri), schema)

    def offset(self, position: types.Position) -> int:
        """The character offset of an editor position."""
        lines = _lines(self.document.text)
        at = self._codec.position_from_client_units(lines, position)
        return self.document.offset(at.line + 1, at.character + 1)

    def range(self, place: Place) -> types.Range:
        """A range of this text in editor positions."""
        return _range(self._codec, self.document.text, place)

    def whole(self) -> types.Range:
        """The range of the whole text."""
        lines = _lines(self.document.text)
        return self.range(Place(1, 1, len(lines), len(lines[-1]) + 1))


class OmnigraphLanguageServer(LanguageServer):
    """Serves one editor; ``schema``, if given, applies to every query file."""

    def __init__(self, version: str, schema: Path | None = None) -> None:
        super().__init__(
            "omnigraph", version, text_document_sync_kind=types.TextDocumentSyncKind.Full
        )
        self.schema = schema

    def text_of(self, uri: str) -> str | None:
        """The text that is open in the editor, or that of the file; None if there is neither."""
        opened = self.workspace.text_documents.get(uri)
        if opened is not None:
            return str(opened.source)
        path = uris.to_fs_path(uri)
        try:
            return None if path is None else Path(path).read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    def schema_of(self, uri: str) -> str | None:
        """The schema for the names of a query file."""
        path = uris.to_fs_path(uri)
        if not _is_query(uri):
            return None
        if self.schema is not None:
            return _uri(self.schema.absolute())
        for folder in () if path is None else Path(path).parents:
            found = _uri(folder / SCHEMA_NAME)
            if found in self.workspace.text_documents or (folder / SCHEMA_NAME).is_file():
                return found
        return None

    def publish(self, uri: str) -> None:
        """Send the problems of a text; for a schema, also those of all open queries."""
        about = [uri]
        if not _is_query(uri):
            about += filter(_is_query, self.workspace.text_documents)
        for each in about:
            self.text_document_publish_diagnostics(
                types.PublishDiagnosticsParams(each, [*self._problems(each)])
            )

    def _problems(self, uri: str) -> Iterator[types.Diagnostic]:
        text = self.text_of(uri) or ""
        if len(text) > TEXT_CHARACTERS_MAX:
            yield types.Diagnostic(
                types.Range(types.Position(0, 0), types.Position(0, 0)),
                f"the text has more than {TEXT_CHARACTERS_MAX} characters and is not checked",
                types.DiagnosticSeverity.Information,
                source="omnigraph",
            )
            return
        opened = Opened(self, uri)
        for problem in opened.document.diagnostics():
            yield types.Diagnostic(
                opened.range(problem.place),
                _told(problem),
                _SEVERITIES[problem.severity],
                problem.code,
                source="omnigraph",
            )


def language_server(version: str, schema: Path | None = None) -> OmnigraphLanguageServer:
    """A server, to be started with `start_io`."""
    server = OmnigraphLanguageServer(version, schema)
    # The library registers each function for a protocol method, and calls it by that.

    @server.feature(types.INITIALIZE)
    def configure(ls: OmnigraphLanguageServer, params: types.InitializeParams) -> None:
        options = params.initialization_options
        named = options.get("schema") if isinstance(options, dict) else None
        if isinstance(named, str) and named and ls.schema is None:
            ls.schema = Path(ls.workspace.root_path or ".") / named

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def changed(
        ls: OmnigraphLanguageServer,
        params: types.DidOpenTextDocumentParams
        | types.DidChangeTextDocumentParams
        | types.DidSaveTextDocumentParams,
    ) -> None:
        ls.publish(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(["$", ".", "@", ":"]))
    def complete(ls: OmnigraphLanguageServer, params: types.CompletionParams) -> Any:
        opened = Opened(ls, params.text_document.uri)
        found = opened.document.complete(opened.offset(params.position))
        return [
            types.CompletionItem(
                each.label, kind=_KINDS[each.kind], detail=each.detail, sort_text=f"{index:05}"
            )
            for index, each in enumerate(found)
        ]

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(ls: OmnigraphLanguageServer, params: types.HoverParams) -> Any:
        opened = Opened(ls, params.text_document.uri)
        found = opened.document.hover(opened.offset(params.position))
        if found is None:
            return None
        text = types.MarkupContent(types.MarkupKind.PlainText, found.text)
        return types.Hover(text, opened.range(found.place))

    @server.feature(types.TEXT_DOCUMENT_DEFINITION)
    def define(ls: OmnigraphLanguageServer, params: types.DefinitionParams) -> Any:
        opened = Opened(ls, params.text_document.uri)
        found = opened.document.definition(opened.offset(params.position))
        if found is None:
            return None
        if found.document == "text" or opened.schema_uri is None:
            return types.Location(opened.uri, opened.range(found.place))
        schema = Opened(ls, opened.schema_uri)
        return types.Location(schema.uri, schema.range(found.place))

    @server.feature(types.TEXT_DOCUMENT_FORMATTING)
    def layout(ls: OmnigraphLanguageServer, params: types.DocumentFormattingParams) -> Any:
        opened = Opened(ls, params.text_document.uri)
        text = opened.document.formatted()
        if text is None or text == opened.document.text:
            return []
        return [types.TextEdit(opened.whole(), text)]

    return server


def _uri(path: Path) -> str:
    return str(uris.from_fs_path(str(path)))


def _is_query(uri: str) -> bool:
    return language_of(uri) == "gq"


def _lines(text: str) -> list[str]:
    """The lines, split as `Document` does."""
    return text.split("\n")


def _range(codec: PositionCodec, text: str, place: Place) -> types.Range:
    lines = _lines(text)
    start, end = (
        codec.position_to_client_units(lines, types.Position(line - 1, column - 1))
        for line, column in ((place.line, place.column), (place.end_line, place.end_column))
    )
    return types.Range(start, end)


def _told(problem: Diagnostic) -> str:
    return problem.message if problem.hint is None else f"{problem.message}\n{problem.hint}"
