"""Learning curves as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dyna_gym.errors import needs
from dyna_gym.files import read_rows

PANELS = (
    ("charts/success", "success"),
    ("charts/sim_score", "simulation score"),
    ("charts/return", "return"),
    ("charts/zero_advantage_frac", "groups without advantage"),
    ("losses/approx_kl", "approximate KL"),
    ("losses/clip_fraction", "clipped share"),
    ("losses/nll", "NLL a token"),
    ("losses/value", "value loss"),
)
"""Metrics that are drawn, where a run has them."""


def plot_curves(runs: Mapping[str, Path], target: Path) -> None:
    """Draw the metrics of some runs over their generated tokens, or their steps where none are counted.

    Args:
        runs: Name -> ``metrics.jsonl``.
        target: PNG file to write.
    """
    with needs("train", __name__):
        from matplotlib.figure import Figure  # no pyplot: it would pick a display

    read = {name: list(read_rows(path)) for name, path in runs.items() if path.exists()}
    seen = {key for rows in read.values() for row in rows for key in row}
    panels = [(key, title) for key, title in PANELS if key in seen]
    if not panels:
        return
    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(4 * columns, 3.2 * lines), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False).ravel()
    tokens = "charts/generated_tokens" in seen
    for axis, (key, title) in zip(axes, panels, strict=False):
        for name, rows in read.items():
            points = [
                (r.get("charts/generated_tokens", 0) / 1000 if tokens else r["step"], r[key])
                for r in rows
                if key in r
            ]
            if points:
                xs, ys = zip(*points, strict=True)
                axis.plot(xs, ys, label=name, linewidth=1.2)
        axis.set_title(title)
        axis.set_xlabel("generated tokens (thousands)" if tokens else "step")
        axis.grid(alpha=0.3)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    axes[0].legend()
    figure.savefig(target, dpi=110)
