"""V_nu: how likely the task is solved from a state (Dyna-Mind, App. D.3)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dyna_gym.errors import ConfigError, needs
from dyna_gym.learning.optimise import StepGuard
from dyna_gym.policies.causal import check_finite
from dyna_gym.policies.vocabulary import build_tokenizer
from dyna_gym.progress import counted
from dyna_gym.task import Task
from dyna_gym.trajectory import Trajectory
from dyna_gym.world import World

with needs("train", __name__):
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import LlamaConfig, LlamaModel


def value_labels(
    trajectories: Sequence[Trajectory], gamma: float, t_max: int
) -> list[tuple[str, str, float]]:
    """Labels of App. D.3: ``V(s_t) = gamma ** (t_max - t) * share of successes among the trajectories with s_t``.

    The exponent is as printed, so that later states are discounted less; it is unusual, and gamma is [NF].
    Trajectories are told apart by task; a state that a trajectory visits several times counts once in the share and
    is labelled at each visit.

    Args:
        trajectories: Episodes, failed machinery left out.
        gamma: Discount.
        t_max: Step budget T of the tasks.

    Returns:
        (task id, state, label) of each visit.
    """
    outcomes: dict[tuple[str, str], list[float]] = defaultdict(list)
    for episode in trajectories:
        for state in {t.state for t in episode.transitions}:
            outcomes[episode.task.id, state].append(float(episode.success))
    labels = []
    for episode in trajectories:
        for t, transition in enumerate(episode.transitions):
            rate = float(np.mean(outcomes[episode.task.id, transition.state]))
            label = gamma ** max(0, t_max - t) * rate
            labels.append((episode.task.id, transition.state, label))
    return labels


class ValueModel:
    """A small Llama over the world's compact states with a scalar head; a `dyna_gym.search.ValueFn`.

    Architecture, loss (cross-entropy against the label) and data are [NF]: ours.

    Args:
        world: The world whose states are valued.
        seed: Seed of the weights.
        hidden: Width.
        layers: Layers.
    """

    def __init__(self, world: World, seed: int = 0, hidden: int = 64, layers: int = 2) -> None:
        self._world = world
        self._settings = {"hidden": hidden, "layers": layers}
        self._tokenizer = build_tokenizer(world)
        config = LlamaConfig(
            vocab_size=len(self._tokenizer),
            hidden_size=hidden,
            intermediate_size=hidden * 3,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            pad_token_id=self._tokenizer.pad_token_id,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._body = LlamaModel(config)
            self._head = torch.nn.Linear(hidden, 1)
        self._modules = torch.nn.ModuleDict({"body": self._body, "head": self._head})

    def _logits(self, states: Sequence[str]) -> torch.Tensor:
        rows = [
            self._tokenizer(self._world.compact(s), add_special_tokens=False)["input_ids"]
            for s in states
        ]
        width = max(len(r) for r in rows)
        ids = torch.full((len(rows), width), self._tokenizer.pad_token_id)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row)
        last = torch.tensor([len(r) - 1 for r in rows])
        hidden = self._body(input_ids=ids, use_cache=False).last_hidden_state
        return self._head(hidden[torch.arange(len(rows)), last]).squeeze(-1)

    def fit(
        self,
        states: Sequence[str],
        labels: Sequence[float],
        *,
        steps: int,
        batch: int,
        lr: float,
        seed: int,
        progress: str | None = None,
    ) -> list[float]:
        """Train on (state, label) pairs; returns the loss of each step.

        Raises:
            TrainingDiverged: Losses or gradients were not finite for some steps in a row.
        """
        optimizer = torch.optim.AdamW(self._modules.parameters(), lr=lr)
        weights = list(self._modules.parameters())
        guard = StepGuard(
            optimizer,
            torch.Tensor.backward,
            lambda: torch.nn.utils.clip_grad_norm_(weights, max_norm=1.0),
        )
        rng = np.random.default_rng(seed)
        target = torch.tensor(list(labels), dtype=torch.float32)
        losses = []
        for _ in counted(range(steps), steps, progress, "steps"):
            picks = rng.integers(len(states), size=min(batch, len(states)))
            logits = self._logits([states[i] for i in picks])
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, target[picks])
            guard.step(loss)
            losses.append(float(loss.detach()))
        return losses

    @torch.inference_mode()
    def __call__(self, tasks: Sequence[Task], states: Sequence[str]) -> np.ndarray:
        """Values [n] in [0, 1]; equal states are computed once."""
        unique = sorted(set(states), key=len)
        found: dict[str, float] = {}
        for start in range(0, len(unique), 512):
            chunk = unique[start : start + 512]
            found |= zip(chunk, torch.sigmoid(self._logits(chunk)).tolist(), strict=True)
        return np.array([found[s] for s in states])

    def save(self, folder: str | Path) -> None:
        """Write weights (safetensors) and settings."""
        check_finite(self._modules)
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        save_file(self._modules.state_dict(), path / "value.safetensors")
        told = {**self._settings, "world": self._world.name, "vocabulary": len(self._tokenizer)}
        (path / "value.json").write_text(json.dumps(told))

    @classmethod
    def load(cls, folder: str | Path, world: World) -> ValueModel:
        """Read what `save` wrote.

        Raises:
            ConfigError: It is of another world, or of one with another vocabulary.
        """
        path = Path(folder) / "value.json"
        if not path.exists():
            raise ConfigError(f"{folder}: got no value.json, expected a folder that `save` wrote")
        told = json.loads(path.read_text())
        model = cls(world, hidden=told["hidden"], layers=told["layers"])
        mine = (world.name, len(model._tokenizer))
        if (told["world"], told["vocabulary"]) != mine:
            raise ConfigError(
                f"{folder}: got a value model of {told['world']!r} with {told['vocabulary']} tokens, expected "
                f"{mine[0]!r} with {mine[1]}: use the world's settings that it was trained with"
            )
        model._modules.load_state_dict(load_file(Path(folder) / "value.safetensors"))
        return model
