"""The files of deploy/: they start the service with options that exist, and hold no secret."""

import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.main import get_command

from truepair.cli.main import app

yaml = pytest.importorskip("yaml")

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def of_systemd():
    line = re.search(r"^ExecStart=\S+/truepair (.*)$", (DEPLOY / "truepair.service").read_text(), re.M)
    return shlex.split(line[1])


def of_docker():
    line = re.search(r"^CMD \[(\".*)\]$", (DEPLOY / "Dockerfile").read_text(), re.M)
    return [word.strip(' "') for word in line[1].split(",")]


@pytest.mark.parametrize("words", [of_systemd(), of_docker(), COMPOSE["services"]["truepair"]["command"]])
def test_the_command_can_be_parsed(words):
    command = get_command(app).commands[words[0]]
    context = command.make_context("serve", list(words[1:]), resilient_parsing=False)
    assert words[0] == "serve"
    assert str(context.params["model"]) == words[1]


def test_what_other_machines_reach_has_tokens():
    for words in (of_docker(), COMPOSE["services"]["truepair"]["command"]):
        text = " ".join(words)
        assert re.search(r"--host[= ]0\.0\.0\.0", text)
        assert "--tokens" in text


def test_every_secret_is_a_file_of_the_user():
    for secret in COMPOSE["secrets"].values():
        assert set(secret) == {"file"}
        assert not (DEPLOY / secret["file"]).exists()
    named = {name for service in COMPOSE["services"].values() for name in service.get("secrets", [])}
    assert named == set(COMPOSE["secrets"])


def test_alerts_use_metrics_that_exist():
    pytest.importorskip("prometheus_client")
    pytest.importorskip("starlette")
    from truepair.serving.web.guard import Metrics

    histories, indexing = (
        SimpleNamespace(fold_ins=0, store_failures=0),
        SimpleNamespace(recall=1, kind="exact"),
    )
    metrics = Metrics(lambda: SimpleNamespace(histories=histories, indexing=indexing)).text().decode()
    for name in re.findall(r"truepair_\w+", (DEPLOY / "alerts.yml").read_text()):
        assert re.sub("_(total|bucket)$", "", name) in metrics
