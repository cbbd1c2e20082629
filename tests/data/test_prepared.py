"""A prepared folder that is incomplete, damaged, newer or something else raises an error that says so."""

import json
import shutil
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

import truepair as tp
from truepair.data.prepared import opening
from truepair.data.prepared.array_files import ArrayWriter, open_array, verify_array, write_array
from truepair.data.prepared.manifest import NAME, Manifest, Part, _digest, write_manifest
from truepair.errors import StorageError

TABLE = {"user": ["ann", "bob", "bob", "€"], "item": [7, 7, 9, 9], "time": [1.0, 2.0, 3.0, 4.0]}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    pytest.importorskip("duckdb")
    folder = tmp_path_factory.mktemp("made") / "clicks"
    tp.prepare_interactions(TABLE, folder, memory="600MB")
    return folder


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / "clicks")


def rewritten(folder, **changes):
    """The manifest with other values, and the checksum that fits to them."""
    content = json.loads((folder / NAME).read_text())
    content.pop("digest")
    content |= changes
    (folder / NAME).write_text(json.dumps({**content, "digest": _digest(content)}))


def refused(folder, message, **options):
    with pytest.raises(StorageError, match=message):
        tp.open_prepared(folder, **options)


def test_it_opens_as_what_was_read(folder):
    found = tp.open_prepared(folder, verify=True)
    assert found == tp.read_interactions(TABLE)
    assert not found.items.flags.writeable
    assert found.item_counts.tolist() == [2, 2]
    assert found.indptr.tolist() == [0, 1, 3, 4]
    assert tp.open_prepared(str(folder) + "/all") == found


def test_every_array_is_plain_npy_with_a_described_size(folder):
    content = json.loads((folder / NAME).read_text())
    files = {str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.npy")}
    assert files == set(content["arrays"])
    assert np.load(folder / "all" / "items.npy").tolist() == [0, 0, 1, 1]
    assert np.load(folder / "item_ids" / "values.npy").tolist() == [7, 9]
    assert bytes(np.load(folder / "user_ids" / "values.npy")).decode() == "annbob€"
    assert np.load(folder / "user_ids" / "starts.npy").tolist() == [0, 3, 6, 9]


def test_a_missing_file_is_named(folder):
    (folder / "all" / "items.npy").unlink()
    refused(folder, r"all/items.npy cannot be opened \(No such file or directory\)")


def test_a_folder_without_a_manifest(folder, tmp_path):
    (folder / NAME).unlink()
    refused(folder, "has no manifest.json: it is incomplete")
    refused(tmp_path / "nothing", "there is no prepared folder at")
    (tmp_path / "file").write_text("x")
    refused(tmp_path / "file", "is a file, not a prepared folder")


def test_a_torn_file_is_noticed_at_once(folder):
    path = folder / "all" / "time.npy"
    path.write_bytes(path.read_bytes()[:-3])
    refused(folder, r"time.npy has \d+ bytes, not the manifest's \d+")


@pytest.mark.parametrize("file", ["all/users", "all/items", "all/time", "all/starts", "all/popularity"])
def test_a_flipped_bit_is_noticed_when_asked(folder, file):
    path = folder / f"{file}.npy"
    content = bytearray(path.read_bytes())
    content[-8] ^= 1
    path.write_bytes(content)
    refused(folder, "is damaged", verify=True)


def test_changed_values_with_a_fitting_checksum_are_noticed_by_their_order(folder):
    for values in ([0, 0, 1, 5], [0, 1, 0, 1], [1, 0, 1, 1]):
        file = write_array(folder, "all/items.npy", np.array(values, np.int32))
        arrays = json.loads((folder / NAME).read_text())["arrays"]
        arrays["all/items"]["digest"] = file.digest
        rewritten(folder, arrays=arrays)
        with pytest.raises(StorageError, match="is damaged") as error:
            tp.open_prepared(folder, verify=True)
        assert "pairs, starts or popularity are wrong" in str(error.value), values


def test_the_hash_of_the_manifest_is_compared(folder):
    parts = json.loads((folder / NAME).read_text())["parts"]
    parts["all"]["hash"] = "0" * 32
    rewritten(folder, parts=parts)
    tp.open_prepared(folder)
    refused(folder, "its hash is not the manifest's", verify=True)


def test_a_manifest_that_was_changed_is_refused(folder):
    text = (folder / NAME).read_text()
    (folder / NAME).write_text(text.replace('"users": 3', '"users": 4'))
    refused(folder, "manifest.json is damaged: its checksum does not match")


def test_a_newer_version_and_other_kinds_are_refused(folder):
    rewritten(folder, version=4)
    refused(folder, "was prepared in version 4; this truepair reads up to 3; upgrade")
    rewritten(folder, version=0)
    refused(folder, "version 0 never existed")
    rewritten(folder, kind="something")
    refused(folder, "is not the manifest of prepared interactions")
    (folder / NAME).write_text("[" * 100_000)
    refused(folder, "cannot be read")
    (folder / NAME).write_text('{"kind": NaN}')
    refused(folder, "which JSON does not have")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"users": -1}, "users = -1 is not allowed"),
        ({"users": True}, "users = True is not allowed"),
        ({"users": 4}, "user_ids/starts has the type"),
        ({"parts": {}}, "parts"),
        ({"parts": {"train": {"pairs": 4, "hash": None}}}, "parts"),
        ({"user_ids": "float"}, "ids of type 'float'"),
        ({"time_kind": "moon"}, "time_kind = 'moon' is not allowed"),
        ({"arrays": {}}, "is not among its arrays"),
        ({"history": [{"what": "x"}]}, "is damaged or foreign"),
        ({"history": 7}, "is damaged or foreign"),
    ],
)
def test_values_that_do_not_fit_together(folder, changes, message):
    rewritten(folder, **changes)
    refused(folder, message)


