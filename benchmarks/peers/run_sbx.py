"""SBX's PPO (JAX) on the same work, with its own defaults otherwise."""

import jax
from protocol import case, serve
from sbx import PPO
from stable_baselines3.common.env_util import make_vec_env


def main() -> None:
    """Learn one unit at a time."""
    asked = case()
    env = make_vec_env(asked["env"], n_envs=asked["agents"], seed=0)
    model = PPO(
        "MlpPolicy",
        env,
        n_steps=asked["horizon"],
        batch_size=asked["minibatch"],
        n_epochs=asked["epochs"],
    )
    unit = asked["iterations"] * asked["agents"] * asked["horizon"]

    def work() -> int:
        model.learn(unit, reset_num_timesteps=False)
        jax.block_until_ready(model.policy.actor_state.params)
        return unit

    serve(work)


if __name__ == "__main__":
    main()
