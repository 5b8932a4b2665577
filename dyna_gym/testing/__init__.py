"""Checks that every env of dyna_gym passes, for authors of worlds.

Derive your env from `dyna_gym.env.WorldEnv`, register it, and let the checks tell what is missing::

    # my_package/__init__.py
    from dyna_gym.registration import register_world

    register_world("MyWorld-v0", "my_package.env:MyEnv", budget=30)

``budget`` is the step budget of tasks that have none of their own; a world that a model plays
(`dyna_gym.model_env.ModelEnv`) is registered with ``batched=True``. From a shell, one line a check::

    dyna-gym check my_package:MyWorld-v0

From pytest, one test a check, in a test module of yours::

    from dyna_gym.testing import EnvContractTests

    class TestMyWorld(EnvContractTests):
        env_id = "my_package:MyWorld-v0"
        make_kwargs = {"split": "eval_id"}

From Python, `run_checks` returns the results, and each ``check_*`` can be called alone: it returns
a line that says what was checked, or raises `ContractError` with what was got, what was expected
and what to do. `NotApplicable` means that the check says nothing about this env (no expert, no text,
no branching). An id may stand with its module (``module:id``), which is imported first.

The checks need no GPU, no network beyond what the env itself uses, and some seconds an env.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dyna_gym.testing.acting import (
    check_action_space,
    check_hostile_responses,
    check_hostile_text,
    check_info,
    check_returned_values,
)
from dyna_gym.testing.agents import check_expert, check_idle_agents, check_random_agent
from dyna_gym.testing.common import ContractError, NotApplicable
from dyna_gym.testing.copying import (
    check_branch,
    check_clone,
    check_deepcopy_and_pickle,
    check_second_instance,
)
from dyna_gym.testing.lookahead import (
    check_broken_draft,
    check_drafts_are_not_judged,
    check_drafts_hide_noise,
)
from dyna_gym.testing.models import (
    check_lockstep_agents,
    check_lockstep_vector,
    check_requests,
)
from dyna_gym.testing.seeding import (
    check_global_rng,
    check_gymnasium,
    check_repeatable,
    check_same_seed,
    check_task_option,
    check_two_processes,
    check_unseeded_reset,
)
from dyna_gym.testing.stacks import check_spec_round_trip, check_wrappers_forward
from dyna_gym.testing.state import check_state, check_world_is_shared
from dyna_gym.testing.vectors import (
    check_autoreset,
    check_group_reset,
    check_shared_memory,
    check_sync_equals_async,
)
from dyna_gym.testing.worlds import check_grammar, check_splits

Check = Callable[..., str]

CHECKS: tuple[Check, ...] = (
    check_gymnasium,
    check_info,
    check_same_seed,
    check_unseeded_reset,
    check_task_option,
    check_repeatable,
    check_two_processes,
    check_global_rng,
    check_splits,
    check_grammar,
    check_state,
    check_world_is_shared,
    check_clone,
    check_second_instance,
    check_branch,
    check_deepcopy_and_pickle,
    check_spec_round_trip,
    check_wrappers_forward,
    check_action_space,
    check_hostile_text,
    check_hostile_responses,
    check_returned_values,
    check_drafts_are_not_judged,
    check_drafts_hide_noise,
    check_broken_draft,
    check_requests,
    check_lockstep_agents,
    check_lockstep_vector,
    check_idle_agents,
    check_random_agent,
    check_expert,
    check_group_reset,
    check_autoreset,
    check_sync_equals_async,
    check_shared_memory,
)
"""All checks, cheap and basic ones first."""

__all__ = [
    "CHECKS",
    "CheckResult",
    "ContractError",
    "EnvContractTests",
    "NotApplicable",
    "run_check",
    "run_checks",
    *(check.__name__ for check in CHECKS),
]


@dataclass(frozen=True)
class CheckResult:
    """How one check went."""

    name: str
    """Name of the check, without ``check_``."""
    status: str
    """`passed`, `failed` or `skipped`."""
    detail: str
    """What was checked, why it failed, or why it does not apply."""
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong (a skipped check finds nothing wrong)."""
        return self.status != "failed"


