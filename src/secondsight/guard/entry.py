"""Look at a statement before it is parsed: its bytes, then its tokens."""

import re
from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from secondsight.guard.limits import Limits
from secondsight.guard.refusal import Refused, Rule

_LAYOUT = frozenset("\t\n\r ")
_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET})
_QUOTED = frozenset({TokenType.STRING, TokenType.IDENTIFIER})
_SYMBOLS = frozenset({TokenType.L_BRACE, TokenType.R_BRACE, TokenType.PIPE_GT, TokenType.PARAMETER})

_COMMENT = re.compile(r"/\*.*?\*/|--[^\n]*|#[ !][^\n]*", re.DOTALL)

_CLAUSES = frozenset(
    {"SETTINGS", "FORMAT", "INTO", "OUTFILE", "PREWHERE", "FINAL", "SAMPLE", "GLOBAL", "RECURSIVE", "EXPLAIN"}
)
_BEGINNINGS = frozenset({"SELECT", "WITH", "("})


def check_text(text: str, limits: Limits) -> None:
    """Refuse texts that are too long, not UTF-8, or hold control characters.

    Raises:
        Refused: `too_long`, `not_plain_text` or `not_a_query`.
    """
    try:
        size_bytes = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise Refused("not_plain_text", Rule.INPUT) from None
    if size_bytes > limits.text_bytes:
        raise Refused("too_long", Rule.INPUT)
    if any((ord(letter) < 0x20 and letter not in _LAYOUT) or ord(letter) in (0x7F, 0xFEFF) for letter in text):
        raise Refused("not_plain_text", Rule.INPUT)
    if not text.strip():
        raise Refused("not_a_query", Rule.INPUT)


def check_tokens(text: str, tokens: Sequence[Token], limits: Limits) -> None:
    """Refuse words that begin what is not offered, a second statement, and letters that hide outside of quoted texts.

    The next steps refuse the same things without this one; here they are cheap and the message is good.

    Raises:
        Refused: `not_a_query`, `several_statements`, `clause_not_offered`, `not_plain_text` or `too_long`.
    """
    if not text.isascii():
        _check_ascii(text, tokens)
    if not tokens or tokens[0].text.upper() not in _BEGINNINGS:
        raise Refused("not_a_query", Rule.TOKENS)
    _check_comments(text, tokens)
    _check_ends(tokens)
    _check_depth(tokens, limits.depth)
    for position, token in enumerate(tokens):
        if token.token_type in _SYMBOLS or _is_clause(tokens, position):
            raise Refused("clause_not_offered", Rule.TOKENS)


def _check_ascii(text: str, tokens: Sequence[Token]) -> None:
    quoted = sum(
        sum(not letter.isascii() for letter in text[token.start : token.end + 1])
        for token in tokens
        if token.token_type is TokenType.STRING
    )
    if quoted != sum(not letter.isascii() for letter in text):
        raise Refused("not_plain_text", Rule.TOKENS)


def _check_comments(text: str, tokens: Sequence[Token]) -> None:
    """Refuse `#` that is a comment to the parser alone; the engine wants a space or `!` behind it."""
    if "#" not in text:
        return
    start = 0
    for token in (*tokens, None):
        gap = text[start : token.start if token is not None else len(text)]
        if "#" in _COMMENT.sub(" ", gap):
            raise Refused("clause_not_offered", Rule.TOKENS)
        start = token.end + 1 if token is not None else start


def _check_ends(tokens: Sequence[Token]) -> None:
    ends = [position for position, token in enumerate(tokens) if token.token_type is TokenType.SEMICOLON]
    if ends and any(token.token_type is not TokenType.SEMICOLON for token in tokens[ends[0] :]):
        raise Refused("several_statements", Rule.TOKENS)


def _check_depth(tokens: Sequence[Token], depth_limit: int) -> None:
    depth = 0
    for token in tokens:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth > depth_limit:
            raise Refused("too_long", Rule.TOKENS)


def _is_clause(tokens: Sequence[Token], position: int) -> bool:
    """Tell whether a word that begins a clause stands where it is no name and no call."""
    token = tokens[position]
    if token.token_type in _QUOTED or token.text.upper() not in _CLAUSES:
        return False
    before = tokens[position - 1].token_type if position else None
    after = tokens[position + 1].token_type if position + 1 < len(tokens) else None
    return before not in (TokenType.DOT, TokenType.ALIAS) and after is not TokenType.L_PAREN
