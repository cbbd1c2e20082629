import sys, json, time, itertools
import torch
from cases import get
from truepair import Recommender
from truepair.evaluation import Validation
from truepair.training import fit, fit_many
out = open(sys.argv[3], 'a')
def run(name, data, grid, many=1):
    train, valid = get(name, data)
    judge = Validation(valid, train, 'ndcg@20', cold='model')
    for g in range(0, len(grid), many):
        part = grid[g:g + many]
        began = time.perf_counter()
        recs = [Recommender(dim=p['d'], temperature=p['t'], popularity=p['g'], epochs=p['E'], learning_rate=p.get('lr', .01), batch_size=p.get('B'), validate_every=p.get('every', 5 if p['E'] > 10 else p['E']), validation=.1, patience=None) for p in part]
        jobs = [r.job(train) for r in recs]
        res = fit_many(jobs, judge) if many > 1 else [fit(j, judge) for j in jobs]
        s = (time.perf_counter() - began) / len(part)
        for p, r in zip(part, res):
            curve = [(h.epoch, round(h.score, 5)) for h in r.history if h.score is not None] if hasattr(r, 'history') else []
            line = dict(case=name, **p, score=max(c[1] for c in curve) if curve else None, curve=curve, seconds=round(s, 2), n=[train.n_users, train.n_items, len(train)])
            out.write(json.dumps(line) + '\n'); out.flush()
            print(name, p, line['score'], round(s, 2), flush=True)
def product(**k): return [dict(zip(k, v)) for v in itertools.product(*k.values())]
if __name__ == '__main__':
    name, data = sys.argv[1], sys.argv[2]
    plan = sys.argv[4]
    grids = {
     'cheap': product(d=[64], t=[.05,.075,.11,.16,.24], g=[0,.4,.8], E=[10]),
     'dear': product(d=[256], t=[.075,.1,.13], g=[.4,.8], E=[30]),
     'cheapdense': product(d=[64], t=[.1,.14,.2,.28,.4,.6], g=[0,.3,.6,1], E=[10]),
     'deardense': product(d=[256], t=[.1,.14,.2,.28,.4,.6], g=[0,.3,.6,1], E=[30]),
     'cheap20': product(d=[64], t=[.1,.14,.2,.28,.4], g=[0,.3,.6], E=[20]),
     'dear1': product(d=[256], t=[.14,.2,.28,.4], g=[0,.3,.6], E=[30]),
     'mid': product(d=[128], t=[.14,.2,.28], g=[0,.4,.8], E=[30]),
     'tiny': product(d=[16], t=[.1], g=[0], E=[2]),
    }
    for p in plan.split(','): run(name, data, grids[p], int(sys.argv[5]) if len(sys.argv) > 5 else 1)
