"""SimRollout and ReSim: looking ahead leaves no trace, and shows what really happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gymnasium import wrappers as gw

from dyna_gym.errors import BranchError, ConfigError
from dyna_gym.policies import AggregatorPolicy
from dyna_gym.policies.base import as_messages
from dyna_gym.simulation import draft_score, simulation_score
from dyna_gym.wrappers import AbstractStateWrapper, OutcomeReward, SimRolloutWrapper
from tests.conftest import SOKOBAN
from tests.worlds import TO_FOUR, TO_TWO, answer

Make = Callable[..., Any]


# -- SimRollout ------------------------------------------------------------------------------------


def sim_stack(make: Make, **settings: Any) -> tuple[Any, Any, Any]:
    """SimRollout over a limit of three steps, statistics and a step penalty."""
    limit = gw.TimeLimit(make("Counter"), 3)
    statistics = gw.RecordEpisodeStatistics(OutcomeReward(limit))
    return SimRolloutWrapper(AbstractStateWrapper(statistics), **settings), limit, statistics


def test_drafts_never_count_pay_or_end(make: Make) -> None:
    env, limit, statistics = sim_stack(make)
    observation, info = env.reset(options=TO_TWO)
    assert (info["phase"], info["futures"], info["draft"]) == ("draft", (), None)
    for step in range(3):
        draft = answer("inc", *["wait"] * 5)  # longer than what is left of the limit
        seen, reward, terminated, truncated, info = env.step(draft)
        assert (seen, reward, terminated, truncated) == (observation, 0.0, False, False)
        assert (info["phase"], info["draft"], info["plan_reason"]) == ("refine", draft, None)
        assert info["lookahead_steps"] == len(info["futures"]) == 3 - step
        assert limit._elapsed_steps == step
        assert len(statistics.return_queue) == 0
        observation, reward, terminated, truncated, info = env.step(answer("wait"))
        assert (reward, truncated) == ((0.0, True) if step == 2 else (-0.1, False))
        assert not terminated
        assert (info["phase"], info["futures"], info["action"]) == ("draft", (), "wait")
    assert info["episode"]["l"] == 3
    assert float(info["episode"]["r"]) == pytest.approx(-0.2)


def test_a_plan_that_solves_in_the_branch_does_not_end_the_episode(make: Make) -> None:
    env, _, statistics = sim_stack(make)
    env.reset(options=TO_TWO)
    _, reward, terminated, truncated, info = env.step(answer("inc", "inc", "inc", "dec"))
    assert (reward, terminated, truncated, info["success"]) == (0.0, False, False, False)
    # The branch stops where the episode would.
    assert info["futures"] == (("inc", "n=1 goal=2"), ("inc", "n=2 goal=2"))
    assert not env.step(answer("inc"))[2]
    env.step(answer("inc", "inc"))
    _, reward, terminated, _, info = env.step(answer("inc"))
    assert (reward, terminated, info["success"]) == (10.0, True, True)
    assert float(statistics.return_queue[-1]) == pytest.approx(9.9)


@pytest.mark.parametrize(
    ("draft", "futures", "reason"),
    [
        ("gibberish", 0, "no_plan"),
        ("<plan>\n</plan>", 0, "empty_plan"),
        ("<think>inc", 0, "unclosed_think"),
        (None, 0, "no_plan"),
        ("<action>inc</action>", 1, "no_plan"),  # a plan of one step
        ("<plan>\nfly\ninc\n</plan>", 2, None),  # a bad step is a step
    ],
)
def test_an_unreadable_plan_still_leads_to_a_refine_phase(
    make: Make, draft: Any, futures: int, reason: str | None
) -> None:
    env = SimRolloutWrapper(make("Counter"))
    env.reset(options=TO_TWO)
    info = env.step(draft)[4]
    assert (info["phase"], info["plan_reason"]) == ("refine", reason)
    assert len(info["futures"]) == futures
    assert env.step(answer("inc"))[0] == "n=1 goal=2"


def test_max_depth_caps_the_lookahead(make: Make) -> None:
    env = SimRolloutWrapper(make("Counter"), max_depth=2)
    env.reset(options=TO_TWO)
    assert env.step(answer("dec", *["dec"] * 9))[4]["lookahead_steps"] == 2
    env = SimRolloutWrapper(make("Counter"))
    env.reset(options=TO_TWO)
    assert env.step(answer("dec", *["dec"] * 9))[4]["lookahead_steps"] == 5  # the paper's cap
    with pytest.raises(ConfigError, match="max_depth: got 0"):
        SimRolloutWrapper(make("Counter"), max_depth=0)


def test_reset_in_the_middle_of_a_refine_phase_starts_with_a_draft(make: Make) -> None:
    env = SimRolloutWrapper(make("Counter"))
    env.reset(options=TO_TWO)
    env.step(answer("inc", "inc"))
    _, info = env.reset(options=TO_TWO)
    assert (info["phase"], info["draft"]) == ("draft", None)
    assert env.step(answer("inc", "inc"))[4]["phase"] == "refine"


def test_lookahead_does_not_reveal_the_noise(make: Make) -> None:
    env, control = SimRolloutWrapper(make("Noisy")), make("Noisy")
    env.reset(seed=1, options=TO_FOUR)
    control.reset(seed=1, options=TO_FOUR)
    seen = []
    for _ in range(40):
        ahead = env.step(answer("inc", "inc"))[4]["futures"][0][1]
        observation, _, terminated, truncated, _ = env.step(answer("inc"))
        assert control.step("inc")[0] == observation  # drafts leave the env's own noise alone
        seen.append(ahead == observation)
        if terminated or truncated or not observation.startswith("n=-"):
            env.reset(options=TO_FOUR)
            control.reset(options=TO_FOUR)
    assert {True, False} == set(seen)


def test_a_simulator_looks_ahead_where_the_env_cannot_branch(make: Make) -> None:
    env = SimRolloutWrapper(make("Posting"), simulator="tests.worlds:DynaTest-Counter-v0")
    env.reset(options=TO_FOUR)
    for n in (1, 2):
        futures = env.step(answer("inc", "inc", "dec"))[4]["futures"]
        assert [s[:3] for _, s in futures] == [f"n={n}", f"n={n - 1}"]
        assert env.step(answer("inc"))[0] == f"n={n} goal=4"
    with pytest.raises(BranchError):
        SimRolloutWrapper(make("Posting"))
    with pytest.raises(ConfigError, match="is not of the world 'counter'"):
        SimRolloutWrapper(make("Posting"), simulator=SOKOBAN)


def test_draft_score_by_hand(make_agent: Make) -> None:
    env = make_agent("Counter", response="sim_rollout")
    env.reset(options=TO_FOUR)
    think = "<think><sim> inc -> n 1 | inc -> n 9 </sim></think>"
    info = env.step(f"{think}<plan>\ninc\ninc\ndec\n</plan><action>inc</action>")[4]
    assert draft_score(env, info) == pytest.approx(1 / 3)  # right, wrong, missing


# -- ReSim -----------------------------------------------------------------------------------------


def test_resim_searches_and_leaves_the_env_as_before(make_agent: Make) -> None:
    lookahead = {"breadth": 6, "depth": 3, "keep": 2}
    env = make_agent("Counter", response="resim", lookahead=lookahead)
    prompt, info = env.reset(seed=0, options=TO_TWO)
    tree = info["search"]
    assert env.unwrapped.n == 0
    assert env.unwrapped.observe()[0] == "n=0 goal=2"
    assert env.get_wrapper_attr("_steps") == 0
    assert 1 <= len(tree.rollouts) <= 6
    assert len({tuple(r.steps) for r in tree.rollouts}) == len(tree.rollouts)
    assert all(1 <= len(r.steps) <= 3 for r in tree.rollouts)
    assert tree.env_steps >= sum(len(r.steps) for r in tree.rollouts)
    assert info["lookahead_steps"] == tree.env_steps
    best = tree.rollouts[tree.best]
    assert best.value == max(r.value for r in tree.rollouts)
    assert tree.best in tree.shown
    assert len(tree.shown) == min(2, len(tree.rollouts))
    for rollout in tree.rollouts:  # they really happen
        env.reset(options=TO_TWO)
        for action, digest in rollout.steps:
            env.unwrapped.step(action)
            assert env.unwrapped.world.digest(env.unwrapped.observe()[0]) == digest
    assert "These courses of action were tried" in prompt


def test_resim_values_what_is_solved_as_one(make_agent: Make) -> None:
    lookahead = {"value": "none", "breadth": 30, "depth": 3, "keep": 3}
    env = make_agent("Counter", response="resim", lookahead=lookahead)
    tree = env.reset(seed=0, options=TO_TWO)[1]["search"]
    assert {(r.success, r.value) for r in tree.rollouts} == {(True, 1.0), (False, 0.0)}
    best = tree.rollouts[tree.best]
    assert [a for a, _ in best.steps] == ["inc", "inc"]  # among equals the shortest


def test_resim_ends_with_the_episode(make_agent: Make) -> None:
    env = make_agent("Counter", response="resim", max_steps=1)
    env.reset(seed=0)
    _, _, _, truncated, info = env.step(answer("wait"))
    assert truncated
    assert (info["search"], info["lookahead_steps"]) == (None, 0)


def test_resim_on_a_replay_world(make_agent: Make) -> None:
    env = make_agent("Replay", response="resim", lookahead={"breadth": 2, "depth": 2})
    _, info = env.reset(seed=0, options=TO_FOUR)
    assert info["search"].rollouts
    assert env.unwrapped.observe()[0] == "n=0 goal=4"
    _, _, _, _, info = env.step(answer("dec"))
    assert info["observation"] == "n=-1 goal=4"


def test_resim_with_failed_machinery_truncates(make_agent: Make) -> None:
    env = make_agent("Flaky", response="resim", fail_at=range(3, 999))
    _, info = env.reset(seed=0, options=TO_FOUR)
    assert info["error"].startswith("MachineryError")
    _, reward, _, truncated, info = env.step(answer("dec"))
    assert (reward, truncated) == (0.0, True)
    assert "error" in info


def test_resim_needs_a_branchable_env_and_sane_settings(make_agent: Make) -> None:
    with pytest.raises(BranchError):
        make_agent("Posting", response="resim")
    for bad in ({"breadth": 0}, {"keep": 0}, {"search": "mcts"}, {"follow": "x"}, {"value": "?"}):
        with pytest.raises(ConfigError):
            make_agent("Counter", response="resim", lookahead=bad).reset(seed=0)


@pytest.mark.parametrize("env_id", [SOKOBAN, "Counter"])
def test_what_the_aggregator_writes_has_simulation_score_one(make_agent: Make, env_id: str) -> None:
    lookahead = {"breadth": 3, "depth": 3, "keep": 2}
    env = make_agent(env_id, response="resim", lookahead=lookahead)
    policy = AggregatorPolicy()
    observation, info = env.reset(seed=4)
    scores = []
    for _ in range(6):
        (response,) = policy.act([as_messages(observation)], [info])
        scores.append(simulation_score(env, response.text))
        observation, _, terminated, truncated, info = env.step(response.text)
        if terminated or truncated:
            break
    assert scores
    assert set(scores) == {1.0}


def test_simulation_score_by_hand(make_agent: Make) -> None:
    env = make_agent("Counter")
    env.reset(options=TO_FOUR)

    def score(think: str, *plan: str) -> float:
        return simulation_score(
            env, f"<think>{think}</think><plan>\n" + "\n".join(plan) + "\n</plan>"
        )

    assert score("<sim> inc -> n 1 | inc -> n 2 </sim>", "inc", "inc") == 1.0
    assert score("<sim> inc -> n 1 | inc -> n 3 </sim>", "inc", "inc") == 0.5
    assert score("<sim> inc -> n 1 </sim>", "inc", "inc", "dec", "dec") == 0.25
    five = " | ".join(f"dec -> n {-n}" for n in range(1, 6))
    assert score(f"<sim> {five} </sim>", *["dec"] * 7) == 1.0  # only five are judged
    assert score("", "inc") == 0.0  # nothing was imagined
    assert score("<sim> inc -> n 1 </sim>") == 0.0  # there is no plan
    assert env.unwrapped.n == 0


def test_machinery_failure_in_a_branch_gives_the_episode_up(make: Make) -> None:
    """Half a future would be taken for the whole one."""
    env = SimRolloutWrapper(make("Flaky", fail_at=(2, 3, 4, 5, 6, 7)))
    _, info = env.reset(seed=0)
    plan = "".join(f"{a}\n" for a in info["admissible_actions"][:1] * 4)
    response = f"<plan>\n{plan}</plan><action>{info['admissible_actions'][0]}</action>"
    for _ in range(4):
        _, reward, terminated, truncated, info = env.step(response)
        if truncated:
            break
    assert truncated
    assert not terminated
    assert reward == 0.0
    assert info["error"].startswith("MachineryError")
