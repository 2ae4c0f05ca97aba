// Colours for queries (.gq) and schemas (.pg). What is right or wrong is the server's to say.
import { HighlightStyle, StreamLanguage, syntaxHighlighting } from "@codemirror/language";
import { tags } from "@lezer/highlight";

const WORDS = new Set(
  (
    "query match with return distinct order limit per offset having not any all optional unnest " +
    "insert update delete set where for and or in is null as via desc asc case else " +
    "contains starts_with ends_with matches " +
    "interface node edge implements enum true false now"
  ).split(" "),
);

interface State {
  isInComment: boolean;
}

const language = StreamLanguage.define<State>({
  name: "omnigraph",
  startState: () => ({ isInComment: false }),
  token(stream, state) {
    if (state.isInComment) {
      if (stream.match(/^.*?\*\//)) state.isInComment = false;
      else stream.skipToEnd();
      return "comment";
    }
    if (stream.eatSpace()) return null;
    if (stream.match("//")) {
      stream.skipToEnd();
      return "comment";
    }
    if (stream.match("/*")) {
      state.isInComment = true;
      return "comment";
    }
    if (stream.match(/^"(?:[^"\\]|\\.)*"?/)) return "string";
    if (stream.match(/^-?\d+(\.\d+)?/)) return "number";
    if (stream.match(/^\$\w*/)) return "variableName";
    if (stream.match(/^@\w+/)) return "meta";
    const word = stream.match(/^[A-Za-z_]\w*/) as RegExpMatchArray | null;
    if (word) {
      if (WORDS.has(word[0])) return "keyword";
      return /^[A-Z]/.test(word[0]) ? "typeName" : null;
    }
    stream.next();
    return null;
  },
  languageData: { commentTokens: { line: "//" }, closeBrackets: { brackets: ["(", "[", "{", '"'] } },
});

const colours = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--code-keyword)", fontWeight: "600" },
  { tag: tags.string, color: "var(--code-string)" },
  { tag: tags.number, color: "var(--code-number)" },
  { tag: tags.variableName, color: "var(--code-variable)" },
  { tag: tags.typeName, color: "var(--code-type)" },
  { tag: tags.meta, color: "var(--code-number)" },
  { tag: tags.comment, color: "var(--quiet)", fontStyle: "italic" },
]);

export const omnigraph = [language, syntaxHighlighting(colours)];
