"""Find the catalogue's words in the words of exporters."""

from collections.abc import Iterable

from secondsight.model import Quality

FACT_NAMES = {"vbios_version": "vbios", "driver_version": "driver"}
"""How other exporters call facts of ours."""


BLANK_WORDS: dict[str, Quality] = {
    "": Quality.ABSENT_SOURCE_BLANK,
    "n/a": Quality.ABSENT_NOT_SUPPORTED,
    "na": Quality.ABSENT_NOT_SUPPORTED,
    "not supported": Quality.ABSENT_NOT_SUPPORTED,
    "<<<not_supported>>>": Quality.ABSENT_NOT_SUPPORTED,
    "<<<not_perm>>>": Quality.ABSENT_NO_PERMISSION,
    "insufficient permissions": Quality.ABSENT_NO_PERMISSION,
    "<<<null>>>": Quality.ABSENT_SOURCE_BLANK,
    "<<<not_found>>>": Quality.ABSENT_SOURCE_BLANK,
    "none": Quality.ABSENT_SOURCE_BLANK,
    "null": Quality.ABSENT_SOURCE_BLANK,
    "nil": Quality.ABSENT_SOURCE_BLANK,
    "<nil>": Quality.ABSENT_SOURCE_BLANK,
    "not available": Quality.ABSENT_NOT_SUPPORTED,
    "unknown": Quality.ABSENT_SOURCE_BLANK,
    "unknown error": Quality.ABSENT_SOURCE_BLANK,
    "err!": Quality.ABSENT_SOURCE_BLANK,
    "gpu is lost": Quality.ABSENT_SOURCE_BLANK,
    "gpu requires reset": Quality.ABSENT_SOURCE_BLANK,
    "-": Quality.ABSENT_SOURCE_BLANK,
}
"""What sources write instead of a number, in lower case and without square brackets."""


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


def is_blank_word(text: str) -> bool:
    """Tell whether a text stands for no reading and no fact: `N/A`, `[Not Supported]`, a sentinel of DCGM."""
    return bare(text) in BLANK_WORDS or text.startswith("<<<")


def bare(word: str) -> str:
    """Return a word as `BLANK_WORDS` has it."""
    return word.strip("\"'").strip("[]").lower()
