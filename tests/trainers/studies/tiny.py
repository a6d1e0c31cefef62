"""A study of a tiny task, in this process or, run as a program, in one that is killed."""

import argparse
import dataclasses
import os
import signal

from trainers.kinds.search import Choice, Uniform
from trainers.studies import budget, search, study
from trainers.studies.places import Place
from trainers.studies.trials import COMPLETE, Trials, import_optuna
from trainers.tasks import config as configs
from trainers.tasks import registry

EPOCHS, STEPS = 3, 6
SPACE = {
    "optimizer.learning_rate": Uniform(1e-4, 1e-1, log=True),
    "data": Choice(({"batch_size": 4}, {"batch_size": 8})),
}


def config():
    """The config that the trials share."""
    loaded = configs.load("adding", "small")
    loaded = search.apply(loaded, {"model.layer": "gru", "model.units": 3})
    loaded.data.update(steps=4, train=16, validation=4, test=4, batch_size=4)
    loaded.training.update(
        epochs=EPOCHS,
        log_every_steps=100,
        checkpoint_every_steps=100,
        jit_compile=False,
    )
    return loaded


def settings(**changed):
    """The settings of the study."""
    return study.Settings(
        **{"config": config(), "data_dir": None, "seconds": 1.0, **changed}
    )


def replace(set_item, set_attribute):
    """Puts a small search space, and a number of steps that no clock decides, in place."""
    task = dataclasses.replace(registry.TASKS["adding"], search=SPACE)
    set_item(registry.TASKS, "adding", task)
    steps = {"training.steps": STEPS}
    set_attribute(
        budget, "with_budget", lambda _, config, seconds: search.apply(config, steps)
    )


def trials(folder):
    """What the trials of a study are and came to."""
    made = Trials(import_optuna(), Place(folder)).all()
    return [
        (
            each.number,
            each.state,
            each.values,
            each.loss if each.state == COMPLETE else None,
            each.losses,
        )
        for each in made
    ]


def main():
    """Makes a study, and kills the process when it observes a trial for some time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--study", required=True)
    parser.add_argument("--trials", type=int, required=True)
    parser.add_argument("--killed_at", type=int, default=0)
    args = parser.parse_args()
    replace(dict.__setitem__, setattr)
    observe, calls = study._Process._observe, []

    def observed(*arguments):
        calls.append(arguments)
        if len(calls) == args.killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        observe(*arguments)

    study._Process._observe = observed
    study.tune(args.study, settings(), study.Limits(trials=args.trials))


if __name__ == "__main__":
    main()
