"""Refuse aliases that take the name of a view, of a column of a view, or of a column that scopes rows.

The engine reads an alias before a column. A wrapped view is immune, but such an alias would give wrong answers.
"""

from sqlglot import exp

from secondsight.guard.functions import aggregate_of, canonical
from secondsight.guard.refusal import Refused, Rule
from secondsight.guard.registry import Registry
from secondsight.guard.scopes import Block, nodes_of_block
from secondsight.guard.tree import CALLS


def check_new_name(name: str, registry: Registry) -> None:
    """Refuse a name of a table, a CTE or a value of WITH that is taken.

    Raises:
        Refused: `reserved_alias`.
    """
    if "." in name or registry.view(name) is not None or name in registry.mandatory:
        raise Refused("reserved_alias", Rule.ALIASES)


def check_aliases(block: Block, registry: Registry) -> None:
    """Refuse the names that a block makes and may not.

    Raises:
        Refused: `reserved_alias`.
    """
    taken = registry.mandatory | _columns(block)
    tables = {source.name for source in block.sources if source.name}
    made = {**block.scalars, **block.unnested}
    for name in (*made, *_parameters(block), *tables, *block.ctes):
        if name in taken or "." in name or _is_other_view(name, block, registry):
            raise Refused("reserved_alias", Rule.ALIASES)
    if made.keys() & tables:
        raise Refused("reserved_alias", Rule.ALIASES)
    for name, node in block.aliases.items():
        if "." in name or name in tables or registry.view(name) is not None:
            raise Refused("reserved_alias", Rule.ALIASES)
        if name in taken and not _is_own_name(name, node, block):
            raise Refused("reserved_alias", Rule.ALIASES)


def _columns(block: Block) -> frozenset[str]:
    return frozenset(name for source in block.sources if source.reference for name in source.reference.visible)


def _is_other_view(name: str, block: Block, registry: Registry) -> bool:
    """Tell whether a name is that of a view, other than a view that is read under its own name."""
    if registry.view(name) is None:
        return False
    return not any(source.reference and source.reference.view.name == source.name == name for source in block.sources)


def _parameters(block: Block) -> list[str]:
    return [
        parameter.name
        for node in nodes_of_block(block.select)
        if isinstance(node, exp.Lambda)
        for parameter in node.expressions
    ]


def _is_own_name(name: str, node: exp.Expr, block: Block) -> bool:
    """Tell whether an alias names the column that has this name: plainly, or aggregated and used nowhere else."""
    if isinstance(node, exp.Column):
        return node.name == name
    if not isinstance(node, CALLS) or aggregate_of(canonical(node.name)) is None:
        return False
    arguments = node.args.get("params") or node.expressions
    column = arguments[0] if arguments else None
    if not isinstance(column, exp.Column) or column.name != name:
        return False
    return not any(
        isinstance(other, exp.Column) and other.name == name and not other.table and other is not column
        for other in nodes_of_block(block.select)
    )
