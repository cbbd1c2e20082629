"""BPR and DPL side by side in a world whose truth is known. Run it with `python examples/quickstart.py`.

People in this world like more than they were seen to like: a share τ of the unlabelled pairs is positive.
Both losses get the same model, the same draws and the same effort; validation picks the epoch; then each is
judged twice: on held-out clicks, as on real data, and on everything people truly like, as only here.
"""

from truepair.data.simulation import simulate_world
from truepair.data.split_recipes import split_random
from truepair.evaluation import Validation, compare, evaluate
from truepair.losses import BPR, DPL
from truepair.models.encoders import MF
from truepair.ranking.selection import top_k
from truepair.sampling import Uniform
from truepair.training import Job, Settings, fit

world = simulate_world(800, 600, tau=0.1, density=0.04, exposure="popularity", seed=1)
split = split_random(world.observed, test=0.2, valid=0.1, seed=0)
print(world, split, sep="\n")

on_clicks, on_truth, fits = {}, {}, {}
for name, loss in {"BPR": BPR(), "DPL": DPL(tau=world.tau)}.items():
    settings = Settings(
        epochs=60, n_extra=5, n_unlabelled=5, learning_rate=5e-3, weight_decay=1e-5, patience=8, seed=0
    )
    validation = Validation(split.valid, exclude=split.train, metric="ndcg@20")
    fits[name] = result = fit(
        Job(MF(dim=32), loss, Uniform(), split.train, settings), validation, progress=True
    )
    on_clicks[name] = evaluate(result, split)
    on_truth[name] = evaluate(result, world.hidden, exclude=world.observed)
    print(f"\n{name}: {result}\n{on_clicks[name].table()}")

print("\nIs DPL better than BPR? The difference, its 95% interval, and the chance of it by luck:")
for what, found in {"held-out clicks": on_clicks, "what people truly like": on_truth}.items():
    print(f"  {what:>22}: {compare(found['DPL'], found['BPR'], 'ndcg@20')}")

person = int(split.train.user_counts.argmax())
print(f"\n{world.observed.user_ids.outside([person])[0]} has seen, among others:")
print("  " + ", ".join(world.observed.item_ids.outside(split.train.items_of(person)[:5]).to_pylist()))
for name, result in fits.items():
    best = top_k(result.users, result.items, 5, rows=[person], exclude=split.train).items[0]
    titles = world.observed.item_ids.outside(best).to_pylist()
    marks = ["liked" if world.truth[person, item] else "not liked" for item in best]
    print(f"{name} recommends: " + ", ".join(f"{t} – {m}" for t, m in zip(titles, marks, strict=True)))
