// Starts `omnigraph lsp` and shows what it says: problems, completions, meanings, places, layout.
// Written on the editor's own interface alone, so that there is nothing to install and to build.
"use strict";

const { spawn } = require("node:child_process");
const vscode = require("vscode");

const LANGUAGES = ["omnigraph-query", "omnigraph-schema"];
const RESTARTS_MAX = 3;
// The protocol counts kinds of completions from 1, the editor from 0.
const kindOf = (kind) => (kind === undefined ? undefined : kind - 1);

/** One process of the server, and the requests that wait for its answers. */
class Connection {
  constructor(command, args, onNotification, onEnd) {
    this.waiting = new Map();
    this.nextId = 1;
    this.buffer = Buffer.alloc(0);
    this.onNotification = onNotification;
    this.process = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
    this.process.stdout.on("data", (chunk) => this.read(chunk));
    this.process.stdin.on("error", () => {});
    this.process.on("error", (problem) => this.end(problem, onEnd));
    this.process.on("exit", (code) => this.end(new Error(`it ended with ${code}`), onEnd));
  }

  end(problem, onEnd) {
    for (const { reject } of this.waiting.values()) reject(problem);
    this.waiting.clear();
    if (!this.hasEnded) onEnd(problem);
    this.hasEnded = true;
  }

  send(message) {
    const body = Buffer.from(JSON.stringify({ jsonrpc: "2.0", ...message }), "utf8");
    this.process.stdin.write(`Content-Length: ${body.length}\r\n\r\n`);
    this.process.stdin.write(body);
  }

  notify(method, params) {
    this.send({ method, params });
  }

  request(method, params) {
    const id = this.nextId++;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.send({ id, method, params });
    });
  }

  read(chunk) {
    this.buffer = Buffer.concat([this.buffer, chunk]);
    for (;;) {
      const headerEnd = this.buffer.indexOf("\r\n\r\n");
      if (headerEnd < 0) return;
      const header = this.buffer.toString("ascii", 0, headerEnd);
      const length = Number(/Content-Length: *(\d+)/i.exec(header)?.[1] ?? 0);
      const end = headerEnd + 4 + length;
      if (this.buffer.length < end) return;
      const message = JSON.parse(this.buffer.toString("utf8", headerEnd + 4, end));
      this.buffer = this.buffer.subarray(end);
      this.take(message);
    }
  }

  take(message) {
    if (message.method !== undefined) {
      // A request of the server would wait for an answer; it has none to make of this client.
      if (message.id !== undefined) this.send({ id: message.id, result: null });
      this.onNotification(message.method, message.params);
      return;
    }
    const waiting = this.waiting.get(message.id);
    this.waiting.delete(message.id);
    if (message.error) waiting?.reject(new Error(message.error.message));
    else waiting?.resolve(message.result);
  }
}

const position = (at) => new vscode.Position(at.line, at.character);
const range = (found) => new vscode.Range(position(found.start), position(found.end));
const place = (document, at) => ({
  textDocument: { uri: document.uri.toString() },
  position: { line: at.line, character: at.character },
});

let connection;

