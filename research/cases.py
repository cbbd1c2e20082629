"""Cases for research: (train, valid) with test never touched."""
import sys
from pathlib import Path
import numpy as np
from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.split import Split
from truepair.data.split_recipes import split_random
from truepair.data.simulation import simulate_world
from truepair.data.datasets.loading import load_split, load

def adjacency(path):
    users, items, place, n = [], [], [], []
    for line in open(path):
        p = [int(x) for x in line.split()]
        if len(p) > 1:
            seen = list(dict.fromkeys(p[1:]))
            users += [p[0]] * len(seen); items += seen; place += range(len(seen)); n += [len(seen)] * len(seen)
    return map(np.array, (users, items, place, n))

def tail(path, share=.1):
    u, i, place, n = adjacency(path)
    nu, ni = u.max() + 1, i.max() + 1
    held = place >= n - np.minimum(np.floor(n * share + .5), n - 1)
    full = Interactions(u, i, IdMap.range(int(nu)), IdMap.range(int(ni)))
    key = u * ni + i
    h = Interactions(u[held], i[held], full.user_ids, full.item_ids)
    mask = h.has(full.users, full.items)
    mask &= full.take(~mask).item_counts[full.items] > 0
    return full.take(~mask), full.take(mask)

def rnd(x, share=.1, seed=1):
    s = split_random(x, test=share, seed=seed); return s.train, s.test

def get(name, data):
    data = Path(data)
    if name.endswith('-tail'): return tail(data / name[:-5] / 'train.txt')
    if name.endswith('-rnd'): return rnd(load_split(name[:-4], data).train)
    if name == 'jester': return rnd(split_random(load('jester5k', data), test=.2, seed=0).train)
    if name.startswith('world'):
        d = float(name[5:])
        w = simulate_world(3000, 1500, tau=d, density=d, seed=3)
        return rnd(w.observed)
    from truepair_lab.quality.cases import load_case
    c = load_case(name, data)
    return c.holdout.train, c.valid
