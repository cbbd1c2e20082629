"""Training: a job in, fitted matrices out."""

from truepair.training.fitting import AUTO as AUTO
from truepair.training.fitting import ENGINES as ENGINES
from truepair.training.fitting import check_sampler as check_sampler
from truepair.training.fitting import choose_engine as choose_engine
from truepair.training.fitting import fit as fit
from truepair.training.fitting import fit_many as fit_many
from truepair.training.job import Job as Job
from truepair.training.new_users import fold_in as fold_in
from truepair.training.result import EpochRecord as EpochRecord
from truepair.training.result import EpochState as EpochState
from truepair.training.result import FitResult as FitResult
from truepair.training.result import OnEpoch as OnEpoch
from truepair.training.result import StopTraining as StopTraining
from truepair.training.settings import Settings as Settings
