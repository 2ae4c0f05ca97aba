// A text editor that asks the language service of the server: what is wrong, what may come next,
// what a name means, how the text is laid out. It lives in a shadow root: there its styles are
// constructed, not inline, so the page needs no `unsafe-inline`.
import {
  type CompletionContext,
  type CompletionResult,
  autocompletion,
  closeBrackets,
  completionKeymap,
} from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { bracketMatching, indentOnInput } from "@codemirror/language";
import { type Diagnostic, setDiagnostics } from "@codemirror/lint";
import { EditorState, type Text } from "@codemirror/state";
import { EditorView, drawSelection, hoverTooltip, keymap, lineNumbers } from "@codemirror/view";
import { useEffect, useRef, useState } from "preact/hooks";
import type { ApiError, Graph, LanguageAnswer, Place, Position } from "./api";
import { omnigraph } from "./language";
import { asApiError } from "./parts";

const look = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "var(--field)", fontSize: "13.5px" },
  "&.cm-focused": { outline: "2px solid var(--focus)", outlineOffset: "-1px" },
  ".cm-content": { fontFamily: "var(--mono)", caretColor: "var(--text)", minHeight: "7em" },
  ".cm-scroller": { maxHeight: "45vh", overflow: "auto" },
  ".cm-gutters": { backgroundColor: "var(--field)", color: "var(--quiet)", border: "none" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "var(--selection) !important",
  },
  ".cm-lintRange": { backgroundImage: "none", textUnderlineOffset: "3px" },
  ".cm-lintRange-error": { textDecoration: "underline wavy var(--bad) 1.5px" },
  ".cm-lintRange-warning, .cm-lintRange-info": { textDecoration: "underline dotted var(--warn) 1.5px" },
  ".cm-tooltip": {
    backgroundColor: "var(--raised)",
    color: "var(--text)",
    border: "1px solid var(--line)",
    borderRadius: "8px",
    boxShadow: "var(--shadow)",
    overflow: "hidden",
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", maxHeight: "16em" },
  ".cm-tooltip-autocomplete ul li": { padding: "2px 8px" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-completionDetail": { opacity: "0.75", fontStyle: "normal" },
  ".cm-meaning": { padding: "6px 10px", whiteSpace: "pre-wrap", maxWidth: "38em", fontFamily: "var(--mono)" },
});

const CHECK_MS = 300;
/** What the kinds of the service are called by the editor, which has a picture for each. */
const KINDS: Record<string, string> = {
  keyword: "keyword",
  type: "class",
  edge: "method",
  property: "property",
  variable: "variable",
  function: "function",
};

export interface EditorProps {
  label: string;
  language: "gq" | "pg";
  graph: Graph;
  branch: string;
  /** The text to begin with. A page that wants another one gives the editor another `key`: writing
   * its own text back to it would undo what was typed since. */
  text: string;
  onChange: (text: string) => void;
  onRun?: () => void;
  /** What is wrong with a text, each time that it rests; or that nobody could say. */
  onChecked?: (text: string, problems: LanguageAnswer["diagnostics"], failure?: ApiError) => void;
  /** What the server said about the text when it was run. */
  error?: ApiError;
}

