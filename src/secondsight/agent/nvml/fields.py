"""Say which field values of NVML are of one NVLink each, and how their total over all links is to be had.

Those up to 141 and from 201 on answer for all links together when they are asked with the scope "all links"; drivers
that do not know that scope, and those of 161 to 163, are asked link by link. What is a ratio has no total.
"""

ALL_LINKS = 0xFFFFFFFF

OF_A_LINK = frozenset((*range(138, 142), *range(161, 164), *range(201, 223), *range(235, 251), *range(289, 297)))
"""Fields whose scope is a link."""

LINK_BY_LINK = frozenset(range(161, 164))
"""Fields that answer for one link alone."""

_NO_TOTAL = frozenset((216, 217, 218, 220, 222, 291, 292, 293, 296))
"""Error ratios and data rates."""

_STAMPED = frozenset((*range(138, 142), 202, 204))
"""Fields whose increase per second is wanted, so that the driver's own time goes with each value."""

LINK_TOTALS = {f"FI {number}": number for number in sorted(OF_A_LINK - _NO_TOTAL - _STAMPED)}
"""Names whose value is added up over the links of a GPU, where the driver does not do so."""
