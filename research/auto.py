"""Plain Recommender on case.train, judged on case.valid (an outer validation; test untouched)."""
import sys, json, time
import numpy as np
from cases import get
from truepair import Recommender
from truepair.evaluation import Validation
name, data = sys.argv[1:3]
kw = eval(sys.argv[3]) if len(sys.argv) > 3 else {}
train, valid = get(name, data)
judge = Validation(valid, train, 'ndcg@20', cold='model')
b = time.perf_counter(); m = Recommender(**kw).fit(train, progress=True); s = time.perf_counter() - b
a = m.facts_.get('automatic', {})
f = dict(a.get('chosen', {}))
last = [h.seconds for h in m.result_.history]
print(json.dumps(dict(case=name, kw=str(kw), outer=round(judge.score(*m.matrices()), 5), seconds=round(s, 1), final=round(sum(last), 1), auto=a.get('seconds'), chosen=f)), flush=True)
