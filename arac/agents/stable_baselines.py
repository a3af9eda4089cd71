"""Answers to arguments of Stable-Baselines3 that have another name here, or none."""

from collections.abc import Iterable

from arac.errors import UserError

POLICIES = ("MlpPolicy", "CnnPolicy", "MultiInputPolicy")
NAMES = {
    "action_noise": "exploration_noise is its scale, for TD3, ERL and CERL",
    "buffer_size": "it is replay_capacity",
    "device": "JAX selects the device, by the environment variable JAX_PLATFORMS",
    "ent_coef": "it is temperature",
    "gamma": "it is discount",
    "gradient_steps": "there is one update for each environment step",
    "learning_starts": "it is warmup_steps",
    "n_envs": "workers is the number of processes that play episodes",
    "policy_kwargs": "hidden_size is the number of units per hidden layer, and policy takes a custom class",
    "target_entropy": 'temperature="auto" aims at minus the number of actions',
    "target_policy_noise": "it is target_noise",
    "tensorboard_log": "learn(run_dir=...) writes TensorBoard's events, too",
    "total_timesteps": "it is an argument of learn",
    "train_freq": "updates follow each episode, one for each of its steps",
    "use_sde": "noise_hold=64 holds each noise sample for up to 64 steps",
    "verbose": "learn(progress_bar=True) shows the progress",
}


def check_arguments(agent: str, env: object, more: tuple[object, ...], settings: Iterable[str]) -> None:
    """Check that the arguments of an agent are not those of Stable-Baselines3.

    Raises:
        UserError: if a policy comes first, or a setting has another name here.
    """
    if more or env in POLICIES:
        raise UserError(f"Pass the environment as the only argument without a name: {agent}(env).", fields=("env",))
    for name in settings:
        if name in NAMES:
            raise UserError(f"{agent} has no setting {name!r}: {NAMES[name]}.", fields=(name,))
