"""Acts with a policy that `agent.export` or `arac export` wrote. It needs NumPy, and neither JAX nor arac."""

import sys

import numpy as np

ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0.0),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
}


def act(policy, observation, noise=0.0):
    """Actions in the environment's units for one flat observation or a batch; `noise` is a standard normal, if any."""
    x, layer = np.asarray(observation, np.float32) @ policy["weight_0"] + policy["bias_0"], 1
    while f"weight_{layer}" in policy:
        x = normed(policy, layer - 1, x) if policy["norm"] == "before" else x
        x = ACTIVATIONS[str(policy["activation"])](x)
        x = normed(policy, layer - 1, x) if policy["norm"] == "after" else x
        x, layer = x @ policy[f"weight_{layer}"] + policy[f"bias_{layer}"], layer + 1
    if policy["kind"] == "deterministic":
        action = np.clip(np.tanh(x) + policy["sigma"] * noise, -1, 1)
    else:
        if "sigma" in policy:
            mean, std = x, policy["sigma"]
        else:
            mean, std = x[..., : x.shape[-1] // 2], np.exp(np.clip(x[..., x.shape[-1] // 2 :], -20, 2))
        action = np.tanh(flowed(policy, mean + std * noise))
    return policy["low"] + (action + 1) * 0.5 * (policy["high"] - policy["low"])


def normed(policy, layer, x):
    centred = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
    return policy[f"scale_{layer}"] * centred / deviation + policy[f"shift_{layer}"]


def flowed(policy, z, flow=0):
    while f"flow_centre_{flow}" in policy:
        centre, alpha, reach = (policy[f"flow_{name}_{flow}"] for name in ("centre", "alpha", "reach"))
        r = np.linalg.norm(z - centre, axis=-1, keepdims=True)
        z, flow = centre + (z - centre) * ((reach + r) / (alpha + r)), flow + 1
    return z


if __name__ == "__main__":  # python act_without_jax.py policy.npz observations.npy actions.npy
    with np.load(sys.argv[1]) as file:
        exported = dict(file)
    np.save(sys.argv[3], act(exported, np.load(sys.argv[2])))
