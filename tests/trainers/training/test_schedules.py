"""When the learning rate falls, by the rule of the authors' scripts."""

from types import SimpleNamespace

from trainers import optimizers
from trainers.training import schedules


def rates(schedule, losses, optimizer=None):
    """The learning rate after each epoch."""
    optimizer = optimizer or optimizers.SGD(16.0)
    after = []
    for epoch in range(1, len(losses) + 1):
        schedule.after_epoch(losses[:epoch], optimizer)
        after.append(float(optimizer.learning_rate.numpy()))
    return after


def test_a_plateau_is_a_loss_above_the_best_before_the_last_patience_epochs():
    losses = [5.0, 4.0, 4.5, 4.2, 4.1, 3.9, 3.95]
    # Epoch 4 is above the best of epochs 1 and 2, or 1 alone: the last `patience` do not count.
    assert rates(schedules.Schedule(patience=1), losses) == [16, 16, 16, 4, 1, 1, 1]
    assert rates(schedules.Schedule(patience=2), losses) == [16, 16, 16, 16, 4, 4, 4]
    assert rates(schedules.Schedule(), losses) == [16.0] * 7


def test_a_plateau_may_be_counted_anew():
    """The authors' rule lowers it in a row, here two epochs after the best instead of three."""
    losses = [1.1, 1.15, 1.0, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2]
    authors = schedules.Schedule(0.5, patience=3)
    assert rates(authors, losses) == [16, 16, 16, 16, 8, 4, 2, 1, 0.5]
    resets = schedules.Schedule(0.5, patience=3, resets=True)
    assert rates(resets, losses) == [16, 16, 16, 16, 16, 8, 8, 8, 4]
    assert rates(resets, [*losses[:6], 0.9, 1.0, 1.0]) == [16] * 5 + [8] * 4


def test_an_epoch_has_a_least_number_of_steps():
    training = SimpleNamespace(steps=0, epochs=10, epoch_steps=50)
    assert schedules.length(training, 2) == 500 and schedules.passes(training, 2) == 250
    assert schedules.length(training, 80) == 800
    training.steps = 30
    assert schedules.length(training, 8) == 30 and schedules.passes(training, 8) == 4


def test_the_learning_rate_stays_at_the_minimum():
    losses = [1.0] + [2.0] * 6
    assert rates(schedules.Schedule(patience=1, minimum=1.0), losses) == [
        16,
        16,
        4,
        1,
        1,
        1,
        1,
    ]
    assert rates(schedules.Schedule(patience=1, minimum=0.5), losses)[-2:] == [
        0.25,
        0.25,
    ]


def test_given_epochs_lower_it_whatever_the_loss():
    assert rates(schedules.Schedule(epochs=(2, 3)), [3.0, 2.0, 1.0, 0.5]) == [
        16,
        4,
        1,
        1,
    ]


def test_the_first_plateau_may_start_averaging_instead():
    optimizer = optimizers.SGD(16.0, averages=True)
    schedule = schedules.Schedule(patience=1, average=True, epochs=(5,))
    assert rates(schedule, [1.0, 2.0, 2.0, 2.0, 2.0], optimizer) == [16.0] * 5
    assert optimizer.averaging


def test_averaging_starts_after_a_given_epoch_whatever_the_loss():
    optimizer = optimizers.SGD(16.0, averages=True)
    schedule = schedules.Schedule(average_after=2, epochs=(1, 3))
    assert schedule.after_epoch([3.0], optimizer) == "learning rate 16 -> 4"
    assert not optimizer.averaging
    started = schedule.after_epoch([3.0, 2.0], optimizer)
    assert started == "weights are averaged from here on"
    assert optimizer.averaging
    assert schedule.after_epoch([3.0, 2.0, 1.0], optimizer) is None


def test_a_run_stops_after_so_many_epochs_without_a_better_loss():
    losses = [5.0, 4.0, 4.5, 4.0, 3.9, 4.1, 3.9, 4.2]
    stopped = [
        [
            schedules.Schedule(stop_after=each).stops(losses[:epoch])
            for epoch in range(9)
        ]
        for each in (2, 3, None)
    ]
    assert [found.index(True) if True in found else None for found in stopped] == [
        4,  # as low as epoch 2 is not better
        8,
        None,
    ]
