import numpy as np
import pytest

from yamame.data.goals import COMPLETED, NO_GOAL, Goals, instruction_observations, is_goal, is_reached, num_sub_goals

A, B, C = [1.0, 2.0], [3.0, 4.0], [5.0, 6.0]


def goals(instruction: list[list[float]], achieved: list[tuple[int, list[float]]]) -> Goals:
    return Goals(
        instruction=np.array(instruction, np.float32).reshape(-1, 2),
        achieved_step=np.array([step for step, _ in achieved], np.int64),
        achieved_goal=np.array([goal for _, goal in achieved], np.float32).reshape(-1, 2),
    )


def test_sub_goals_are_completed_in_order() -> None:
    assert goals([A, B, C], [(0, B), (2, A), (3, C), (5, B), (9, C)]).completion_steps() == [2, 5, 9]


def test_at_most_one_sub_goal_a_step() -> None:
    assert goals([A, B], [(1, A), (1, B)]).completion_steps() == [1]
    assert goals([A, A], [(1, A), (1, A), (4, A)]).completion_steps() == [1, 4]
    assert goals([A, A], [(0, A), (1, A)]).completion_steps() == [0, 1]


def test_what_stays_undone_ends_the_list() -> None:
    assert goals([A, B, C], [(0, A), (1, C)]).completion_steps() == [0]
    assert goals([A], []).completion_steps() == []
    assert goals([B], [(3, A)]).completion_steps() == []


def test_every_coordinate_has_to_fit_within_the_tolerance() -> None:
    achieved = np.array([[1.0, 2.0], [1.0, 2.0009], [1.0, 2.002], [2.0, 2.0]])
    assert is_reached(achieved, np.array(A), 1e-3).tolist() == [True, True, False, False]


def test_rows_of_minus_one_are_no_goals() -> None:
    announced = np.array([[A, [NO_GOAL, 3.0], [NO_GOAL, NO_GOAL]], [B, B, B]])
    assert is_goal(announced).tolist() == [[True, True, False], [True, True, True]]
    assert num_sub_goals(announced).tolist() == [2, 3]


def test_the_record_leaves_out_what_is_no_goal() -> None:
    nothing = [NO_GOAL, NO_GOAL]
    achieved = np.array([[nothing, nothing], [A, B], [nothing, C]], np.float32)
    record = Goals.from_steps(np.array([C, A, nothing], np.float32), achieved, tolerance=0.5, hide_future_goals=True)
    assert record.instruction.tolist() == [C, A]
    assert record.achieved_step.tolist() == [1, 1, 2]
    assert record.achieved_goal.tolist() == [A, B, C]
    assert (record.tolerance, record.hide_future_goals) == (0.5, True)


def test_what_is_shown_as_sub_goals_are_completed() -> None:
    done, none = [COMPLETED] * 2, [NO_GOAL] * 2
    shown = instruction_observations(np.array([A, B], np.float32), slots=3, hide_future_goals=False)
    assert shown.tolist() == [[none, A, B], [none, done, B], [none, done, done]]
    assert shown.dtype == np.float32


def test_a_hidden_plan_shows_nothing_beyond_the_active_sub_goal() -> None:
    done, none = [COMPLETED] * 2, [NO_GOAL] * 2
    shown = instruction_observations(np.array([A, B, C], np.float32), slots=3, hide_future_goals=True)
    assert shown.tolist() == [[none, none, A], [none, done, B], [done, done, C], [done, done, done]]


@pytest.mark.parametrize("hide_future_goals", [False, True])
def test_an_instruction_that_fills_all_slots(hide_future_goals: bool) -> None:
    shown = instruction_observations(np.array([A], np.float32), slots=1, hide_future_goals=hide_future_goals)
    assert shown.tolist() == [[A], [[COMPLETED] * 2]]
