"""The guard of torch's global generator holds here too."""

from tests.policies.conftest import _torch_rng_untouched  # noqa: F401
