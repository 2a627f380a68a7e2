"""Turn the text of a statement into one tree of known shape, or refuse it; no name is looked up yet."""

from sqlglot import exp

from secondsight.guard.dialect import parse, tokenise
from secondsight.guard.entry import check_text, check_tokens
from secondsight.guard.limits import Limits
from secondsight.guard.normal import normalise, plain_forms
from secondsight.guard.refusal import Refused, Rule
from secondsight.guard.tree import check_tree, one_query
from secondsight.guard.wrap import is_marked


def read_statement(text: str, limits: Limits) -> exp.Expr:
    """Return the tree of a statement, in its one spelling.

    Raises:
        Refused: By the steps input, tokens, tree and functions.
    """
    check_text(text, limits)
    if is_marked(text):
        raise Refused("not_understood", Rule.INPUT)
    tokens = tokenise(text)
    check_tokens(text, tokens, limits)
    tree = one_query(parse(text, tokens))
    plain_forms(tree)
    check_tree(tree, limits)
    normalise(tree)
    return tree