def test_paths_out_of_the_folder_are_unknown_arrays(folder):
    arrays = json.loads((folder / NAME).read_text())["arrays"]
    rewritten(folder, arrays={**arrays, "../../etc/passwd": arrays["all/items"]})
    refused(folder, "unknown arrays")


def test_ids_must_be_sorted_text(folder):
    values = folder / "user_ids" / "values.npy"
    content = values.read_bytes()
    values.write_bytes(content.replace(b"ann", b"zoe"))
    refused(folder, "the ids are not distinct and sorted")
    values.write_bytes(content.replace("€".encode(), b"\xff\xff\xff"))
    refused(folder, "user_ids is damaged")


def test_a_foreign_writer_may_leave_out_checksums(folder):
    content = json.loads((folder / NAME).read_text())
    content["parts"]["all"]["hash"] = None
    for one in content["arrays"].values():
        one["digest"] = None
    content.pop("digest")
    (folder / NAME).write_text(json.dumps(content))
    assert tp.open_prepared(folder, verify=True) == tp.read_interactions(TABLE)


def test_array_files_of_every_shape(tmp_path):
    for values in (np.zeros(0, np.int64), np.arange(5.0), np.arange(32, dtype=np.uint8).reshape(2, 16)):
        file = write_array(tmp_path, "x/a.npy", values)
        assert np.array_equal(open_array(tmp_path, file), values)
        verify_array(tmp_path, file)
        assert np.array_equal(np.load(tmp_path / "x" / "a.npy"), values)
    with ArrayWriter(tmp_path, "b.npy", np.int32) as writer:
        writer.write(np.array([1, 2], np.int64))
        writer.write(np.array([3], np.int64))
        file = writer.close()
    assert (file.dtype, file.shape) == ("<i4", (3,))
    assert open_array(tmp_path, file).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "ids",
    [
        pa.array([2**63 + 1, 5], pa.uint64()),
        pa.array([b"\xff\0", b""]).cast(pa.large_binary()),
        pa.ExtensionArray.from_storage(
            pa.uuid(), pa.array([UUID(int=n).bytes for n in (9, 1)], pa.binary(16))
        ),
    ],
)
def test_ids_of_every_type(tmp_path, ids):
    pytest.importorskip("duckdb")
    table = {"user": ids, "item": ids}
    made = tp.prepare_interactions(table, tmp_path / "f", memory="600MB")
    assert made.user_ids == tp.read_interactions(table).user_ids
    assert made == tp.read_interactions(table)


