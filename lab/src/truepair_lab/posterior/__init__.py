"""The loss "infonce-posterior", which importing this package registers with truepair."""

from truepair.losses import register_loss
from truepair_lab.posterior.loss import InfoNCEPosterior as InfoNCEPosterior

register_loss("infonce-posterior", InfoNCEPosterior)
