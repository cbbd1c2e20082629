"""`make hostile`: a thousand hostile requests to a service of its own, and a table of what it answered.

Each must be answered by a 4xx, or the connection closed. Afterwards the service must give the list that it
gave before, and have no more memory than allowed.
"""

from __future__ import annotations

import argparse
import http.client
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from hostile.requests import hostile_requests
from hostile.sending import send_all

_MOST_MB = 150  # more than before, of the service


def main() -> None:
    """Run it; the exit code is 1 if the service did something wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        process, port = _service(Path(folder))
        try:
            before, room = _list(port), _megabytes(process.pid)
            tally = send_all(port, hostile_requests(args.seed, args.count))
            after, more = _list(port), _megabytes(process.pid) - room
        finally:
            process.terminate()
            process.wait(60)
        log = (Path(folder) / "log").read_text()
    kinds = dict.fromkeys(kind for kind, _ in tally.outcomes)
    for kind in kinds:
        shown = {answer: n for (name, answer), n in sorted(tally.outcomes.items()) if name == kind}
        print(f"{kind:18} {', '.join(f'{answer}: {n}' for answer, n in shown.items())}")
    n_errors = log.count('"what": "error"')
    print(
        f"{tally.total():,} requests, {len(tally.wrong)} answered wrongly; errors in the log: {n_errors}; "
        f"memory {more:+.0f} MB; the same list afterwards: {'yes' if before == after else 'NO'}"
    )
    for kind, start, outcome in tally.wrong[:20]:
        print(f"wrong: {kind}: {outcome} after {start!r}")
    sys.exit(bool(tally.wrong or n_errors or before != after or more > _MOST_MB))


def _service(folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """A service of a small model, and its port."""
    clicks = "\n".join(f"u{n % 40},i{n * n % 61}" for n in range(400))
    (folder / "clicks.csv").write_text(f"user,item\n{clicks}\n")
    (folder / "items.csv").write_text("item,price\n" + "\n".join(f"i{n},{n}" for n in range(61)) + "\n")
    truepair = [sys.executable, "-m", "truepair"]
    fit = [*truepair, "fit", "clicks.csv", "-o", "m.truepair", "--set", "auto=false", "--set", "epochs=2"]
    subprocess.run([*fit, "--quiet"], cwd=folder, check=True)
    words = [*truepair, "serve", "m.truepair", "--port", "0", "--items", "items.csv"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, cwd=folder, stderr=log)
    while process.poll() is None:
        if found := re.search(r"at http://\S+:(\d+)", (folder / "log").read_text()):
            return process, int(found[1])
    raise SystemExit((folder / "log").read_text())


def _list(port: int) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", "/v1/users/u1/recommendations")
    answer = connection.getresponse()
    found = answer.read()
    connection.close()
    return found if answer.status == 200 else b"status %d" % answer.status


def _megabytes(process: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


if __name__ == "__main__":
    main()
