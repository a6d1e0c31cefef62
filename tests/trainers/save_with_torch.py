"""A program: has torch write the state dicts of `testdata`, as the suite itself has no torch.

    python -m tests.trainers.save_with_torch

Torch 2.13.0 wrote the files that stand there. What is in them is said once more, in NumPy, in
`test_torch_files.py`.
"""

import collections
import pathlib

import torch

FOLDER = pathlib.Path(__file__).parent / "testdata"


def state_dict():
    base = torch.arange(24.0).reshape(4, 6) - 7.5
    state = collections.OrderedDict(
        double=base.double() / 3,
        float=base,
        half=base.half() / 2,
        bfloat16=base.bfloat16() / 4,
        tied=base,
        transposed=base.t(),
        strided=base[1::2, 2:5],
        parameter=torch.nn.Parameter(base[:, 1]),
        scalar=torch.tensor(2.5),
        empty=torch.zeros(0, 3),
    )
    state._metadata = collections.OrderedDict({"": {"version": 1}})  # as a module's has
    return state


if __name__ == "__main__":
    for name, is_zip in (("legacy.pkl", False), ("zip.pkl", True)):
        torch.save(state_dict(), FOLDER / name, _use_new_zipfile_serialization=is_zip)