function activate(context) {
  const problems = vscode.languages.createDiagnosticCollection("omnigraph");
  context.subscriptions.push(problems);
  const settings = vscode.workspace.getConfiguration("omnigraph");
  const isOurs = (document) => LANGUAGES.includes(document.languageId);
  let restarts = 0;

  const show = (method, params) => {
    if (method !== "textDocument/publishDiagnostics") return;
    const shown = params.diagnostics.map((each) => {
      const problem = new vscode.Diagnostic(
        range(each.range),
        each.message,
        each.severity - 1, // the editor counts from 0
      );
      problem.source = each.source;
      problem.code = each.code;
      return problem;
    });
    problems.set(vscode.Uri.parse(params.uri), shown);
  };

  const open = (document) => {
    if (!isOurs(document)) return;
    const item = {
      uri: document.uri.toString(),
      languageId: document.languageId,
      version: document.version,
      text: document.getText(),
    };
    connection.notify("textDocument/didOpen", { textDocument: item });
  };

  const start = async () => {
    const command = settings.get("command") || "omnigraph";
    connection = new Connection(command, ["lsp"], show, (problem) => {
      if (connection.isStopping) return;
      if (restarts++ < RESTARTS_MAX) return void start();
      vscode.window.showErrorMessage(
        `\`${command} lsp\` does not run: ${problem.message}. Install ` +
          "Omnigraph with its extra `lsp`, or name the command in `omnigraph.command`.",
      );
    });
    const folder = vscode.workspace.workspaceFolders?.[0]?.uri.toString() ?? null;
    try {
      await connection.request("initialize", {
        processId: process.pid,
        rootUri: folder,
        capabilities: {},
        initializationOptions: { schema: settings.get("schema") || null },
      });
    } catch {
      return; // it has ended, and was started again or reported
    }
    connection.notify("initialized", {});
    vscode.workspace.textDocuments.forEach(open);
  };

  const ask = async (method, params) => {
    try {
      return await connection.request(method, params);
    } catch {
      return null;
    }
  };

  context.subscriptions.push(
    vscode.workspace.onDidOpenTextDocument(open),
    vscode.workspace.onDidChangeTextDocument(({ document }) => {
      if (!isOurs(document)) return;
      const textDocument = { uri: document.uri.toString(), version: document.version };
      const contentChanges = [{ text: document.getText() }];
      connection.notify("textDocument/didChange", { textDocument, contentChanges });
    }),
    vscode.workspace.onDidSaveTextDocument((document) => {
      if (!isOurs(document)) return;
      connection.notify("textDocument/didSave", { textDocument: { uri: document.uri.toString() } });
    }),
    vscode.workspace.onDidCloseTextDocument((document) => {
      if (!isOurs(document)) return;
      problems.delete(document.uri);
      connection.notify("textDocument/didClose", {
        textDocument: { uri: document.uri.toString() },
      });
    }),
    vscode.languages.registerCompletionItemProvider(
      LANGUAGES,
      {
        async provideCompletionItems(document, at) {
          const found = (await ask("textDocument/completion", place(document, at))) ?? [];
          return found.map((each) => {
            const item = new vscode.CompletionItem(each.label, kindOf(each.kind));
            item.detail = each.detail;
            item.sortText = each.sortText;
            return item;
          });
        },
      },
      ...["$", ".", "@", ":"],
    ),
    vscode.languages.registerHoverProvider(LANGUAGES, {
      async provideHover(document, at) {
        const found = await ask("textDocument/hover", place(document, at));
        // As code: a text of a schema is not markup.
        const text = found && new vscode.MarkdownString().appendCodeblock(found.contents.value);
        return found && new vscode.Hover(text, range(found.range));
      },
    }),
    vscode.languages.registerDefinitionProvider(LANGUAGES, {
      async provideDefinition(document, at) {
        const found = await ask("textDocument/definition", place(document, at));
        return found && new vscode.Location(vscode.Uri.parse(found.uri), range(found.range));
      },
    }),
    vscode.languages.registerDocumentFormattingEditProvider(LANGUAGES, {
      async provideDocumentFormattingEdits(document, { tabSize, insertSpaces }) {
        const options = { tabSize, insertSpaces };
        const asked = { textDocument: { uri: document.uri.toString() }, options };
        const edits = (await ask("textDocument/formatting", asked)) ?? [];
        return edits.map((each) => vscode.TextEdit.replace(range(each.range), each.newText));
      },
    }),
  );
  return start();
}

async function deactivate() {
  if (connection === undefined || connection.hasEnded) return;
  connection.isStopping = true;
  await connection.request("shutdown", null).catch(() => {});
  connection.notify("exit", null);
}

module.exports = { activate, deactivate };