EVENTS = {"user": [1, 1, 1, 2], "item": [7, 9, 7, 9], "time": [1, 2, 3, 4], "weight": [1.0, -1.0, 2.0, 1.0]}


@pytest.fixture
def events(tmp_path):
    pytest.importorskip("duckdb")
    tp.prepare_interactions(EVENTS, tmp_path / "events", memory="600MB", dislikes=True)
    return tmp_path / "events"


def test_the_log_is_mapped(events):
    found = tp.open_prepared(events, verify=True)
    assert found.log.to_table() == tp.read_interactions(EVENTS, dislikes=True).log.to_table()
    assert found.log is found.origin.log
    assert not any(column.flags.owndata for column in (found.log.users, found.log.items, found.log.time))
    assert (found.log.items.dtype, found.log.disliked.dtype) == (np.int32, bool)
    assert not found.log.time.flags.writeable


@pytest.mark.parametrize(
    ("column", "values"),
    [("users", [1, 0, 0, 0]), ("items", [0, 1, 2, 1]), ("items", [0, -1, 0, 1]), ("time", [1, 3, 2, 4])],
)
def test_events_out_of_order_or_range_are_noticed_when_asked(events, monkeypatch, column, values):
    monkeypatch.setattr(opening, "_AT_ONCE", 2)
    tp.open_prepared(events, verify=True)
    content = json.loads((events / NAME).read_text())
    file = write_array(
        events, f"log/{column}.npy", np.array(values, np.load(events / f"log/{column}.npy").dtype)
    )
    content["arrays"][f"log/{column}"]["digest"] = file.digest
    rewritten(events, arrays=content["arrays"])
    tp.open_prepared(events)
    refused(events, "log is damaged: its events are not in order", verify=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"events": 5}, "log/users has the type"),
        ({"events": -1}, "events = -1 is not allowed"),
        ({"events": None}, "unknown arrays"),
        ({"policy": {"duplicates": "best"}}, "duplicates = 'best'"),
        ({"policy": {"half_life": "soon"}}, "half_life = 'soon' is no time"),
        ({"policy": {"counts": "all"}}, "counts = 'all' is not known"),
        ({"policy": {"half_life": "1d", "now": "today"}}, "now"),
        ({"policy": {"other": 1}}, "is damaged or foreign"),
        ({"policy": None}, "is damaged or foreign"),
    ],
)
def test_events_that_do_not_fit_to_the_manifest(events, changes, message):
    rewritten(events, **changes)
    refused(events, message)


def test_a_log_needs_times(events):
    arrays = json.loads((events / NAME).read_text())["arrays"]
    del arrays["log/time"]
    rewritten(events, arrays=arrays)
    refused(events, "log/time is not among its arrays")


def test_a_folder_of_version_1_has_no_log(folder):
    content = json.loads((folder / NAME).read_text())
    for name in ("digest", "policy", "events"):
        content.pop(name)
    content["version"] = 1
    (folder / NAME).write_text(json.dumps({**content, "digest": _digest(content)}))
    found = tp.open_prepared(folder, verify=True)
    assert found == tp.read_interactions(TABLE)
    assert found.stored_log is None


def test_a_manifest_keeps_its_values(tmp_path):
    arrays = {}
    for name, values in {
        "user_ids/values": np.array([1]),
        "item_ids/values": np.array([2]),
        "all/users": np.array([0], np.int32),
        "all/items": np.array([0], np.int32),
        "all/starts": np.array([0, 1]),
        "all/popularity": np.array([1]),
    }.items():
        arrays[name] = write_array(tmp_path, f"{name}.npy", values)
    write_manifest(tmp_path, Manifest(1, 1, "int64", "int64", {"all": Part(1)}, arrays))
    assert tp.open_prepared(tmp_path, verify=True) == tp.read_interactions({"user": [1], "item": [2]})
