import jax
import pytest


@pytest.fixture
def float64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def no_silent_broadcasts():
    with jax.numpy_rank_promotion("raise"):
        yield
