"""The cost model: its counts against those of real ranks, and its table in the docs against measurements."""

import json
import random

import pytest
import torch
from typer.testing import CliRunner

import plan_table
from ranks import values
from truepair.cli.main import app
from truepair.distributed.cost import MANY_PAIRS, TrainingSize, expected_maximum, step_work
from truepair.distributed.devices import DEVICES, OF_LINK, link_speed
from truepair.distributed.plan import estimate, gathered_bytes, plan
from truepair.errors import InputError
from truepair.losses import InfoNCE
from truepair.models.encoders import MF
from truepair.sampling import Full
from truepair.training import Job, Settings
from truepair.training.distributed.engine import started
from truepair.training.distributed.processes import group_of
from truepair.training.full.engine import size_of
from worlds import two_tastes

H200 = DEVICES["h200"]
BIG = TrainingSize(10**8, 10**7, 10**10, 128, 2048, 16_384)


def job(columns=None):
    settings = Settings(epochs=1, batch_size=1000, learning_rate=0.1, device="cpu")
    return Job(MF(dim=4), InfoNCE(), Full(columns=columns), two_tastes(), settings)


def sent_in_an_epoch(columns):
    """Of one step with all users: what a rank sent, and the size of the job."""
    group = group_of(torch.device("cpu"))
    trainer = started(job(columns), group)
    before = group.sent
    trainer.train(0, 0.1, lambda steps: None)
    return group.sent - before, trainer.user_shard.longest


@pytest.mark.parametrize(("columns", "small"), [(None, 0), (6, 8)])
def test_the_bytes_over_the_wire_are_those_that_ranks_count(columns, small):
    """Exactly, where the block's users are divided evenly; the loss of the step is 4 bytes more.

    Few columns: the ranks ask each other whether one was drawn, 8 bytes.
    """
    size = size_of(job(columns))
    for sent, width in values(2, sent_in_an_epoch, columns):
        assert sent == size.step_wire(2, width) + 4 + small
        assert size.epoch_wire(2) == size.step_wire(2, size.n_users / 2) == size.step_wire(2, width)


def test_the_expected_share_of_the_fullest_rank():
    chance, size = random.Random(0), TrainingSize(100_000, 1000, 10**6, 8, 512, 1000)
    for ranks in (2, 8):
        drawn = []
        for _ in range(400):
            owners = [chance.randrange(ranks) for _ in range(512)]
            drawn.append(max(owners.count(rank) for rank in range(ranks)))
        assert size.expected_width(ranks) == pytest.approx(sum(drawn) / len(drawn), rel=0.02)
    assert expected_maximum(1) == pytest.approx(0, abs=1e-9)
    whole = size._replace(batch_size=10**6)
    assert whole.expected_width(4) == 25_000  # all users in one block


def test_a_short_last_block_sends_less():
    size = TrainingSize(1000, 50, 5000, 8, 300, 50)
    sizes = [size._replace(batch_size=n).step_wire(4) for n in (300, 300, 300, 100)]
    assert size.epoch_wire(4) == pytest.approx(sum(sizes))
    assert size.epoch_wire(1) == 0


@pytest.mark.parametrize(("users", "items", "dim", "batch"), [(6000, 3700, 64, 512), (3000, 2000, 256, 1024)])
def test_a_core_of_the_cpu_is_that_of_the_counted_work(users, items, dim, batch):
    pairs = 50 * users
    found = estimate(TrainingSize(users, items, pairs, dim, batch, items), 1, DEVICES["cpu-core"])
    steps = TrainingSize(users, items, pairs, dim, batch, items).steps
    assert found.seconds / steps == pytest.approx(
        0.07e-9 * step_work(users, items, pairs, batch, dim), rel=0.4
    )


