// A text editor. It lives in a shadow root: there its styles are constructed, not inline, so the
// page needs no `unsafe-inline`.
import { autocompletion, closeBrackets, completionKeymap, type CompletionSource } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { bracketMatching, indentOnInput } from "@codemirror/language";
import { type Diagnostic, setDiagnostics } from "@codemirror/lint";
import { Compartment, EditorState } from "@codemirror/state";
import { EditorView, drawSelection, keymap, lineNumbers } from "@codemirror/view";
import { useEffect, useRef } from "preact/hooks";
import type { ApiError } from "./api";
import { omnigraph } from "./language";

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
  ".cm-lintRange-error": {
    backgroundImage: "none",
    textDecoration: "underline wavy var(--bad) 1.5px",
    textUnderlineOffset: "3px",
  },
  ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--text)", border: "1px solid var(--line)" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
});

export interface EditorProps {
  label: string;
  /** The text to begin with. A page that wants another one gives the editor another `key`: writing
   * its own text back to it would undo what was typed since. */
  text: string;
  onChange: (text: string) => void;
  onRun?: () => void;
  error?: ApiError;
  complete?: CompletionSource;
}

export function Editor(props: EditorProps) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | undefined>(undefined);
  const latest = useRef(props);
  latest.current = props;
  useEffect(() => {
    const root = host.current!.shadowRoot ?? host.current!.attachShadow({ mode: "open" });
    const run = () => {
      latest.current.onRun?.();
      return true;
    };
    const completing = new Compartment();
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
          completing.of(
            props.complete
              ? autocompletion({ override: [(context) => latest.current.complete!(context)] })
              : [],
          ),
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
  useEffect(() => {
    const editor = view.current!;
    editor.dispatch(setDiagnostics(editor.state, diagnostics(props.error, props.text)));
  }, [props.error]);
  return <div class="editor" ref={host} />;
}

function diagnostics(error: ApiError | undefined, text: string): Diagnostic[] {
  const position = error?.position;
  if (error === undefined || position === undefined) return [];
  const from = indexOfByte(text, position.byte_start);
  const to = Math.max(indexOfByte(text, position.byte_end), Math.min(from + 1, text.length));
  return from > text.length ? [] : [{ from, to, severity: "error", message: error.message }];
}

/** The server counts bytes of UTF-8, the editor units of UTF-16. */
export function indexOfByte(text: string, byte: number): number {
  return new TextDecoder().decode(new TextEncoder().encode(text).slice(0, byte)).length;
}
