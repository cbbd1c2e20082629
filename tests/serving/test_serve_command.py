"""`truepair serve` as a process, and every step of docs/serving.md."""

import http.client
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from retraining_worlds import Shop
from services import clicks, model
from truepair.cli.main import app
from truepair.serving.retraining.rounds import retrain

PAGE = Path(__file__).parents[2] / "docs" / "serving.md"


@contextmanager
def running(*options, cwd, **environment):
    """A service on a free port, and the port; it is killed in the end."""
    words = [sys.executable, "-m", "truepair", "serve", *map(str, options), "--port", "0"]
    process = subprocess.Popen(
        words, cwd=cwd, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if found := re.search(r"serving .* at http://\S+:(\d+)", line):
                break
        else:
            raise AssertionError("".join(lines))
        rest = threading.Thread(target=lambda: lines.extend(process.stderr))
        rest.start()
        process.lines, process.rest = lines, rest
        yield process, int(found[1])
    finally:
        process.kill()
        process.wait()
        rest.join()
        process.stderr.close()


def ask(port, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory, model):
    place = tmp_path_factory.mktemp("service")
    model.save(place / "model.truepair")
    return place


@pytest.mark.long
def test_an_event_outlives_a_kill_and_a_stop_is_graceful(folder):
    event = json.dumps({"events": [{"user": "u1", "item": "i0", "id": "e1"}]})
    headers = {"content-type": "application/json"}
    with running("model.truepair", cwd=folder) as (process, port):
        assert ask(port, "GET", "/health/ready")[0] == 200
        assert ask(port, "POST", "/v1/events", event, headers) == (200, b'{"stored":1,"repeated":0}')
        process.send_signal(signal.SIGKILL)
        process.wait()
    with running("model.truepair", "--no-log-requests", cwd=folder) as (process, port):
        assert json.loads(ask(port, "GET", "/v1/users/u1/recommendations")[1])["basis"] == "events"
        assert ask(port, "POST", "/v1/events", event, headers)[1] == b'{"stored":0,"repeated":1}'
        open_one = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        open_one.putrequest("POST", "/v1/events")  # a request that has begun when the signal comes
        for name, value in {**headers, "content-length": str(len(event))}.items():
            open_one.putheader(name, value)
        open_one.endheaders()
        open_one.send(event[:10].encode())
        while ask(port, "GET", "/health/live")[0] != 200:
            pass
        process.send_signal(signal.SIGTERM)
        open_one.send(event[10:].encode())
        answer = open_one.getresponse()
        assert (answer.status, answer.read()) == (200, b'{"stored":0,"repeated":1}')
        open_one.close()
        assert process.wait(20) == 0
        process.rest.join()
    assert process.lines[-1] == "stopped\n"
    assert [line for line in process.lines if line.startswith("{")] == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--host", "0.0.0.0"], "--host 0.0.0.0 can be reached from other machines, and there are no tokens"),
        (
            ["--host", "no.such.host.invalid", "--tokens", "tokens.toml"],
            "cannot listen on no.such.host.invalid",
        ),
        (["--timeout", "0"], "--timeout = 0.0 is out of range"),
        (["--tokens", "nothing.toml"], "cannot read tokens from nothing.toml"),
        (["--feedback", "view"], "feedback = 'view': 'view' is not KIND=NUMBER"),
        (["--feedback", "hide=-1"], "has no kind above 0"),
        (["--items", "nothing.csv"], "nothing.csv"),
        (["--retrain", "soon"], "--retrain 'soon' is no time"),
        (["--retrain-events", "0"], "--retrain-events = 0 is out of range"),
        (["--retrain-by", "magic"], "--retrain-by = 'magic' is not known"),
        (["--judge-people", "1"], "--judge-people = 1 is out of range"),
        (["--judge-margin", "1.0"], "--judge-margin = 1.0 is out of range"),
        (["--store", "model.truepair"], "--store model.truepair is the model"),
        (["--store", "nowhere/x.sqlite"], "there is no folder nowhere"),
        (["--store", "tokens.toml"], "the store tokens.toml cannot be used"),
    ],
)
def test_each_bad_option_is_a_clear_error(folder, options, problem, monkeypatch):
    monkeypatch.chdir(folder)
    Path("tokens.toml").write_text('read = ["0123456789abcdef"]\n')
    result = CliRunner().invoke(app, ["serve", "model.truepair", *options])
    assert result.exit_code == 1, result.output
    assert problem in result.output


@pytest.mark.parametrize(("option", "value"), [("--port", "70000"), ("--max-k", "0"), ("--gather", "0")])
def test_numbers_out_of_range_are_usage_errors(folder, option, value):
    result = CliRunner().invoke(app, ["serve", str(folder / "model.truepair"), option, value])
    assert result.exit_code == 2
    assert f"Invalid value for '{option}'" in result.output


def test_a_missing_extra_is_named(folder, monkeypatch):
    monkeypatch.setattr("truepair.serving.find_spec", lambda name: None if name == "uvicorn" else name)
    result = CliRunner().invoke(app, ["serve", str(folder / "no model here.truepair")])
    assert result.exit_code == 1
    assert "serving needs uvicorn: pip install 'truepair[serve]'" in result.output