export function Editor(props: EditorProps) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | undefined>(undefined);
  const latest = useRef(props);
  const [found, setFound] = useState<{ of: string; answer: LanguageAnswer }>();
  latest.current = props;
  const ask = (text: string, at?: { line: number; column: number }, signal?: AbortSignal) =>
    props.graph.language(text, props.language, props.branch, at, signal);

  useEffect(() => {
    const root = host.current!.shadowRoot ?? host.current!.attachShadow({ mode: "open" });
    const run = () => {
      latest.current.onRun?.();
      return true;
    };
    const meaning = hoverTooltip(async (editor, at) => {
      const { doc } = editor.state;
      const { hover } = await ask(doc.toString(), placeAt(doc, at)).catch(() => ({ hover: undefined }));
      if (!hover) return null;
      const [from, to] = rangeOf(doc, hover.place);
      const dom = Object.assign(document.createElement("div"), { className: "cm-meaning", textContent: hover.text });
      return { pos: from, end: to, above: true, create: () => ({ dom }) };
    });
    view.current = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: props.text,
        extensions: [
          keymap.of([{ key: "Mod-Enter", run }, ...completionKeymap, ...defaultKeymap, ...historyKeymap]),
          history(),
          lineNumbers(),
          drawSelection(),
          bracketMatching(),
          closeBrackets(),
          indentOnInput(),
          autocompletion({ override: [(context) => complete(context, ask)] }),
          meaning,
          omnigraph,
          look,
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": props.label }),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) latest.current.onChange(update.state.doc.toString());
          }),
        ],
      }),
    });
    return () => view.current?.destroy();
  }, []);

  // The text is checked when it rests; what is wrong is underlined.
  useEffect(() => {
    const asking = new AbortController();
    const { text } = props;
    const timer = setTimeout(
      () =>
        ask(text, undefined, asking.signal).then(
          (answer) => {
            setFound({ of: text, answer });
            latest.current.onChecked?.(text, answer.diagnostics);
          },
          (problem) => asking.signal.aborted || latest.current.onChecked?.(text, [], asApiError(problem)),
        ),
      found === undefined ? 0 : CHECK_MS,
    );
    return () => {
      clearTimeout(timer);
      asking.abort();
    };
  }, [props.text]);
  useEffect(() => {
    const editor = view.current!;
    const { doc } = editor.state;
    const isCurrent = found !== undefined && found.of === doc.toString();
    const problems = isCurrent ? found.answer.diagnostics.map((each) => diagnosticOf(doc, each)) : [];
    if (problems.length === 0 && props.error?.position) problems.push(errorOf(doc, props.error, props.error.position));
    editor.dispatch(setDiagnostics(editor.state, problems));
  }, [found, props.error]);

  const formatted = found?.of === props.text ? found.answer.formatted : undefined;
  const format = () => {
    const editor = view.current!;
    const { state } = editor;
    const head = Math.min(state.selection.main.head, formatted!.length);
    editor.dispatch({ changes: { from: 0, to: state.doc.length, insert: formatted! }, selection: { anchor: head } });
  };
  return (
    <>
      <div class="editor" ref={host} />
      <p class="editor-foot">
        <button type="button" class="plain" disabled={formatted === undefined || formatted === props.text} onClick={format}>
          Format
        </button>
        <small>
          <kbd>Ctrl</kbd> <kbd>Space</kbd> completes{props.onRun && <>, <kbd>Ctrl</kbd> <kbd>Enter</kbd> runs</>}
        </small>
      </p>
    </>
  );
}

type Ask = (text: string, at: { line: number; column: number }, signal?: AbortSignal) => Promise<LanguageAnswer>;

async function complete(context: CompletionContext, ask: Ask): Promise<CompletionResult | null> {
  const word = context.matchBefore(/[$]?\w+|[$]/);
  const isExpected = word !== null || context.matchBefore(/[.@]|:\s?/) !== null;
  if (!isExpected && !context.explicit) return null;
  const { doc } = context.state;
  const asking = new AbortController();
  context.addEventListener("abort", () => asking.abort());
  const { completions } = await ask(doc.toString(), placeAt(doc, context.pos), asking.signal).catch(() => ({
    completions: [],
  }));
  const options = completions.map(({ label, kind, detail }) => ({ label, type: KINDS[kind], detail }));
  return options.length ? { from: word?.from ?? context.pos, options, validFor: /^\$?\w*$/ } : null;
}

// --- places: the service counts characters, the editor units of UTF-16 ------------------------------

function placeAt(doc: Text, at: number): { line: number; column: number } {
  const line = doc.lineAt(at);
  return { line: line.number, column: [...line.text.slice(0, at - line.from)].length + 1 };
}

function offsetOf(doc: Text, line: number, column: number): number {
  const found = doc.line(Math.min(Math.max(line, 1), doc.lines));
  return found.from + [...found.text].slice(0, column - 1).join("").length;
}

/** From and to; an empty place gets a character, so that it can be seen. */
function rangeOf(doc: Text, place: Place): [number, number] {
  const [from, to] = [offsetOf(doc, place.line, place.column), offsetOf(doc, place.end_line, place.end_column)];
  return to > from ? [from, to] : [Math.max(0, Math.min(from, doc.length - 1)), Math.min(from + 1, doc.length)];
}

function diagnosticOf(doc: Text, each: LanguageAnswer["diagnostics"][number]): Diagnostic {
  const [from, to] = rangeOf(doc, each.place);
  return { from, to, severity: each.severity, message: each.hint ? `${each.message}; ${each.hint}` : each.message };
}

function errorOf(doc: Text, error: ApiError, { line, column, byte_start, byte_end }: Position): Diagnostic {
  const place = { line, column, end_line: line, end_column: column + Math.max(1, byte_end - byte_start) };
  const [from, to] = rangeOf(doc, place);
  return { from, to, severity: "error", message: error.message };
}
