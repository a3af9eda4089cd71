"""Set up every test: a shared compilation cache, quick compilation and the signals of a terminal."""

import gc
import os
from importlib.metadata import version

import pytest
from terminal import signals_of_a_terminal

# Compiling takes a quarter of the time and the code is slower, which suits small runs.
QUICK_TO_COMPILE = ["--xla_backend_optimization_level=0"]
if version("jaxlib").startswith("0.10."):  # XLA ends a process that passes an option that was removed
    QUICK_TO_COMPILE += ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]


def pytest_configure(config):
    """Set variables before anything reads them; slow tests train for longer, and are compiled as users' runs are."""
    os.environ["RAY_ADDRESS"] = "local"  # otherwise a test could connect to the cluster of a parallel one
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
    """Share one compilation cache among the tests and the processes that they start."""
    base = tmp_path_factory.getbasetemp()  # several pytest processes have one each, side by side
    folder = str((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "jax-cache")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = folder
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    import jax

    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


@pytest.fixture
def signals():
    """Set SIGINT, SIGTERM and SIGHUP as in a terminal, however the tests were started."""
    with signals_of_a_terminal():
        yield
