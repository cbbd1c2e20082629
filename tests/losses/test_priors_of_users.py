"""A prior for each user: every one of them is a share below 1."""

import pytest

from truepair.errors import InputError
from truepair.losses import DCL, DPL


@pytest.mark.parametrize("kind", [DPL, DCL])
@pytest.mark.parametrize(("taus", "user"), [((0.1, 1.0, 0.2), 1), ((0.1, 0.2, -0.01), 2), ((1.5,), 0)])
def test_a_users_prior_out_of_range_is_named(kind, taus, user):
    with pytest.raises(InputError, match=rf"tau of user {user} = {taus[user]} .* ≥ 0 and < 1"):
        kind(tau=taus)
    assert kind(tau=(0.0, 0.999)).tau == (0.0, 0.999)