def curl(line, port):
    """What the curl command of a page would get."""
    words = shlex.split(line)
    assert words[:2] == ["curl", "-s"]
    url, body, headers = urlsplit(words[2]), None, {}
    for option, value in zip(words[3::2], words[4::2], strict=True):
        if option == "-d":
            body = value
        else:
            assert option == "-H"
            headers.update([value.split(": ", 1)])
    path = url.path + (f"?{url.query}" if url.query else "")
    return ask(port, "POST" if body else "GET", path, body, headers)


@pytest.mark.long
def test_every_step_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    basket = ["tea", "milk", "jam", "roll"]
    people = {"ann": basket[:2], "bob": basket[1:], "cat": basket[2:], "dan": basket[::2]}
    pairs = [f"{user},{item}" for user, items in people.items() for item in items]
    Path("clicks.csv").write_text("\n".join(["user,item", *pairs]))
    Path("items.csv").write_text("item,price,kind\ntea,3,drink\nmilk,1,drink\njam,4,food\nroll,1,food\n")
    page = PAGE.read_text()
    Path("tokens.toml").write_text(re.search(r"```toml\n(.*?)```", page, re.DOTALL)[1])
    lines = [line for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) for line in block.splitlines()]
    lines.remove("pip install 'truepair[serve]'")
    fit = shlex.split(lines.pop(0))
    result = CliRunner().invoke(app, [*fit[1:], "--epochs", "3"])
    assert result.exit_code == 0, result.output
    starts = [place for place, line in enumerate(lines) if line.startswith("truepair serve")]
    assert len(starts) == 4
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        words = [word for word in shlex.split(lines[start])[2:] if word not in ("--port", "8000")]
        with running(*words, cwd=tmp_path) as (_, port):
            for line in lines[start + 1 : end]:
                status, body = curl(line, port)
                assert status == 200, (line, body)
                if "arrow" in line:
                    assert pa.ipc.open_stream(body).read_all().num_rows == 2
                elif "/users/" in line:
                    expected = "model" if "?k" in line else "events"
                    assert json.loads(body)["basis"] == expected, (line, body)
                elif "/events" in line:
                    assert json.loads(body) == {"stored": 2, "repeated": 0}


def until(found, seconds=60):
    """Wait until a function gives something, and give it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer := found():
            return answer
        time.sleep(0.1)
    raise AssertionError("it did not happen in time")


def decided(port):
    return json.loads(ask(port, "GET", "/v1/model/decisions")[1])


def trainers_of(process):
    """The processes that a service has started."""
    return Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split() + [
        word for thread in Path(f"/proc/{process.pid}/task").iterdir() if thread.name != str(process.pid)
        for word in (thread / "children").read_text().split()
    ]  # fmt: skip


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
def test_retraining_kills_rollback_and_restart(tmp_path):
    shop = Shop(tmp_path)
    shop.add_visits()
    shop.store.close()
    now, body = {"content-type": "application/json"}, "{}"
    options = ("model.truepair", "--store", "events.sqlite")
    with running(*options, cwd=tmp_path) as (process, port), running(*options, cwd=tmp_path) as (_, other):
        assert ask(port, "POST", "/v1/model/retrain", body, now)[0] == 200
        [trainer] = until(lambda: trainers_of(process))
        os.kill(int(trainer), signal.SIGKILL)
        failed = until(lambda: decided(port)["decisions"])[0]
        assert (failed["decision"], failed["reason"]) == ("failed", "the trainer was killed by SIGKILL")
        assert ask(port, "GET", "/v1/users/u1/recommendations")[0] == 200
        assert ask(port, "POST", "/v1/model/retrain", body, now)[0] == 200
        for each in (port, other):
            until(lambda each=each: decided(each)["running"]["version"] == 1)
        assert ask(port, "POST", "/v1/model/rollback", body, now) == (200, b'{"version":0}')
        until(lambda: decided(other)["running"]["version"] == 0)
        until(lambda: ask(port, "POST", "/v1/model/retrain", body, now)[0] == 200)
        [orphan] = until(lambda: trainers_of(process))
        process.kill()
        until(lambda: not Path(f"/proc/{orphan}").exists())
        names = [one["decision"] for one in decided(other)["decisions"]]
        assert names[-3:] == ["rolled back", "promoted", "failed"]
    Path(tmp_path / "model.truepair.versions" / "1.truepair.x.writing").write_bytes(b"half")
    with running(*options, "--retrain", "1s", cwd=tmp_path) as (process, port):
        assert decided(port)["running"]["version"] == 0
        until(lambda: decided(port)["running"]["trainings"] > 0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_rollback_on_the_command_line(tmp_path, monkeypatch):
    shop = Shop(tmp_path)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["rollback", "model.truepair"])
    assert (result.exit_code, "there is no former model" in result.output) == (1, True)
    shop.add_visits()
    retrain(shop.plan())
    result = CliRunner().invoke(app, ["rollback", "model.truepair", "--json"])
    assert json.loads(result.stdout) == {"version": 0, "was": 1, "file": "model.truepair"}
    result = CliRunner().invoke(app, ["rollback", "nothing.truepair"])
    assert (result.exit_code, "nothing.truepair" in result.output) == (1, True)
