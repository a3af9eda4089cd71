import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def _compilation_cache(tmp_path_factory):
    """The same loops are compiled by many tests and by the processes they start: let them share."""
    base = tmp_path_factory.getbasetemp()  # several pytest processes have one each, side by side
    folder = str((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "jax-cache")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = folder
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    import jax

    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
