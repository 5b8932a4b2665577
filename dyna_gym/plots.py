"""Learning curves as a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

PANELS = (
    ("charts/success", "success"),
    ("charts/sim_score", "simulation score"),
    ("charts/return", "return"),
    ("charts/zero_advantage_frac", "groups without advantage"),
    ("losses/approx_kl", "approximate KL"),
    ("losses/clip_fraction", "clipped share"),
)


def plot_curves(runs: Mapping[str, Path], target: Path) -> None:
    """Draw the metrics of some runs over their generated tokens.

    Args:
        runs: Name -> ``metrics.jsonl``.
        target: PNG file to write.
    """
    from matplotlib.figure import Figure  # no pyplot: it would pick a display

    figure = Figure(figsize=(12, 6.5), layout="constrained")
    axes = figure.subplots(2, 3).ravel()
    for name, path in runs.items():
        if not path.exists():
            continue
        rows = [json.loads(line) for line in path.read_text().split("\n")[:-1]]
        for axis, (key, title) in zip(axes, PANELS, strict=True):
            points = [(r["charts/generated_tokens"], r[key]) for r in rows if key in r]
            if points:
                xs, ys = zip(*points, strict=True)
                axis.plot([x / 1000 for x in xs], ys, label=name, linewidth=1.2)
            axis.set_title(title)
            axis.set_xlabel("generated tokens (thousands)")
            axis.grid(alpha=0.3)
    axes[0].legend()
    figure.savefig(target, dpi=110)
