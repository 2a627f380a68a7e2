"""The description holds: whatever schemathesis makes of it breaks nothing, and every answer is as described."""

import warnings

import pytest
from hypothesis import HealthCheck, given, settings

from api_client import serving
from secondsight.access.identity import Role
from secondsight.access.metadata import open_metadata
from secondsight.access.tokens import TokenSpec, create_token
from secondsight.api.app import make_app, make_routes
from secondsight.api.config import ApiConfig
from secondsight.api.services import make_services
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.store.chdb import ChdbStore
from secondsight.store.migrate import migrate

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

NOW_MS = 1_700_000_000_000
CATALOG = load_catalog()
CHECKS = (not_a_server_error, content_type_conformance, response_schema_conformance)
EXAMPLES = 4
STREAMS = ("/v1/live",)
"""Never end by themselves; tests of live streams read them."""


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    folder = tmp_path_factory.mktemp("schema")
    store = ChdbStore(folder / "hot", readers=4)
    migrate(store, CATALOG)
    metadata = open_metadata(f"sqlite:///{folder / 'metadata.sqlite'}")
    config = ApiConfig(folder, requests_burst=1e9, tenant_query_seconds=1e9)
    services = make_services(config, store, metadata, CATALOG, ManualClock(NOW_MS))
    token = create_token(metadata, TokenSpec(Role.ADMIN, "t1", "admin"), NOW_MS).secret
    with serving(make_app(services), config) as client:
        client.described = make_routes(services).openapi()
        client.token = token
        yield client


def operations(described):
    return [
        (method.upper(), path)
        for path, methods in described["paths"].items()
        for method in methods
        if path not in STREAMS and method in ("get", "post", "delete")
    ]


def test_every_operation_holds_what_the_description_promises(api):
    schema = schemathesis.openapi.from_dict(api.described)
    headers = {"authorization": f"Bearer {api.token}"}
    address = f"http://127.0.0.1:{api.port}"
    failures = []
    for method, path in operations(api.described):

        @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=schema[path][method].as_strategy())
        def check(case):
            case.call_and_validate(base_url=address, headers=headers, checks=list(CHECKS))

        try:
            check()
        except BaseExceptionGroup as error:
            failures.append(f"{method} {path}: {error.exceptions}")
    assert not failures, "\n".join(failures)
