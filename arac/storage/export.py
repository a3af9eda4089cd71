"""A policy as plain arrays in one npz file, for programs that have neither JAX nor arac.

`examples/act_without_jax.py` reads it. Arrays that a kind of policy does not have are left out.
"""

import io
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from arac.envs import EnvSpec
from arac.errors import UserError
from arac.models.mlp import MLP
from arac.models.policies import DeterministicPolicy, FlowPolicy, Policy, RadialFlow
from arac.utils.atomic_io import write_durably
from arac.utils.paths import check_place

FORMAT = 1


def write(path: Path, policy: Policy, env: EnvSpec) -> None:
    """Write one policy with NumPy leaves to an npz file.

    Raises:
        UserError: if the policy's class is not arac's, or the file cannot be written there.
    """
    check_place(path)
    what: dict[str, Any] = {
        "format": FORMAT,
        "version": version("arac-rl"),
        "environment": env.id,
        "low": env.low.astype(env.action_dtype),
        "high": env.high.astype(env.action_dtype),
    }
    file = io.BytesIO()
    np.savez(file, **what, **to_arrays(policy))  # only numbers and strings, for which NumPy needs no pickle
    write_durably(path, file.getvalue())


def to_arrays(policy: Policy) -> dict[str, Any]:
    """Return the content of the npz file that describes the policy: its kind and its arrays.

    Raises:
        UserError: if the policy's class is not arac's.
    """
    if isinstance(policy, DeterministicPolicy):
        return {"kind": "deterministic", "sigma": np.float32(policy.exploration), **_network(policy.network)}
    if isinstance(policy, FlowPolicy):
        sigma = {} if policy.base.sigma is None else {"sigma": np.float32(policy.base.sigma)}  # else it is learned
        return {"kind": "flow", **sigma, **_network(policy.base.network), **_flows(policy.flows)}
    raise UserError(
        f"Cannot export the custom policy {type(policy).__name__}: only built-in policies can be exported. Save its "
        "arrays with numpy.savez."
    )


def _network(network: MLP) -> dict[str, Any]:
    return {
        "activation": network.style.activation,
        "norm": network.style.norm,
        **{f"weight_{layer}": weight for layer, weight in enumerate(network.weights)},
        **{f"bias_{layer}": bias for layer, bias in enumerate(network.biases)},
        **{f"scale_{layer}": norm.scale for layer, norm in enumerate(network.norms)},
        **{f"shift_{layer}": norm.shift for layer, norm in enumerate(network.norms)},
    }


def _flows(flows: tuple[RadialFlow, ...]) -> dict[str, Any]:
    """Return the centre, alpha and reach of each flow, in the order in which the flows are applied."""
    names = "centre", "alpha", "reach"
    return {f"flow_{name}_{n}": getattr(flow, name) for n, flow in enumerate(flows) for name in names}
