"""Find the catalogue's words in the words of exporters."""

from collections.abc import Iterable

FACT_NAMES = {"vbios_version": "vbios", "driver_version": "driver"}
"""How other exporters call facts of ours."""


def spellings(name: str) -> Iterable[str]:
    """Give the spellings of a name to look up: as it is, in upper case for DCGM, and as engines behind Ray have it."""
    yield name
    if name.startswith("dcgm_"):
        yield name.upper()
    plain = name.removeprefix("ray_")
    for engine in ("vllm", "sglang", "trtllm"):
        if plain.startswith((engine + "_", engine + ":")):
            own = f"{engine}{'_' if engine == 'trtllm' else ':'}{plain[len(engine) + 1 :]}"
            yield own
            yield own + "_total"