def test_the_state_of_users_takes_less_elsewhere():
    bytes_of = {s: BIG._replace(state=s).alone_bytes(True, True) for s in ("device", "half", "host")}
    numbers = 10**8 * 128
    assert bytes_of["device"] - bytes_of["half"] == numbers * 2 * 2
    assert bytes_of["half"] - bytes_of["host"] == numbers * 2 * 2
    assert BIG.alone_bytes(False, True) - bytes_of["device"] == numbers * 4  # gradients of all rows
    assert BIG.alone_bytes(True, False) - bytes_of["device"] == 8 * 10**10
    host = BIG._replace(state="host").alone_host() - BIG.alone_host()
    assert host == 8 * 2048 * 128 * 4
    assert BIG.alone_host() == 8 * BIG.anchors


def test_one_gpu_leaves_rows_alone_that_a_step_does_not_use():
    less = BIG.step_memory(1) - BIG.alone_memory()
    assert less == pytest.approx((10**8 - 2048 - 10**8 / BIG.steps) * 128 * 32)
    alone, two = (estimate(BIG, ranks, H200) for ranks in (1, 2))
    assert alone.memory < two.memory
    assert alone.device_bytes == BIG.alone_bytes(True, True)
    few = BIG._replace(batch_size=10**8 // 63)
    assert few.leaves_rows is BIG._replace(optimizer="sgd").leaves_rows is False
    assert estimate(few, 1, H200).device_bytes == few.rank_bytes(1)
    at_once = BIG._replace(state="host")
    assert estimate(at_once, 2, H200) == two  # several processes keep the state on the device


def test_streamed_pairs_take_their_time_on_one_gpu():
    few = BIG._replace(n_pairs=MANY_PAIRS - 1)
    first, more = (estimate(few._replace(n_pairs=n), 1, H200).host for n in (MANY_PAIRS - 1, MANY_PAIRS))
    copied = BIG._replace(n_pairs=MANY_PAIRS).alone_host() * BIG.steps / (OF_LINK * H200.host)
    assert more - first == pytest.approx(MANY_PAIRS * H200.streamed_pair + copied)
    assert estimate(BIG, 2, H200).host == pytest.approx(BIG.steps * H200.launched_step)


# --- the table of the docs -------------------------------------------------------------------------------


def test_the_page_has_the_tables_of_the_model():
    page = plan_table.PAGE.read_text()
    assert plan_table.rebuilt(page) == page, "run python tools/plan_table.py"


def test_predictions_are_near_what_was_measured():
    bounds = {"s an epoch": 0.15, "kB sent a step": 0.03}
    for one in plan_table.MEASURED:
        if one.unit in bounds:
            assert plan_table.ratio(one) == pytest.approx(1, abs=bounds[one.unit]), one.what
        if one.unit == "GB" and one.value > 2:  # smaller ones are mostly the libraries' own
            assert plan_table.ratio(one) == pytest.approx(1, abs=0.15), one.what


# --- plans -----------------------------------------------------------------------------------------------


def test_a_plan_has_powers_of_two_and_the_last():
    found = plan(BIG, H200, 12)
    assert [each.ranks for each in found.estimates] == [1, 2, 4, 8, 12]
    assert [each.fits for each in found.estimates] == [False, False, True, True, True]
    assert found.best is found.estimates[-1]
    assert found.remedies() == []


def test_the_fewest_ranks_that_are_about_as_fast_are_recommended():
    small = TrainingSize(6_040, 3_706, 10**6, 64, 256, 3_706)
    assert plan(small, H200, 8).best.ranks == 1
    slow = [estimate(BIG, 64, H200, link).wire for link in (None, 1e9)]
    assert slow[0] < 30 < 200 < slow[1]


def test_what_does_not_fit_says_what_would():
    found = plan(BIG, DEVICES["a100-80"], 2)
    assert found.best is None
    room = 0.92 * 80e9
    ranks = BIG.ranks_for(int(room))
    assert BIG.rank_bytes(ranks) <= room < BIG.rank_bytes(ranks - 1)
    assert found.remedies()[0] == f"{ranks} GPUs"
    assert any("dim = " in text for text in found.remedies())
    assert not any("optimizer_state" in text for text in plan(BIG, H200, 2).remedies())
    fewer_items = plan(BIG._replace(n_items=10**6), H200, 2)
    assert any("one GPU with optimizer_state = 'host'" in text for text in fewer_items.remedies())
    tiny = TrainingSize(10**6, 10**5, 10**7, 64, 10**6, 10**5)
    assert "blocks of 125,000 users" in plan(tiny, H200, 4).remedies()


def test_links_have_units():
    assert link_speed("1.5 TB/s") == 1.5e12
    assert link_speed("100gbit") == 12.5e9
    for text in ("fast", "0GB/s", "50", "-1GB/s", "GB/s"):
        with pytest.raises(InputError, match="50GB/s or 400Gbit/s"):
            link_speed(text)


def test_each_rank_of_a_machine_gathers_the_matrices():
    assert gathered_bytes(BIG, 64) == gathered_bytes(BIG, 8) == 8 * 110_000_000 * 128 * 4


# --- the command -----------------------------------------------------------------------------------------


def run(*args):
    return CliRunner().invoke(app, ["plan", *map(str, args)])


BY_HAND = ["--users", 10**8, "--items", 10**7, "--pairs", 10**10, "--dim", 128]


def test_the_command_of_a_prepared_folder(tmp_path):
    pytest.importorskip("duckdb")
    from truepair.data.preparing.prepare import prepare_interactions

    data, folder = two_tastes(), tmp_path / "clicks"
    made = prepare_interactions(data.to_table(), folder, test=0.2)
    for file in folder.rglob("*.npy"):
        file.unlink()  # the manifest is enough
    found = run(folder, "--gpus", 2, "--json")
    assert found.exit_code == 0, found.output
    facts = json.loads(found.stdout)
    assert (facts["users"], facts["items"], facts["pairs"]) == (data.n_users, data.n_items, len(made.train))
    assert facts["recommended"] == 1
    assert facts["command"] == f"truepair fit {folder} -o model.truepair --dim 64 --batch-size 2048"


def test_the_command_by_hand_says_how_to_run_it():
    found = run(*BY_HAND, "--gpus", 64)
    assert found.exit_code == 0, found.output
    assert "Recommended: 64 h200" in found.stdout
    assert (
        "torchrun --nnodes 8 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500"
        in found.stdout
    )
    eight = run(*BY_HAND, "--gpus", 8, "--columns", 4096, "--optimizer-state", "host")
    assert "torchrun --nproc-per-node 8 -m truepair fit FOLDER" in eight.stdout
    assert "--set sampler.columns=4096 --set optimizer_state=host" in eight.stdout


def test_the_command_says_that_it_does_not_fit():
    found = run(*BY_HAND, "--gpus", 4, "--gpu", "l4")
    assert found.exit_code == 0
    assert "It does not fit: a device needs 81.4 GB or more and has 24 GB" in found.stdout
    assert "Would fit: 18 GPUs" in found.stdout
    facts = json.loads(run(*BY_HAND, "--gpus", 4, "--gpu", "l4", "--json").stdout)
    assert facts["recommended"] is facts["command"] is None


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "there is no --users, --items, --pairs; give a prepared folder, or"),
        (["--users", 5, "--items", 5], "there is no --pairs;"),
        (["nowhere"], "there is no prepared folder at nowhere"),
        (["nowhere", "--users", 3], "--users 3 has no effect with SOURCE nowhere"),
        ([*BY_HAND, "--gpu", "h20"], "gpu = 'h20' is not known; choose one of 'h200'"),
        ([*BY_HAND, "--link", "quick"], "link = 'quick' is no speed"),
        ([*BY_HAND, "--optimizer-state", "disk"], "--optimizer-state = 'disk' is not known"),
        (["--users", 2, "--items", 9, "--pairs", 19], "pairs = 19 are more than 2 users x 9 items"),
        (["--users", 2, "--items", 9, "--pairs", 9], "gpus = 8 is out of range: users and items are divided"),
    ],
)
def test_errors_state_the_remedy(args, message):
    found = run(*args)
    assert found.exit_code == 1, found.output
    assert message in found.stderr


@pytest.mark.parametrize("option", ["--gpus", "--batch", "--dim"])
def test_numbers_out_of_range_are_usage_errors(option):
    found = run(*BY_HAND, option, 0)
    assert found.exit_code == 2
    assert f"Invalid value for '{option}'" in found.stderr
