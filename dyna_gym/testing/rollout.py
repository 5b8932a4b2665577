"""A rollout in a process of its own: ``python -m dyna_gym.testing.rollout < job > result``."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from dyna_gym.testing.common import ContractError, require
from dyna_gym.testing.playing import play

TIMEOUT_S = 600


def rollouts_elsewhere(
    spec: EnvSpec, seeds: tuple[int, ...], steps: int, hash_seed: int
) -> list[list[dict[str, Any]]]:
    """Play in a new Python process with that PYTHONHASHSEED; one list of rows a seed."""
    try:
        job = pickle.dumps((spec, seeds, steps))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ContractError(
            f"got: a spec that cannot be pickled ({error}); expected: names and plain data in the "
            "registration and in the arguments of make; what to do: register with a string entry "
            'point ("module:Class")'
        ) from error
    environment = {
        **os.environ,
        "PYTHONHASHSEED": str(hash_seed),
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-m", "dyna_gym.testing.rollout"],
        input=job,
        capture_output=True,
        env=environment,
        timeout=TIMEOUT_S,
        check=False,
    )
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    require(
        done.returncode == 0,
        f"a new process that makes {spec.id} ended with code {done.returncode}: "
        f"{lines[-1] if lines else 'no message'}",
        "an env that can be made from its spec in any process",
        "the entry point must be importable there; run the rollout by hand to see the traceback",
    )
    result: list[list[dict[str, Any]]] = json.loads(done.stdout)
    return result


def main() -> None:
    """Read a job from standard input, write the rows to standard output."""
    spec, seeds, steps = pickle.load(sys.stdin.buffer)
    # Whatever a world prints must not mix with the result.
    output, sys.stdout = sys.stdout, sys.stderr
    env = gym.make(spec)
    rows = [play(env, seed, steps) for seed in seeds]
    env.close()
    json.dump(rows, output)


if __name__ == "__main__":
    main()
