"""The shared lexer and cursor, with the punctuation of a small made-up language."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import CompileError, QueryParseError
from omnigraph.syntax.tokens import NESTING_MAX, Lexer, Source, Span, Token, TokenKind, TokenStream

LEXER = Lexer(["{", "}", "(", ")", ".", "..", ",", "-", "/", "*", "<", "<="], QueryParseError)


def kinds_and_texts(text: str) -> list[tuple[str, str]]:
    return [(token.kind.name, token.text) for token in LEXER.tokens(Source(text))]


def stream_of(text: str) -> TokenStream:
    return TokenStream(Source(text), LEXER, QueryParseError)


def error_at_start(text: str) -> CompileError:
    with pytest.raises(QueryParseError) as caught:
        stream_of(text).unexpected("a miracle")
    return caught.value


# --- tokens ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("  \t\r\n ", []),
        ("// note", []),
        ("// note\nword", [("WORD", "word")]),
        ("/* a // b */word/**/", [("WORD", "word")]),
        ("/* a /* b */ word", [("WORD", "word")]),
        ("a_B1 _x _", [("WORD", "a_B1"), ("WORD", "_x"), ("WORD", "_")]),
        ("Type T2_x", [("TYPE", "Type"), ("TYPE", "T2_x")]),
        ("$a $_ $a_B", [("VAR", "a"), ("VAR", "_"), ("VAR", "a_B")]),
        ("12 1.5 007", [("INT", "12"), ("FLOAT", "1.5"), ("INT", "007")]),
        ("0..9", [("INT", "0"), ("PUNCT", ".."), ("INT", "9")]),
        ("1.x", [("INT", "1"), ("PUNCT", "."), ("WORD", "x")]),
        ('"a b" "" "\\"" "\\\\"', [("STRING", t) for t in ('"a b"', '""', '"\\""', '"\\\\"')]),
        ('"two\nlines"', [("STRING", '"two\nlines"')]),
        ('"// no comment"', [("STRING", '"// no comment"')]),
        ("<=<", [("PUNCT", "<="), ("PUNCT", "<")]),
        ("a/b", [("WORD", "a"), ("PUNCT", "/"), ("WORD", "b")]),
    ],
)
def test_text_splits_into_tokens(text, expected):
    assert kinds_and_texts(text) == [*expected, ("END", "")]


def test_tokens_know_where_they_stand():
    text = '  $long "x"\n Type '
    spans = [text[token.span.start : token.span.end] for token in LEXER.tokens(Source(text))]
    assert spans == ["$long", '"x"', "Type", ""]


@given(st.text(alphabet='aA1$._"\\/*{}<= \n#é', max_size=40))
def test_tokens_and_gaps_cover_the_text_up_to_the_first_bad_character(text):
    *tokens, end = LEXER.tokens(Source(text))
    assert (end.kind, end.span.start) == (TokenKind.END, len(text))
    at = 0
    for token in tokens:
        assert re.fullmatch(r"(?s)(?:\s|//[^\n]*|/\*.*?\*/)*", text[at : token.span.start])
        assert token.span.end > token.span.start
        at = token.span.end
    assert all(token.kind is not TokenKind.BAD for token in tokens[:-1])


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("'a'", 'unexpected character "\'"', "double quotes"),
        ("“a”", "unexpected character '“'", "straight double quotes"),
        ("`a`", "unexpected character '`'", "without quotes"),
        ("# note", "unexpected character '#'", "//"),
        (";", "unexpected character ';'", "semicolon"),
        ("é", "unexpected character 'é'", None),
        ("\0", "unexpected character '\\x00'", None),
        ('"abc', "unterminated string", 'close it with `"`'),
        ('"abc\\"', "unterminated string", 'close it with `"`'),
        ("/* abc", "unterminated comment", "close it with `*/`"),
        ("$Upper", "expected a variable name after '$'", "lowercase"),
        ("$", "expected a variable name after '$'", "lowercase"),
    ],
)
def test_unreadable_text_is_reported_when_the_cursor_gets_there(text, message, hint):
    error = error_at_start(text)
    assert error.reason == message
    assert error.position is not None
    assert (error.position.line, error.position.column) == (1, 1)
    assert (hint in (error.hint or "")) if hint else error.hint is None


def test_a_language_may_add_hints_for_its_own_habits():
    lexer = Lexer(["{"], QueryParseError, hints={"!": "say please"})
    with pytest.raises(QueryParseError) as caught:
        TokenStream(Source("!"), lexer, QueryParseError).unexpected("`{`")
    assert caught.value.hint == "say please"


def test_a_problem_in_front_of_unreadable_text_is_reported_first():
    stream = stream_of("word 'quoted'")
    with pytest.raises(QueryParseError, match="expected `verb`, found 'word'"):
        stream.expect_word("verb")
    stream.advance()
    with pytest.raises(QueryParseError, match="expected a verb here"):
        stream.fail("expected a verb here", Span(0, 4))
    with pytest.raises(QueryParseError, match="unexpected character"):
        stream.expect_word("verb")


def test_unreadable_text_ends_the_tokens():
    assert kinds_and_texts("a ' b") == [("WORD", "a"), ("BAD", "'"), ("END", "")]


# --- the cursor -----------------------------------------------------------------------------------


def test_looking_does_not_move():
    stream = stream_of("one Two {")
    assert stream.at_word("one", "other")
    assert stream.current.kind is TokenKind.WORD
    assert not stream.at_word("two")
    assert stream.current.text != "{"
    assert (stream.peek().text, stream.peek(2).text, stream.peek(9).kind) == (
        "Two",
        "{",
        TokenKind.END,
    )
    assert stream.current.text == "one"


def test_a_variable_is_no_word_of_its_name():
    stream = stream_of("$match")
    assert not stream.at_word("match")
    assert stream.take_word("match") is None


def test_taking_steps_over_and_expecting_fails():
    stream = stream_of("one { Two")
    assert stream.take_word("other") is None
    assert stream.take_word("one") == Token(TokenKind.WORD, "one", Span(0, 3))
    assert stream.expect_punct("{").span.start == 4
    with pytest.raises(QueryParseError, match="expected a number in the list, found 'Two'"):
        stream.expect_kind(TokenKind.INT, "a number", "in the list")
    assert stream.expect_kind(TokenKind.TYPE, "a type").text == "Two"
    with pytest.raises(QueryParseError, match=r"expected `\}`, found the end of the input"):
        stream.expect_punct("}")


def test_the_end_is_never_stepped_over():
    stream = stream_of("a")
    for _ in range(3):
        stream.advance()
    assert stream.current.kind is TokenKind.END


def test_span_from_ends_with_the_last_token_taken():
    stream = stream_of("one  two three")
    stream.advance()
    start = stream.advance().span.start
    assert stream.span_from(start) == Span(5, 8)


def test_misspelt_and_uppercase_words_get_a_suggestion():
    for text in ("retrun", "RETURN"):
        with pytest.raises(QueryParseError) as caught:
            stream_of(text).expect_word("match", "return")
        assert caught.value.reason == f"expected `match` or `return`, found '{text}'"
        assert caught.value.hint == "did you mean `return`?"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("$name", "'$name'"),
        ("a" * 50, "'" + "a" * 40 + "…'"),
        ('"two\nlines"', "'\"two…'"),
        ("", "the end of the input"),
    ],
)
def test_messages_show_tokens_briefly(text, shown):
    assert error_at_start(text).reason == f"expected a miracle, found {shown}"


def test_rescan_reads_text_with_another_pattern():
    stream = stream_of("well-known-9, rest")
    token = stream.rescan(re.compile(r"[a-z0-9-]+"))
    assert token == Token(TokenKind.WORD, "well-known-9", Span(0, 12))
    assert stream.current.text == ","
    assert stream.rescan(re.compile(r"[0-9]+")) is None
    assert stream.current.text == ","


def test_rescan_refuses_to_end_inside_a_token_or_to_pass_unreadable_text():
    with pytest.raises(QueryParseError, match="unexpected character 'c'"):
        stream_of("abc").rescan(re.compile("ab"))
    with pytest.raises(QueryParseError, match="unexpected character 'é'"):
        stream_of("aéb c").rescan(re.compile("aéb"))


# --- blocks and nesting ---------------------------------------------------------------------------


def test_block_parses_until_its_brace_and_returns_its_span():
    stream = stream_of(" { a b } c")
    words: list[str] = []
    assert stream.block(lambda: words.append(stream.advance().text)) == Span(1, 8)
    assert words == ["a", "b"]
    assert stream.current.text == "c"


def test_a_block_that_never_ends_says_where_it_began():
    stream = stream_of("\n{ a")
    words: list[str] = []
    with pytest.raises(QueryParseError) as caught:
        stream.block(lambda: words.append(stream.advance().text), "in the test")
    assert caught.value.reason == "expected `}` in the test, found the end of the input"
    assert caught.value.hint == "the block opened on line 2"


def test_nesting_is_limited():
    stream = stream_of("x")
    for _ in range(NESTING_MAX):
        stream.enter()
    with pytest.raises(QueryParseError, match=f"nested deeper than {NESTING_MAX} levels"):
        stream.enter()
    for _ in range(NESTING_MAX + 1):
        stream.leave()
    stream.enter()


# --- strings --------------------------------------------------------------------------------------


def test_string_value_decodes_the_five_escapes():
    stream = stream_of(r'"a\"b\\c\nd\re\tf"')
    assert stream.string_value(stream.current) == 'a"b\\c\nd\re\tf'


@pytest.mark.parametrize("escape", ["\\d", "\\u0041", "\\'", "\\/", "\\0", "\\\n"])
def test_any_other_escape_is_an_error_at_its_place(escape):
    stream = stream_of(f'"ab{escape}"')
    with pytest.raises(QueryParseError) as caught:
        stream.string_value(stream.current)
    assert caught.value.reason.startswith("unsupported escape sequence: \\")
    assert caught.value.position is not None
    assert caught.value.position.byte_start == 3
