"""Which of Gymnasium's own wrappers can be branched, and why the others cannot."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from dyna_gym.errors import BranchError
from dyna_gym.layers import BranchableLayer, Kind

GYMNASIUM: dict[str, tuple[str, ...]] = {
    "AddRenderObservation": (),
    "AddWhiteNoise": (),
    "Autoreset": (),
    "ClipAction": (),
    "ClipReward": (),
    "DelayObservation": (),
    "DiscretizeAction": ("low", "high", "bins", "bin_centers"),
    "DiscretizeObservation": ("low", "high", "bins", "bin_edges"),
    "DtypeObservation": (),
    "FilterObservation": ("filter_keys",),
    "FlattenObservation": (),
    "FrameStackObservation": ("stacked_obs",),  # written anew at each step, never read
    "GrayscaleObservation": (),
    "MaxAndSkipObservation": (),
    "NormalizeObservation": (),
    "NormalizeReward": (),
    "ObstructView": (),
    "OrderEnforcing": (),
    "PassiveEnvChecker": ("close_called",),
    "RecordEpisodeStatistics": (),
    "RenderCollection": (),
    "RepeatAction": (),
    "RescaleAction": (),
    "RescaleObservation": (),
    "ReshapeObservation": (),
    "ResizeObservation": (),
    "StickyAction": (),
    "TimeAwareObservation": (),
    "TimeLimit": (),
    "TransformAction": (),
    "TransformObservation": (),
    "TransformReward": (),
}
"""Wrappers of `gymnasium.wrappers` that change nothing but their own attributes, and which of these are fixed."""

_CHANGING = {
    "OrderEnforcing": ("_has_reset",),
    "PassiveEnvChecker": ("_previous_data",),
    "TimeLimit": ("_elapsed_steps",),
}
"""See `BranchableLayer`."""

REFUSED: dict[str, str] = {
    "ArrayConversion": "it holds arrays of other libraries, on devices, which are not ours to copy",
    "AtariPreprocessing": "it is made for the Atari emulator, whose frames are no state of ours",
    "HumanRendering": "its window would show what happens in branches",
    "JaxToNumpy": "it holds arrays of other libraries, on devices, which are not ours to copy",
    "JaxToTorch": "it holds arrays of other libraries, on devices, which are not ours to copy",
    "NumpyToTorch": "it holds arrays of other libraries, on devices, which are not ours to copy",
    "RecordVideo": "its video would show what happens in branches",
}
"""Wrappers of `gymnasium.wrappers` that cannot be branched, and why."""

_KINDS: dict[type, Kind] = {}


def register_adapter(
    wrapper: type[gym.Wrapper[Any, Any, Any, Any]], *, fixed: tuple[str, ...] = ()
) -> None:
    """Say that a third-party wrapper changes nothing but its own attributes, so that it can be branched.

    All of its attributes are then copied and put back; see `dyna_gym.layers`.

    Args:
        wrapper: The exact class; subclasses need an entry of their own, as they may do more.
        fixed: Attributes that are no state, such as functions, models and other envs.
    """
    _KINDS[wrapper] = Kind(wrapper, (), fixed)


def kind_of(layer: Any) -> Kind:
    """What is known about the attributes of a layer.

    Raises:
        BranchError: It cannot be branched.
    """
    layer_type = type(layer)
    kind = _KINDS.get(layer_type)
    if kind is None:
        kind = _KINDS[layer_type] = _found(layer_type)
    return kind


def _found(layer_type: type) -> Kind:
    name = layer_type.__name__
    refusal = "it may record what happens in a branch"
    if issubclass(layer_type, BranchableLayer):
        if layer_type._refusal is None:
            declared: dict[str, set[str]] = {"_changing": set(), "_fixed": set()}
            for base in layer_type.__mro__:
                for kind, names in declared.items():
                    names.update(vars(base).get(kind, ()))
            ours = layer_type.__module__.startswith("dyna_gym.")
            return Kind(layer_type, declared["_changing"], declared["_fixed"], complete=ours)
        refusal = layer_type._refusal
    elif layer_type.__module__.startswith("gymnasium.wrappers."):
        if name in GYMNASIUM:
            complete = name in ("TimeLimit", "OrderEnforcing")  # they are in nearly every stack
            return Kind(layer_type, _CHANGING.get(name, ()), GYMNASIUM[name], complete)
        refusal = REFUSED.get(name, refusal)
    raise BranchError(
        f"the wrapper {name} cannot be branched: {refusal}. Put it outside the lookahead wrapper, or, if "
        "it changes nothing but its own attributes, say so with dyna_gym.adapters.register_adapter"
    )
