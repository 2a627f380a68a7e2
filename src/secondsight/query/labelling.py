"""Say which series of an answer each window in memory belongs to, and what that series is called."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from secondsight.access.scope import Scope
from secondsight.live.shape import OWNER
from secondsight.query.compile import label_columns
from secondsight.query.numbering import Numbers, Union
from secondsight.query.plan import SeriesPlan
from secondsight.query.request import Group
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import Parameters, Statement
from secondsight.query.windowed import Windows

I64 = NDArray[np.int64]
Bools = NDArray[np.bool_]
_COMPUTE: Any = pc
_PRODUCT = "gpu_model"


@dataclass(frozen=True, slots=True)
class Products:
    """The product of each combination of a union of series.

    Attributes:
        codes: Number of the product, shape (combinations,).
        ranks: Place of each product in the order of texts, by number.
    """

    codes: I64
    items: list[str]
    ranks: I64


@dataclass(frozen=True, slots=True)
class Labels:
    """What series of an answer are called, by a number that is made of one for places and one for owners."""

    columns: tuple[str, ...]
    series: Union
    owners: Union
    places: Numbers
    whose: Numbers
    products: Products | None

    def numbers(self, windows: Windows) -> tuple[I64, I64]:
        """Return the position of each window's series among those that there may be, and their numbers."""
        places = self.places.of[windows.series]
        if windows.owner is None:
            return places, np.arange(self.places.size)
        found, position = np.unique(places * self.whose.size + windows.owner, return_inverse=True)
        return position, found

    def order(self, numbers: I64) -> I64:
        """Return the order of some series by their names."""
        keys = [self._ranks(column, numbers) for column in reversed(self.columns)]
        found: I64 = np.lexsort(keys) if keys else np.arange(numbers.size)
        return found

    def label(self, number: int) -> dict[str, str]:
        """Return column -> name of one series, in ladder order."""
        place, whose = int(self.places.firsts[self._place(number)]), int(self.whose.firsts[self._whose(number)])
        return {column: self._text(column, place, whose) for column in self.columns}

    def _place(self, number: Any) -> Any:
        return number // self._owners

    def _whose(self, number: Any) -> Any:
        return number % self._owners

    @property
    def _owners(self) -> int:
        """Return how many owners are told apart."""
        return self.whose.size if any(column in OWNER for column in self.columns) else 1

    def _text(self, column: str, place: int, whose: int) -> str:
        if column == _PRODUCT and self.products is not None:
            return self.products.items[int(self.products.codes[place])]
        return self.owners.text(column, whose) if column in OWNER else self.series.text(column, place)

    def _ranks(self, column: str, numbers: I64) -> I64:
        if column in OWNER:
            ranks, members = self.owners.ranks(column), self.whose.firsts[self._whose(numbers)]
        elif column == _PRODUCT and self.products is not None:
            ranks, members = self.products.ranks[self.products.codes], self.places.firsts[self._place(numbers)]
        else:
            ranks, members = self.series.ranks(column), self.places.firsts[self._place(numbers)]
        found: I64 = ranks[members]
        return found


def labels_of(plan: SeriesPlan, series: Union, owners: Union, models: Any) -> Labels:
    """Return what the series of a plan are called.

    Args:
        plan: What is asked.
        series: Which series there are in memory.
        owners: Which owners.
        models: Rows of (tenant_id, entity, gpu_model) where products are asked for, else None.
    """
    columns = tuple(label_columns(plan.groups))
    products = products_of(series, models) if Group.GPU_MODEL in plan.groups else None
    beside = () if products is None else (products.codes,)
    placed = [column for column in columns if column not in OWNER and column != _PRODUCT]
    owned = [column for column in columns if column in OWNER]
    return Labels(columns, series, owners, series.numbers(placed, beside), owners.numbers(owned), products)


def compile_products(scope: Scope) -> Statement:
    """Return the statement for every product that each entity was told to be."""
    parameters = Parameters()
    rows = ScopedTables(scope, parameters).table("entities", ["DISTINCT tenant_id", "entity", "gpu_model"])
    return Statement(rows[1:-1], parameters.values())


def products_of(series: Union, models: Any) -> Products:
    """Return the product of each series' entity, the last in the order of texts where it had several; "" for none."""
    known = _plain(models).group_by(["tenant_id", "entity"]).aggregate([("gpu_model", "max")])
    place = _COMPUTE.index_in(_entities(series), value_set=_keys(known["tenant_id"], known["entity"]))
    names = _COMPUTE.fill_null(known["gpu_model_max"].combine_chunks().take(place), "").dictionary_encode()
    items = names.dictionary.to_pylist()
    ranks = np.empty(len(items), np.int64)
    ranks[sorted(range(len(items)), key=items.__getitem__)] = np.arange(len(items))
    return Products(names.indices.to_numpy().astype(np.int64), items, ranks)


def of_products(series: Union, models: Any, names: Collection[str]) -> Bools:
    """Tell which series are of an entity that is, or was, one of some products."""
    known = _plain(models)
    mine = known.filter(_COMPUTE.is_in(known["gpu_model"], value_set=pa.array(names, pa.string())))
    wanted = _keys(mine["tenant_id"], mine["entity"])
    found: Bools = _COMPUTE.is_in(_entities(series), value_set=wanted).to_numpy(zero_copy_only=False)
    return found


def _entities(series: Union) -> Any:
    """Return what names the tenant and entity of each series."""
    return series.fact("tenant and entity", lambda: _keys(series.texts("tenant_id"), series.texts("entity")))


def _plain(models: Any) -> Any:
    return pa.table({name: models[name].cast(pa.string()) for name in ("tenant_id", "entity", "gpu_model")})


def _keys(tenants: Any, entities: Any) -> Any:
    joined = _COMPUTE.binary_join_element_wise(tenants, entities, "\0")
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined
