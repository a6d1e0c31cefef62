"""Exercises that training has not seen, among those of a smartwatch (`trainers.data.watch`).

The network predicts what the watch will read some steps later; where it is surprised, something is
unlike the training recordings. Every value is ours: chosen here.
"""

from configs import watch


def small() -> dict:
    """A minute of one CPU core."""
    config = watch.small()
    config["model"].update(
        units=32,  # ours: 20K parameters: each level computes all steps
        output_units=None,  # ours
        output_dropout=0.0,  # ours
    )
    config["data"].update(
        normal="PEN,ABD,FEL,TRAP,ROW",  # ours: the two rotations of the arm are the anomalies
        ahead=25,  # ours: half a second; the next step alone is too easy to tell anything by
        hop=256,  # ours: every step of a window is trained on
    )
    config["optimizer"].update(learning_rate=3e-3)  # ours
    config["training"].update(steps=200, epochs=5, log_every_steps=20)  # ours
    return config


PRESETS = {"small": small}
