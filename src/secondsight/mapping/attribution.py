"""Say whose work the workload labels of a GPU's samples name."""

from secondsight.mapping.allocation import Owner
from secondsight.mapping.identity import Workload

VIA = "labels"
NO_SILENCE_MS = 1 << 62
"""Labels that are missing end nothing, for however long."""


def owner_of(workload: Workload) -> Owner:
    """Return the owner that labels name."""
    pod = "/".join(text for text in (workload.namespace, workload.pod) if text)
    return Owner(
        job_id=workload.job or pod,
        workload_id="/".join(text for text in (pod, workload.container) if text),
        owner_team=workload.namespace,
    )
