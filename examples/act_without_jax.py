"""Compute actions of a policy that `agent.export` or `arac export` wrote, without JAX and arac."""

import sys

import numpy as np

ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "tanh": np.tanh,
}


def act(policy, observation, noise=0.0):
    """Return actions in the environment's units for one flat observation or a batch; `noise` is a standard normal."""
    x = np.asarray(observation, np.float32) @ policy["weight_0"] + policy["bias_0"]
    for n in range(sum(name.startswith("weight_") for name in policy) - 1):
        x = normed(policy, n, x) if policy["norm"] == "before" else x
        x = ACTIVATIONS[str(policy["activation"])](x)
        x = normed(policy, n, x) if policy["norm"] == "after" else x
        x = x @ policy[f"weight_{n + 1}"] + policy[f"bias_{n + 1}"]
    mean, log_std = np.split(x, [len(policy["low"])], axis=-1)  # with a fixed sigma there is only a mean
    std = policy.get("sigma", np.exp(np.clip(log_std, -20, 2)))
    if policy["kind"] == "deterministic":
        action = np.clip(np.tanh(mean) + std * noise, -1, 1)
    else:
        action = np.tanh(flowed(policy, mean + std * noise))
    return policy["low"] + (action + 1) / 2 * (policy["high"] - policy["low"])


def normed(policy, n, x):
    x = x - x.mean(-1, keepdims=True)
    return policy[f"scale_{n}"] * x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) + policy[f"shift_{n}"]


def flowed(policy, z):
    for n in range(sum(name.startswith("flow_centre_") for name in policy)):
        centre, alpha, reach = (policy[f"flow_{name}_{n}"] for name in ("centre", "alpha", "reach"))
        r = np.linalg.norm(z - centre, axis=-1, keepdims=True)
        z = centre + (z - centre) * ((reach + r) / (alpha + r))
    return z


if __name__ == "__main__":  # python act_without_jax.py policy.npz observations.npy actions.npy
    with np.load(sys.argv[1]) as file:
        exported = dict(file)
    np.save(sys.argv[3], act(exported, np.load(sys.argv[2])))
