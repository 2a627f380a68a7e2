# ruff: noqa: N801, N802, N803, N815, N816 # the names are those of DCGM
"""The statuses and structures that a reader of DCGM uses."""

DCGM_ST_OK = 0
DCGM_ST_NOT_SUPPORTED = -6
DCGM_ST_STALE_DATA = -15
DCGM_ST_NO_DATA = -14
DCGM_ST_NO_PERMISSION = -17
DCGM_ST_GPU_IS_LOST = -18
DCGM_ST_RESET_REQUIRED = -19
DCGM_ST_CONNECTION_NOT_VALID = -21
DCGM_GROUP_EMPTY = 1

c_dcgmConnectV2Params_version2 = 2


class DCGMError(Exception):
    pass


class c_dcgmConnectV2Params_v2:
    pass


class c_dcgmGroupEntityPair_t:
    entityGroupId = 0
    entityId = 0


def _dcgmInit(libDcgmPath=None):
    return None
