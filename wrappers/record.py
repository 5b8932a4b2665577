"""RecordTrajectories: every episode of any loop, on disk in the project's one format."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gymnasium as gym

from dyna_gym.errors import ConfigError
from dyna_gym.policies.base import prompt_of
from dyna_gym.responses import Response
from dyna_gym.trajectory import Trajectory, Transition, append_trajectory
from dyna_gym.wrappers.base import LayerWrapper


class RecordTrajectories(LayerWrapper):
    """Append each finished episode to a JSONL file, one line an episode.

    Works over any stack of dyna_gym, with world actions or whole responses; SimRollout's draft and
    refined response become one transition. A line is written in one call and flushed, so a crash loses
    at most the episode under way. Put it outermost: an env with a recorder in it cannot be branched.

    Args:
        env: The env to record.
        path: File to append to; its folder is made.

    Examples:
        >>> import gymnasium as gym, dyna_gym, tempfile
        >>> from dyna_gym.trajectory import read_trajectories
        >>> path = tempfile.mkdtemp() + "/episodes.jsonl"
        >>> env = RecordTrajectories(gym.make("DynaGym-Sokoban-v0", max_steps=3), path)
        >>> _ = env.reset(seed=0)
        >>> for _ in range(3):
        ...     _ = env.step("up")
        >>> len(next(read_trajectories(path)).transitions)
        3
    """

    _refusal = "it writes what happens to a file"

    def __init__(self, env: gym.Env[Any, Any], path: str | os.PathLike[str]) -> None:
        if not isinstance(path, (str, os.PathLike)) or Path(path).is_dir():
            raise ConfigError(f"path: got {path!r}, expected the path of a file to append to")
        super().__init__(env, path=os.fspath(path))
        self._path = Path(path)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"path: got {path!r}, whose folder cannot be made: {error}") from None
        self._episode: Trajectory | None = None
        self._prompt: Any = None
        self._info: dict[str, Any] = {}
        self._draft: tuple[str, Response] | None = None  # prompt and text

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; one that was not finished is not written."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._episode = Trajectory(info["task"], seed=seed)
        if "search" in info:
            self._episode.mode = "resim"
        self._prompt, self._info, self._draft = observation, info, None
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step and record."""
        if self._episode is None:
            raise gym.error.ResetNeeded("the episode has ended: call env.reset() before step()")
        observation, reward, terminated, truncated, info = self.env.step(action)
        if info.get("phase") == "refine":
            self._draft = (prompt_of(self._prompt)[0], Response(str(action)))
        else:
            self._add(Response(str(action)), float(reward), terminated, truncated, info)
        self._prompt, self._info = observation, info
        if terminated or truncated:
            self._write(info)
        return observation, reward, terminated, truncated, info

    def _add(
        self,
        response: Response,
        reward: float,
        terminated: bool,
        truncated: bool,
        info: dict[str, Any],
    ) -> None:
        assert self._episode is not None
        world = self.world
        plain, draft = self._draft or (None, None)
        before = self._info
        prompt, _ = prompt_of(self._prompt)
        self._episode.transitions.append(
            Transition(
                prompt=prompt,
                response=response,
                reward=reward,
                terminated=terminated,
                truncated=truncated,
                state=before["state"],
                action=info["action"] if "action" in info else _executed(response.text, info),
                invalid_reason=info["invalid_reason"],
                plain_prompt=plain,
                draft=draft,
                futures=tuple((a, world.digest(s)) for a, s in before.get("futures", ())),
                lookahead_steps=int(before.get("lookahead_steps", 0)),
                image=before.get("image"),
            )
        )
        if draft is not None:
            self._episode.mode = "sim_rollout"
        self._draft = None

    def _write(self, info: dict[str, Any]) -> None:
        assert self._episode is not None
        self._episode.success, self._episode.score = info["success"], info["score"]
        self._episode.error = info.get("error")
        append_trajectory(self._path, self._episode)
        self._episode = None


def _executed(action: str, info: dict[str, Any]) -> str | None:
    return None if info["invalid_reason"] else action
