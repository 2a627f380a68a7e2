# ruff: noqa: N802 # the names are those of DCGM
"""The names of field and entity numbers that a reader of DCGM uses."""

DCGM_FE_GPU = 1
DCGM_FE_GPU_I = 4


def DcgmFieldsInit():
    return 0


def DcgmFieldGetById(field_id):
    import dcgm_agent

    return {"id": field_id} if field_id not in dcgm_agent.scenario().get("unknown_fields", []) else None
