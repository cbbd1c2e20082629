"""The trainer: a process that makes one round and prints its decision as a line of JSON.

The service writes the plan as a line to its standard input, and keeps that open. When it is closed, the
service has ended, however it ended, and the trainer ends too.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from contextlib import suppress

from truepair.storage.types import Json

NICENESS = 10
"""How much lower than the service's the trainer's priority is."""

_OUT_OF_MEMORY_FIRST = "800"  # of 1000: the system ends the trainer before the service
BUSY = {"decision": "busy"}
"""What is printed if another process trains."""


def main() -> int:
    """Make one round; the exit code is 1 if it failed."""
    _step_back()
    plan = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_service, args=(sys.stdin.fileno(),), daemon=True).start()
    found = outcome(plan)
    print(json.dumps(found), flush=True)
    return int(found["decision"] == "failed")


def outcome(plan: Json) -> Json:
    """The decision of a round, or why it failed, as JSON."""
    try:
        from truepair.serving.retraining.rounds import RetrainingPlan, retrain  # takes seconds

        decision = retrain(RetrainingPlan(**plan))
        return BUSY if decision is None else decision.as_json()
    except Exception as error:
        trace = "".join(traceback.format_tb(error.__traceback__))
        reason = f"{type(error).__name__}: {error}"
        return {"decision": "failed", "reason": reason[:1000], "trace": trace[-4000:]}


def _step_back() -> None:
    """Let the service go first: for the processor, and in memory that becomes scarce."""
    with suppress(OSError, AttributeError):
        os.nice(NICENESS)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(_OUT_OF_MEMORY_FIRST)


def _end_with_the_service(stdin: int) -> None:
    while os.read(stdin, 4096):  # not of sys.stdin, whose lock would be held when the process ends
        pass
    os._exit(2)


if __name__ == "__main__":
    sys.exit(main())
