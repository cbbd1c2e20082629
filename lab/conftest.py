"""The loss that the lab registers with truepair is registered for its own tests, not for the product's."""

import pytest

from truepair.losses import LOSSES
from truepair_lab.posterior import InfoNCEPosterior

LOSSES.pop("infonce-posterior")


@pytest.fixture(scope="module", autouse=True)
def registered():
    """`infonce-posterior`, as importing the lab registers it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LOSSES, "infonce-posterior", InfoNCEPosterior)
        yield
