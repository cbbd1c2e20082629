"""How far a request for a list walks: the files and functions of truepair that it calls, in all threads."""

import sys
import threading

import pytest

from services import clicks, model, serve


@pytest.fixture
def walked():
    """A function: how many files and functions a call passes. Threads that start later are counted too."""
    functions, active = set(), False

    def note(frame, event, _):
        code = frame.f_code
        if not active or event != "call" or "/truepair/" not in code.co_filename:
            return
        if threading.current_thread().name != "trend":  # which looks for new events once a second
            functions.add((code.co_filename, code.co_qualname))

    def walk(call):
        nonlocal active
        functions.clear()
        active = True
        sys.setprofile(note)
        try:
            call()
        finally:
            sys.setprofile(None)
            active = False
        return len({file for file, _ in functions}), len(functions)

    threading.setprofile(note)
    yield walk
    threading.setprofile(None)


@pytest.mark.parametrize(
    ("ask", "most"),
    [
        (lambda client: client.get("/v1/users/u3/recommendations?k=4"), (15, 45)),
        (lambda client: client.post("/v1/recommendations", {"users": ["u3"], "k": 4}), (18, 70)),
    ],
    ids=["GET", "POST"],
)
def test_a_list_passes_few_files_and_functions(serve, model, walked, ask, most):
    client = serve(model)
    for _ in range(3):
        assert ask(client).status == 200
    files, functions = walked(lambda: ask(client))
    assert 5 < files <= most[0]
    assert 20 < functions <= most[1]
