"""Requests that schemathesis makes from the OpenAPI document: no 5xx, and every answer as documented."""

import io

import pytest

from live import listening
from services import clicks, model
from truepair.serving.lists.served_model import read_items
from truepair.serving.web.app import Service
from truepair.serving.web.guard import RequestLog


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_every_answer_is_documented(model, tmp_path):
    import hypothesis
    import schemathesis
    from schemathesis.specs.openapi.checks import positive_data_acceptance as limits_in_schema

    table = {"item": [f"i{i}" for i in range(24)], "price": list(range(24))}
    log = io.StringIO()
    items = read_items(table, model.seen_.item_ids)
    service = Service(model, tmp_path / "events.sqlite", items=items, log=RequestLog(log))
    calm = hypothesis.settings(
        max_examples=100, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    with listening(service) as port:
        schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/openapi.json")
        n_cases, problems = 0, {}
        for found in schema.get_all_operations():
            operation = found.ok()

            @calm
            @hypothesis.given(case=operation.as_strategy())
            def check(case):
                nonlocal n_cases
                n_cases += 1
                case.call_and_validate(excluded_checks=[limits_in_schema])  # a schema cannot say them

            try:
                check()
            except* Exception as group:
                problems[operation.label] = [str(one)[:600] for one in group.exceptions]
    assert not problems, "\n".join(f"{k}: {v}" for k, v in problems.items())
    assert n_cases > 300
    assert '"what": "error"' not in log.getvalue()
