"""`trainers.draw`: flags, fields and files of images."""

# A row is a line or two, however long.
# fmt: off
# ruff: noqa: E501

import io

import numpy as np
import scipy.io

from tests.trainers.bad_inputs.row import Row, refused
from trainers.tasks import registry

SVHN = "--task=svhn --preset=small --data_dir=houses"
GRIDS = "`config.model.read` and `config.model.write` must both be None, or integers of at most 32, the shorter side of the images."


def matlab(**values) -> bytes:
    """Returns a Matlab file."""
    file = io.BytesIO()
    scipy.io.savemat(file, values)
    return file.getvalue()


GOOD = matlab(X=np.zeros((32, 32, 3, 20), "uint8"), y=np.ones((20, 1)))


def svhn(name: str, line: str, flags: str = "", train: bytes = GOOD, test: bytes = GOOD, warning: str = "") -> Row:
    """Returns the row of SVHN's two files in the folder `houses`."""
    files = {"houses/train_32x32.mat": train, "houses/test_32x32.mat": test}
    return Row(name, "draw", f"{SVHN} {flags}", line, files, warning=warning)


ROWS = (
    Row("draw_without_task", "draw", "", f"--task is missing; expected one of {', '.join(registry.trained_by('trainers.draw'))}"),
    refused("draw_by_workers", "draw", "--task=mnist --distribute=workers", "none or mirrored for trainers.draw"),
    Row("draw_misspelt_task", "draw", "--task=mnst", "unknown --task 'mnst'; did you mean 'mnist'?"),
    Row("draw_misspelt_preset", "draw", "--task=mnist --preset=papr", "unknown --preset 'papr'; did you mean 'paper'? (of --task=mnist)"),
    Row("language_task_to_draw", "draw", "--task=ptb", "--task=ptb is one of python -m trainers.lm, not of trainers.draw"),
    Row("drawing_task_to_lm", "lm", "--task=mnist", "--task=mnist is one of python -m trainers.draw, not of trainers.lm"),
    Row("depth_to_draw", "draw", "--task=mnist --config.model.depth=3", "unknown --config field 'model.depth'; {any}"),
    Row("draw_steps_zero", "draw", "--task=mnist --config.model.steps=0",
        "`config.model.steps` must be an integer of at least 1 and below 2**31. Received: config.model.steps=0"),
    Row("draw_black_pixels", "draw", "--task=mnist --config.data.pixels=black",
        "`config.data.pixels` must be one of ('drawn', 'grey'). Received: config.data.pixels='black'"),
    svhn("draw_read_larger_than_image", f"{GRIDS} Received: config.model.read=33, config.model.write=5", "--config.model.read=33"),
    svhn("svhn_validation_too_large", "`config.data.validation` must be at most 19, as there are 20 training images. Received: config.data.validation=500",
        warning="SVHN: these are not all"),
    svhn("svhn_batch_too_large", "`config.data.batch_size` must be at most 10, the number of training images. Received: config.data.batch_size=100",
        "--config.data.validation=10", warning="SVHN: these are not all"),
    svhn("svhn_test_is_text", "houses/test_32x32.mat must be a Matlab file of version 5. Received: {any}", test=b"digits"),
    svhn("svhn_train_without_images", "houses/train_32x32.mat must hold X and y. Received: a file without X", train=matlab(y=np.ones(3))),
    svhn("svhn_label_zero", "houses/train_32x32.mat must hold labels from 1 to 10. Received: labels from 0 to 0",
        train=matlab(X=np.zeros((32, 32, 3, 2), "uint8"), y=np.zeros(2, int))),
)
