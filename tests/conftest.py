"""What every test runs with: one compilation cache, quick compiling, and signals as a test needs them."""

import gc
import os
from importlib.metadata import version

import pytest
from terminal import signals_of_a_terminal

# A fourth of the time to compile all algorithms, for code that is slower at work: right where small runs are compared.
QUICK_TO_COMPILE = ["--xla_backend_optimization_level=0"]
if version("jaxlib").startswith("0.10."):  # XLA ends a process that names an option which it has dropped
    QUICK_TO_COMPILE += ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]


def pytest_configure(config):
    """Set variables before anything reads them; slow tests train for longer, and are compiled as users' runs are."""
    os.environ["RAY_ADDRESS"] = "local"  # else a test would find the cluster of another that runs beside it
    if not is_slow(config):
        os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *QUICK_TO_COMPILE])


def pytest_collection_finish():
    """Collect garbage seldom, and nothing that was imported: tracing makes much of it, a tenth of the time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def is_slow(config):
    return config.option.markexpr in ("slow", "smoke")


@pytest.fixture(scope="session", autouse=True)
def _small_critic_of_erl(pytestconfig):
    """Shrink the one network whose size is no setting: code that is quick to compile is slow with large products."""
    with pytest.MonkeyPatch.context() as patched:
        if not is_slow(pytestconfig):
            from arac.algorithms import erl

            patched.setattr(erl, "_BRANCH", 16)
            patched.setattr(erl, "_JOINT", 24)
        yield


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


@pytest.fixture
def signals():
    """SIGINT, SIGTERM and SIGHUP as in a terminal, however the tests were started."""
    with signals_of_a_terminal():
        yield