def _accepted(check: Check, **settings: Any) -> dict[str, Any]:
    """Those of the settings that are given and that the check has."""
    names = inspect.signature(check).parameters
    return {k: v for k, v in settings.items() if v is not None and k in names}


def run_check(
    check: Check,
    env_id: str,
    *,
    episodes: int | None = None,
    seconds: float | None = None,
    **make_kwargs: Any,
) -> CheckResult:
    """Run one check and report how it went instead of raising.

    Args:
        check: One of `CHECKS`.
        env_id: A registered id, also with its module before it (``module:id``).
        episodes: Tasks a split that agents play, for the checks that play; default theirs.
        seconds: Time after which a check that plays begins nothing new; default theirs, a minute.
        make_kwargs: Arguments of ``gymnasium.make``.
    """
    settings = {**make_kwargs, **_accepted(check, episodes=episodes, seconds=seconds)}
    started = time.perf_counter()
    try:
        status, detail = "passed", check(env_id, **settings)
    except NotApplicable as reason:
        status, detail = "skipped", str(reason)
    except ContractError as error:
        status, detail = "failed", str(error)
    except Exception as error:
        status, detail = "failed", f"the check could not run: {type(error).__name__}: {error}"
    name = check.__name__.removeprefix("check_")
    return CheckResult(name, status, detail, time.perf_counter() - started)


def run_checks(
    env_id: str,
    *,
    checks: Sequence[Check] = CHECKS,
    episodes: int | None = None,
    seconds: float | None = None,
    on_result: Callable[[CheckResult], None] | None = None,
    **make_kwargs: Any,
) -> list[CheckResult]:
    """Run all checks on one id.

    Args:
        env_id: A registered id, also with its module before it (``module:id``).
        checks: Which; default all.
        episodes: Tasks a split that agents play, for the checks that play; default theirs.
        seconds: Time after which a check that plays begins nothing new; default theirs, a minute.
        on_result: Called after each check, for instance to show progress.
        make_kwargs: Arguments of ``gymnasium.make``.

    Returns:
        One result a check.

    Examples:
        >>> import dyna_gym
        >>> results = run_checks("DynaGym-Sokoban-v0", checks=[check_same_seed, check_task_option])
        >>> [result.status for result in results]
        ['passed', 'passed']
    """
    results = []
    for check in checks:
        results.append(run_check(check, env_id, episodes=episodes, seconds=seconds, **make_kwargs))
        if on_result is not None:
            on_result(results[-1])
    return results


class EnvContractTests:
    """Mixin for test classes (pytest or unittest): one test method a check.

    Subclasses set ``env_id`` and may set ``make_kwargs``, ``episodes``, ``seconds`` and ``skip`` (names
    of checks without ``check_``).
    """

    env_id: ClassVar[str]
    make_kwargs: ClassVar[dict[str, Any]] = {}
    episodes: ClassVar[int] = 3
    seconds: ClassVar[float] = 60.0
    skip: ClassVar[tuple[str, ...]] = ()

    def _run(self, check: Check) -> None:
        if check.__name__.removeprefix("check_") in self.skip:
            raise NotApplicable("left out by this test class")
        settings = _accepted(check, episodes=self.episodes, seconds=self.seconds)
        check(self.env_id, **settings, **self.make_kwargs)


def _method(check: Check) -> Callable[[EnvContractTests], None]:
    def test(self: EnvContractTests) -> None:
        self._run(check)

    test.__doc__ = check.__doc__
    return test


for _check in CHECKS:
    _name = f"test_{_check.__name__.removeprefix('check_')}"
    setattr(EnvContractTests, _name, _method(_check))
